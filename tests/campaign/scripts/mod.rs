//! Failovers of which each step is decided: one client holds a lock, or asks the primary for one
//! that nobody else can reach any more, and another follows the Sentinels.
//!
//! Real servers and Sentinels, each server behind a proxy that can cut it off.

mod clocks;
mod lost;
mod split;

use crate::Options;
use crate::report::Report;
use crate::setting::Setting;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The leases of what is held through a failover: longer than one takes.
const LEASE: Duration = Duration::from_secs(12);

/// In how many tries two clients may both believe that they hold a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// In none: that is promised.
    Never,
    /// In each: the script is made for it. It needs failovers that are over before a lease is.
    Each,
    /// That is not said.
    Any,
    /// It is not tried.
    Untried,
}

/// What happens to the servers in a try.
#[derive(Clone, Copy)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    /// The rows of the scoreboard.
    pub(crate) evidence: &'static str,
    act: fn(Setting, u64, &Runtime) -> Seen,
    /// For each of [`Setting::ALL`].
    pub(crate) expected: [Expected; 5],
    /// How many locks the old primary grants in each try, at least, for each of [`Setting::ALL`]: where
    /// no grant is what a setting is for, or a machine is too busy for one, that is none.
    granted: [u64; 5],
    /// How many of these are lost, without settings.
    lost: u64,
}

use Expected::{Any, Each, Never, Untried};

/// The columns are those of [`Setting::ALL`]: nothing, `min_replicas`, `all_replicas`,
/// `min-replicas-to-write`, quarantine.
pub(crate) const ALL: [Script; 5] = [
    Script {
        name: "lost-link",
        evidence: "11, F14",
        act: |setting, _, runtime| lost::link(setting, runtime),
        expected: [Each, Never, Never, Each, Never],
        granted: [1, 0, 0, 1, 1],
        lost: 1,
    },
    Script {
        name: "stale",
        evidence: "12, F15",
        act: |setting, _, runtime| lost::stale(setting, runtime),
        expected: [Each, Each, Never, Each, Never],
        granted: [1, 0, 0, 1, 1],
        lost: 1,
    },
    Script {
        name: "paused",
        evidence: "13, F16",
        act: |setting, _, runtime| split::paused(setting, runtime),
        expected: [Each, Any, Never, Any, Any],
        granted: [1, 0, 0, 0, 0],
        lost: 0,
    },
    Script {
        name: "partition",
        evidence: "F17",
        act: |setting, _, runtime| split::partition(setting, runtime),
        expected: [Each, Any, Never, Each, Never],
        granted: [2, 1, 1, 1, 1],
        lost: 0,
    },
    Script {
        name: "clocks",
        evidence: "F9",
        act: clocks::apart,
        expected: [Any, Untried, Untried, Untried, Never],
        granted: [2, 0, 0, 0, 2],
        lost: 0,
    },
];

/// What came of one try, or of all of them.
#[derive(Clone, Debug, Default)]
struct Seen {
    tries: u64,
    /// Tries in which two clients believed at the same time that they hold a lock.
    doubled: u64,
    /// How often that was.
    double_grants: u64,
    granted: u64,
    /// Tries in which the old primary granted nothing: they show little.
    idle: u64,
    /// Grants that were told to their client and are not known after the failover, or not known to
    /// a client that had not released them.
    lost: u64,
    /// Tokens that were not larger than one before.
    tokens_back: u64,
    /// What else there is to say.
    notes: BTreeSet<String>,
}

impl Seen {
    fn add(&mut self, one: Self) {
        self.tries += 1;
        self.doubled += u64::from(one.double_grants > 0);
        self.double_grants += one.double_grants;
        self.granted += one.granted;
        self.idle += u64::from(one.granted == 0);
        self.lost += one.lost;
        self.tokens_back += one.tokens_back;
        self.notes.extend(one.notes);
    }

    /// A client was granted a lock although another still believes that it holds it.
    fn believed(&mut self, other_believes: bool) {
        self.double_grants += u64::from(other_believes);
    }

    fn token(&mut self, before: Option<u64>, after: u64) {
        self.tokens_back += u64::from(before.is_some_and(|before| before >= after));
    }
}

impl Script {
    pub(crate) fn is_for(&self, setting: Setting) -> bool {
        self.expected(setting) != Untried
    }

    fn expected(&self, setting: Setting) -> Expected {
        self.expected[setting.column()]
    }

    pub(crate) fn play(&self, setting: Setting, options: &Options, report: &Report) {
        let mut all = Seen::default();
        for number in 0..options.times(1) {
            // One for each, so that nothing of a try goes on in the next.
            let runtime = Runtime::new().expect("a runtime");
            let one = (self.act)(setting, number, &runtime);
            println!("{} / {}: {one:?}", self.name, setting.name());
            all.add(one);
            runtime.shutdown_background();
        }
        let Seen { tries, doubled, granted, idle, lost, tokens_back, notes, .. } = &all;
        let claim = |right: bool, wrong: String| {
            if !right {
                report.violation(wrong);
            }
        };
        // Otherwise no overlap is to be seen because nothing was tried.
        let g = self.granted[setting.column()];
        let l = if setting == Setting::Default { self.lost } else { 0 };
        claim(granted >= &(g * tries), format!("Fault: {granted} granted, not {g} a try"));
        claim(lost >= &(l * tries), format!("Fault: {lost} of {tries} lost: nothing was cut"));
        claim(*tokens_back == 0, format!("Token: {tokens_back} did not grow"));
        let seen = format!("two believed in {doubled} of {tries} tries");
        match self.expected(setting) {
            Never => claim(*doubled == 0, format!("Overlap: {seen}, and none is promised")),
            Each => claim(options.zeros || doubled == tries, format!("Fault: {seen} only")),
            Any | Untried => {}
        }
        let notes: String = notes.iter().map(|note| format!("; {note}")).collect();
        report.figure(format!(
            "{seen}, {granted} granted, nothing in {idle}, {lost} lost, {tokens_back} tokens back{notes}"
        ));
    }
}
