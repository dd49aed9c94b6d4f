//! The table of all suites: what is loaded how, what happens to it, and what is promised of that.
//!
//! It is the scoreboard of `docs/evidence.md`: a suite says which of its rows it is evidence of, and
//! the report of a suite is a row again.

use crate::crashes::Durability;
use crate::faults::{HOUR, JUMP, KILLS, RESTARTED, STEP, STOPPED};
use crate::processes::{self, Scenario};
use crate::report::Report;
use crate::scripts::{self, Script};
use crate::setting::Setting;
use crate::topology::{Five, Nodes, Pair, Single, Strangers, Target, Topology, Watched};
use crate::workload::{BOUND, ELECTIONS, GARBAGE, LATCHES, LOCKS, READERS, SEMAPHORES, WIRE, Work};
use crate::{Options, promotion, round};
use std::sync::Arc;
use std::time::Duration;

/// What holds whatever happens, each with those before it.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) enum Promises {
    /// Nothing stale is written, and none but a primary that was deposed gives a smaller token later.
    Tokens,
    /// No two believe to hold the same lock, and a later grant has the larger token.
    NoOverlap,
    /// Nobody is told of a loss before the lease is over.
    NoLoss,
    /// Clients see each rule kept that a server has: waiters are served in order, and soon.
    EveryRule,
}

use Promises::{EveryRule, NoLoss, NoOverlap, Tokens};

/// Tasks on a topology, and faults that are drawn.
pub(crate) struct Rounds {
    pub(crate) on: fn(Setting) -> Box<dyn Topology>,
    pub(crate) setting: Setting,
    pub(crate) work: Work,
    pub(crate) promises: Promises,
    pub(crate) pace: Pace,
    /// Faults that can happen there and are not drawn.
    pub(crate) without: &'static [&'static str],
}

/// How faults follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How long a round may begin new ones.
    pub(crate) round: Duration,
    /// How many a round has, at most.
    pub(crate) faults: usize,
    /// The servers are in order and everybody gets on before the next one.
    pub(crate) settles: bool,
    /// How long there is none, at most.
    pub(crate) rest: Duration,
}

const ONE_BY_ONE: Pace = Pace {
    round: Duration::from_secs(30),
    faults: 8,
    settles: true,
    rest: Duration::from_millis(300),
};

/// What one has set in motion goes on before the next.
const STORM: Pace = Pace {
    round: Duration::from_secs(3),
    faults: usize::MAX,
    settles: false,
    rest: Duration::from_millis(50),
};

/// What makes a server of a quorum forget, or take leases for over.
const FORGETS: [&str; 4] = [JUMP, HOUR, KILLS[0], KILLS[1]];

type Start = fn(Setting) -> Box<dyn Topology>;

/// How a suite is played.
type Play = Box<dyn Fn(&Options, &Arc<Report>) + Send + Sync>;

/// A row of the table.
pub(crate) struct Suite {
    pub(crate) name: String,
    /// The rows of the scoreboard.
    pub(crate) evidence: &'static str,
    /// What it tries, for people.
    pub(crate) what: String,
    pub(crate) play: Play,
}

/// All suites.
pub(crate) fn all() -> Vec<Suite> {
    [vec![chaos()], rounds(), others(), scripts(), crashes(), holders(), promotions(), vec![fuzz()]]
        .into_iter()
        .flatten()
        .collect()
}

/// Whatever there is on the wire, under whatever can be done to keys, clients and servers.
fn chaos() -> Suite {
    let rounds = Rounds {
        on: Strangers::start,
        setting: Setting::Default,
        work: WIRE,
        promises: EveryRule,
        pace: STORM,
        // In that time there could be twenty others.
        without: &[STOPPED],
    };
    suite("chaos/pair", "1, 3, 24, F4, F8, F20, F21", rounds)
}

/// Whatever a server may be told.
fn fuzz() -> Suite {
    let rounds = Rounds {
        on: Target::start,
        setting: Setting::Default,
        work: GARBAGE,
        promises: EveryRule,
        pace: Pace { round: Duration::from_secs(5), rest: Duration::from_secs(2), ..STORM },
        without: &[],
    };
    suite("fuzz/single", "20", rounds)
}

fn rounds() -> Vec<Suite> {
    use Setting::{AllReplicas, Default, MinReplicas, MinReplicasToWrite, Quarantine};
    type Row = (&'static str, &'static str, Start, Setting, Promises, &'static [&'static str]);
    // name, rows of the scoreboard, topology, setting, promises, without these faults
    #[rustfmt::skip]
    let table: [Row; 15] = [
        ("single/default", "2, F6, F8", Single::start, Default, NoOverlap, &[STEP]),
        ("pair/default", "15, F18", Pair::start, Default, NoOverlap, &[]),
        ("pair/min_replicas", "15, F18", Pair::start, MinReplicas, NoOverlap, &[]),
        ("pair/all_replicas", "15, F18", Pair::start, AllReplicas, NoOverlap, &[]),
        ("pair/min-replicas-to-write", "15, F18", Pair::start, MinReplicasToWrite, NoOverlap, &[]),
        ("pair/quarantine", "15, F18", Pair::start, Quarantine, NoOverlap, &[]),
        ("sentinel/all_replicas", "2", Watched::start, AllReplicas, NoLoss, &[]),
        // A grant may be lost; but nobody else has it while the quarantine lasts. One replica of two is
        // enough for a primary to go on, and Sentinels may leave one there that was just restarted.
        ("sentinel/quarantine", "2", Watched::start, Quarantine, NoOverlap, &[RESTARTED]),
        ("sentinel/default", "2, F16", Watched::start, Default, Tokens, &[]),
        ("cluster/all_replicas", "2", Nodes::start, AllReplicas, NoLoss, &[]),
        ("cluster/default", "2", Nodes::start, Default, Tokens, &[]),
        ("five/quarantine", "2, F22", Five::start, Quarantine, NoOverlap, &[JUMP]),
        ("five/apart", "2, F22", Five::start_apart, Quarantine, NoOverlap, &FORGETS),
        // All leases are over at the server whose clock jumps; if another forgets, tokens may go back.
        ("five/jumps", "F22", Five::start, Quarantine, Tokens, &[HOUR, KILLS[0], KILLS[1]]),
        ("five/forgetful", "F22", Five::start, Default, Tokens, &[JUMP]),
    ];
    let of = |(name, evidence, on, setting, promises, without): Row| {
        suite(
            name,
            evidence,
            Rounds { on, setting, work: LOCKS, promises, pace: ONE_BY_ONE, without },
        )
    };
    table.map(of).into()
}

/// All that is not a lock held alone, on each sort of servers.
fn others() -> Vec<Suite> {
    use Setting::{AllReplicas, Default};
    type Row = (&'static str, Work, Promises);
    type On = (&'static str, Start, Setting, &'static [&'static str]);
    // name, workload, what is promised if all replicas confirm
    let works: [Row; 5] = [
        ("readers", READERS, NoLoss),
        ("semaphores", SEMAPHORES, NoLoss),
        ("latches", LATCHES, NoLoss),
        ("elections", ELECTIONS, NoLoss),
        // A session that is gone is a loss before the lease is over.
        ("bound", BOUND, NoOverlap),
    ];
    let places: [On; 5] = [
        ("single/default", Single::start, Default, &[STEP]),
        ("pair/default", Pair::start, Default, &[]),
        ("sentinel/all_replicas", Watched::start, AllReplicas, &[]),
        ("sentinel/default", Watched::start, Default, &[]),
        ("cluster/all_replicas", Nodes::start, AllReplicas, &[]),
    ];
    let of = |(what, work, promises): Row| {
        places.into_iter().map(move |(place, on, setting, without)| {
            let promises = match (place, setting) {
                ("sentinel/default", _) => Tokens,
                (_, Default) => NoOverlap,
                _ => promises,
            };
            // Their leases are longer than all steps.
            let without = if what == "bound" { &[] } else { without };
            let rounds = Rounds { on, setting, work, promises, pace: ONE_BY_ONE, without };
            suite(&format!("{what}/{place}"), "2", rounds)
        })
    };
    works.into_iter().flat_map(of).collect()
}

fn suite(name: &str, evidence: &'static str, rounds: Rounds) -> Suite {
    let what = format!("{}, under faults: {}", name.replace('/', ", "), rounds.work.name);
    let of = name.to_owned();
    played(name, evidence, what, move |options, report| round::play(&of, &rounds, options, report))
}

fn played(
    name: impl Into<String>,
    evidence: &'static str,
    what: impl Into<String>,
    play: impl Fn(&Options, &Arc<Report>) + Send + Sync + 'static,
) -> Suite {
    Suite { name: name.into(), evidence, what: what.into(), play: Box::new(play) }
}

fn scripts() -> Vec<Suite> {
    let of = |script: Script| {
        let settings = Setting::ALL.into_iter().filter(move |setting| script.is_for(*setting));
        settings.map(move |setting| {
            let (name, of) = (script.name, setting.name());
            let what = format!("failover, {name}, {of}");
            played(format!("{name}/{of}"), script.evidence, what, move |options, report| {
                script.play(setting, options, report);
            })
        })
    };
    scripts::ALL.into_iter().flat_map(of).collect()
}

fn crashes() -> Vec<Suite> {
    let of = |it: Durability| {
        let what = format!("a server that dies under load, {}", it.name());
        played(it.name(), it.evidence(), what, move |options, report| it.play(options, report))
    };
    Durability::all().map(of).collect()
}

fn holders() -> Vec<Suite> {
    let of = |it: Scenario| {
        let name = format!("holders/{}", it.name);
        played(name, it.evidence, it.what, move |options, report| it.play(options, report))
    };
    processes::ALL.map(of).into()
}

fn promotions() -> Vec<Suite> {
    use promotion::Kind::{Cluster, Sentinel};
    let of = |(name, kind)| {
        let what = format!("from the death of a primary to the next grant, {name}");
        played(format!("promotion/{name}"), "14", what, move |options, report| {
            promotion::play(kind, options.times(12), report);
        })
    };
    [("sentinel", Sentinel), ("cluster", Cluster)].map(of).into()
}
