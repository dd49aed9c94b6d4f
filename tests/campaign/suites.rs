//! The table of all suites: what is loaded how, what happens to it, and what is promised of that.
//!
//! It is the scoreboard of `docs/evidence.md`: a suite says which of its rows it is evidence of, and
//! the report of a suite is a row again.

use crate::crashes::Durability;
use crate::faults::{JUMP, KILLS};
use crate::processes::{self, Scenario};
use crate::report::Report;
use crate::scripts::{self, Script};
use crate::setting::Setting;
use crate::topology::{Five, Nodes, Pair, Topology, Watched};
use crate::workload::{LOCKS, Work};
use crate::{Options, promotion, round};
use std::sync::Arc;

/// What holds whatever happens. Whatever the settings are, nothing stale is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promises {
    /// No two believe to hold the same lock, and a later grant has the larger token. Otherwise only
    /// one of a primary that was deposed may have a smaller one.
    pub(crate) no_overlap: bool,
    /// Nobody is told of a loss before the lease is over.
    pub(crate) no_loss: bool,
}

/// What is done to the servers of all rounds.
const WORK: [Work; 1] = [LOCKS];

const ALL: Promises = Promises { no_overlap: true, no_loss: true };
const NO_OVERLAP: Promises = Promises { no_overlap: true, no_loss: false };
const NOTHING: Promises = Promises { no_overlap: false, no_loss: false };

/// Tasks on a topology, and faults that are drawn.
pub(crate) struct Rounds {
    pub(crate) on: fn(Setting) -> Box<dyn Topology>,
    pub(crate) setting: Setting,
    pub(crate) work: &'static [Work],
    pub(crate) promises: Promises,
    /// Faults that can happen there and are not drawn.
    pub(crate) without: &'static [&'static str],
}

/// How a suite is played.
pub(crate) enum Play {
    Rounds(Rounds),
    /// A failover of which each step is decided.
    Script(Script, Setting),
    /// A server that keeps grants in some way dies again and again.
    Crashes(Durability),
    /// Something is done to client processes.
    Processes(Scenario),
    /// Primaries are killed, and it is measured how long until the next one grants.
    Promotions(promotion::Kind),
}

/// A row of the table.
pub(crate) struct Suite {
    pub(crate) name: String,
    /// The rows of the scoreboard.
    pub(crate) evidence: &'static str,
    /// What it tries, for people.
    pub(crate) what: String,
    pub(crate) play: Play,
}

impl Suite {
    pub(crate) fn run(&self, options: &Options, report: &Arc<Report>) {
        match &self.play {
            Play::Rounds(rounds) => round::play(&self.name, rounds, options, report),
            Play::Script(script, setting) => script.play(*setting, options, report),
            Play::Crashes(durability) => durability.play(options, report),
            Play::Processes(scenario) => scenario.play(options, report),
            Play::Promotions(kind) => promotion::play(*kind, options.times(12), report),
        }
    }
}

/// All suites.
pub(crate) fn all() -> Vec<Suite> {
    [rounds(), scripts(), crashes(), holders(), promotions()].into_iter().flatten().collect()
}

fn rounds() -> Vec<Suite> {
    use Setting::{AllReplicas, Default, MinReplicas, MinReplicasToWrite, Quarantine};
    type Start = fn(Setting) -> Box<dyn Topology>;
    type Row = (&'static str, &'static str, Start, Setting, Promises, &'static [&'static str]);
    // name, rows of the scoreboard, topology, setting, promises, without these faults
    #[rustfmt::skip]
    let table: [Row; 13] = [
        ("pair/default", "15, F18", Pair::start, Default, NO_OVERLAP, &[]),
        ("pair/min_replicas", "15, F18", Pair::start, MinReplicas, NO_OVERLAP, &[]),
        ("pair/all_replicas", "15, F18", Pair::start, AllReplicas, NO_OVERLAP, &[]),
        ("pair/min-replicas-to-write", "15, F18", Pair::start, MinReplicasToWrite, NO_OVERLAP, &[]),
        ("pair/quarantine", "15, F18", Pair::start, Quarantine, NO_OVERLAP, &[]),
        ("sentinel/all_replicas", "2", Watched::start, AllReplicas, ALL, &[]),
        // A grant may be lost; but nobody else has it while the quarantine lasts.
        ("sentinel/quarantine", "2", Watched::start, Quarantine, NO_OVERLAP, &[]),
        ("sentinel/default", "2, F16", Watched::start, Default, NOTHING, &[]),
        ("cluster/all_replicas", "2", Nodes::start, AllReplicas, ALL, &[]),
        ("cluster/default", "2", Nodes::start, Default, NOTHING, &[]),
        ("five/quarantine", "2, F22", Five::start, Quarantine, NO_OVERLAP, &[JUMP]),
        // All leases are over at the server whose clock jumps; if another forgets, tokens may go back.
        ("five/jumps", "F22", Five::start, Quarantine, NOTHING, &KILLS),
        ("five/forgetful", "F22", Five::start, Default, NOTHING, &[JUMP]),
    ];
    let of = |(name, evidence, on, setting, promises, without): Row| Suite {
        name: name.to_owned(),
        evidence,
        what: format!(
            "{}, under faults: {}",
            name.replace('/', ", "),
            WORK.map(|work| work.name).join(", ")
        ),
        play: Play::Rounds(Rounds { on, setting, work: &WORK, promises, without }),
    };
    table.map(of).into()
}

fn scripts() -> Vec<Suite> {
    let of = |script: Script| {
        let settings = Setting::ALL.into_iter().filter(move |setting| script.is_for(*setting));
        settings.map(move |setting| Suite {
            name: format!("{}/{}", script.name, setting.name()),
            evidence: script.evidence,
            what: format!("failover, {}, {}", script.name, setting.name()),
            play: Play::Script(script, setting),
        })
    };
    scripts::ALL.into_iter().flat_map(of).collect()
}

fn crashes() -> Vec<Suite> {
    let of = |durability: Durability| Suite {
        name: durability.name(),
        evidence: durability.evidence(),
        what: format!("a server that dies under load, {}", durability.name()),
        play: Play::Crashes(durability),
    };
    Durability::all().into_iter().map(of).collect()
}

fn holders() -> Vec<Suite> {
    let of = |scenario: Scenario| Suite {
        name: format!("holders/{}", scenario.name),
        evidence: scenario.evidence,
        what: scenario.what.to_owned(),
        play: Play::Processes(scenario),
    };
    processes::ALL.map(of).into()
}

fn promotions() -> Vec<Suite> {
    use promotion::Kind::{Cluster, Sentinel};
    let of = |(name, kind)| Suite {
        name: format!("promotion/{name}"),
        evidence: "14",
        what: format!("from the death of a primary to the next grant, {name}"),
        play: Play::Promotions(kind),
    };
    [("sentinel", Sentinel), ("cluster", Cluster)].map(of).into()
}
