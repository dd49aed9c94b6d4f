//! Failovers and restarts of a primary, with fixed steps. One client holds or requests locks of that primary.
//! Another client, which follows the Sentinels, requests the same locks.
//!
//! The servers and Sentinels are real. Each server is behind a proxy that can cut it off.

mod contest;
mod steps;

use crate::Options;
use crate::report::Report;
use crate::setting::Setting;
use harness::evidence::{DOUBLED, PROMISED, TRIES};
use std::collections::BTreeSet;

/// Expected tries in which two clients believe at the same time that they hold the same lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// No try: this is promised.
    Never,
    /// Every try. Not checked with `--zeros`.
    Each,
    /// Any number of tries.
    Any,
    /// The script is not run with the setting.
    Untried,
}

/// The steps of a try, and the expected results.
#[derive(Clone, Copy)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    /// Rows of `docs/evidence.md` for which the script is evidence.
    pub(crate) evidence: &'static str,
    /// Runs a try with a setting. The number of the try may select a variant.
    run_once: fn(Setting, u64) -> TryResult,
    /// Expected overlaps, for each of [`Setting::ALL`].
    pub(crate) expected: [Expected; 5],
    /// Minimum for the average number of locks that the old primary grants in a try, for each of
    /// [`Setting::ALL`]. Zero where a setting prevents grants, or where a busy machine may allow none.
    granted: [u64; 5],
    /// Minimum for the average number of these grants that are lost in a try with [`Setting::Default`].
    lost: u64,
}

use Expected::{Any, Each, Never, Untried};

/// The columns of `expected` and `granted` are those of [`Setting::ALL`]: no safeguard, `min_replicas`,
/// `all_replicas`, `min-replicas-to-write`, quarantine.
pub(crate) const ALL: [Script; 7] = [
    Script {
        name: "lost-link",
        evidence: "11, F14",
        run_once: steps::lost_link,
        expected: [Each, Never, Never, Each, Never],
        granted: [1, 0, 0, 1, 1],
        lost: 1,
    },
    Script {
        name: "stale",
        evidence: "12, F15",
        run_once: steps::stale,
        expected: [Each, Each, Never, Each, Never],
        granted: [1, 0, 0, 1, 1],
        lost: 1,
    },
    Script {
        name: "paused",
        evidence: "13, F16",
        run_once: steps::paused,
        expected: [Each, Any, Never, Any, Any],
        granted: [1, 0, 0, 0, 0],
        lost: 0,
    },
    Script {
        name: "partition",
        evidence: "F17",
        run_once: steps::partition,
        expected: [Each, Any, Never, Each, Never],
        granted: [2, 1, 1, 1, 1],
        lost: 0,
    },
    Script {
        name: "back-empty",
        evidence: "13",
        run_once: steps::back_empty,
        expected: [Each, Each, Each, Each, Never],
        granted: [1; 5],
        lost: 1,
    },
    Script {
        name: "back-with-data",
        evidence: "13",
        run_once: steps::back_with_data,
        expected: [Never; 5],
        granted: [1; 5],
        lost: 0,
    },
    Script {
        name: "clocks",
        evidence: "F9",
        run_once: steps::clocks,
        expected: [Any, Untried, Untried, Untried, Never],
        granted: [2, 0, 0, 0, 2],
        lost: 0,
    },
];

/// Result of one try.
#[derive(Debug, Default)]
struct TryResult {
    /// `true` if two clients believed at the same time that they held the same lock.
    doubled: bool,
    /// Number of locks that the old primary granted.
    granted: u64,
    /// Number of grants that were lost, although the client had not released the lock.
    lost: u64,
    /// Number of locks whose second grant did not have the larger token.
    tokens_back: u64,
    /// An additional remark.
    note: Option<String>,
}

impl Script {
    pub(crate) fn is_for(&self, setting: Setting) -> bool {
        self.expected(setting) != Untried
    }

    fn expected(&self, setting: Setting) -> Expected {
        self.expected[setting as usize]
    }

    pub(crate) fn play(&self, setting: Setting, options: &Options, report: &Report) {
        let play = |number| {
            let one = (self.run_once)(setting, number);
            println!("{} / {}: {one:?}", self.name, setting.name());
            one
        };
        let tries: Vec<TryResult> = (0..options.times(1)).map(play).collect();
        let count = |of: fn(&TryResult) -> u64| tries.iter().map(of).sum::<u64>();
        let granted = count(|one| one.granted);
        let [doubled, idle] =
            [count(|one| one.doubled.into()), count(|one| (one.granted == 0).into())];
        let [lost, tokens_back] = [count(|one| one.lost), count(|one| one.tokens_back)];
        let notes: BTreeSet<&str> = tries.iter().filter_map(|one| one.note.as_deref()).collect();
        let tries = tries.len() as u64;
        // If the old primary grants nothing, no overlap is possible, and the try shows nothing.
        let g = self.granted[setting as usize];
        let l = if setting == Setting::Default { self.lost } else { 0 };
        report.add(TRIES, tries);
        report.add(DOUBLED, doubled);
        report.add(PROMISED, u64::from(self.expected(setting) == Never));
        let seen = format!("two believed in {doubled} of {tries} tries");
        let is_expected = match self.expected(setting) {
            Never => doubled == 0,
            Each => options.zeros || doubled == tries,
            Any | Untried => true,
        };
        for (right, wrong) in [
            (granted >= g * tries, format!("Fault: {granted} granted, not {g} a try")),
            (lost >= l * tries, format!("Fault: {lost} of {tries} lost: nothing was cut")),
            (tokens_back == 0, format!("Token: {tokens_back} did not grow")),
            (is_expected, format!("Overlap: {seen}, expected {:?}", self.expected(setting))),
        ] {
            if !right {
                report.violation(wrong);
            }
        }
        let notes: String = notes.iter().map(|note| format!("; {note}")).collect();
        report.figure(format!(
            "{seen}, {granted} granted, nothing in {idle}, {lost} lost, {tokens_back} tokens back{notes}"
        ));
    }
}
