//! The table of all suites: their load, their faults and their promises.
//!
//! Each suite names the rows of `docs/evidence.md` for which it is evidence: rows of the scoreboard, and rows
//! `F…` of the fault schedules.

use crate::crashes::Durability;
use crate::faults::{Class, Fault, HOUR, JUMP, KILLS, SLOTS_MOVED, STEP, STOPPED};
use crate::processes::{self, Scenario};
use crate::report::Report;
use crate::scripts::{self, Script};
use crate::setting::Setting;
use crate::topology::{
    ClusterNodes, FiveIndependent, FuzzTarget, Pair, PairWithStrangers, SentinelSite, Single,
    Topology,
};
use crate::workload::{
    BOUND, ELECTIONS, GARBAGE, LATCHES, LOCKS, READERS, RESULTS, SEMAPHORES, SETS, WIRE, Work,
};
use crate::{Options, promotion, round};
use std::sync::Arc;
use std::time::Duration;

/// Promises that hold under all faults of a suite. Each level includes the previous ones, unless its
/// description says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) enum Promises {
    /// Each call is answered, clients acquire locks again after each fault, and no server crashes.
    Nothing,
    /// No two clients believe at once that they hold the same lock, unless they share it. Tokens may
    /// decrease.
    Beliefs,
    /// No stale write is accepted. Of two grants, the later has the larger token, unless a replaced primary may
    /// have issued one of them. Beliefs may overlap.
    Tokens,
    /// No two clients believe at once that they hold the same lock, unless they share it. A later grant has
    /// the larger token.
    NoOverlap,
    /// No client loses its lock before the lease has ended.
    NoLoss,
    /// All rules of the checker hold: for example, waiters are served in order and in time.
    EveryRule,
}

use Promises::{Beliefs, EveryRule, NoLoss, NoOverlap, Nothing, Tokens};

/// The rounds of a suite: its workload on a topology, and the faults that are drawn.
pub(crate) struct Rounds {
    pub(crate) on: fn(Setting) -> Box<dyn Topology>,
    pub(crate) setting: Setting,
    pub(crate) work: Work,
    pub(crate) promises: Promises,
    pub(crate) pace: Pace,
    /// Faults that are excluded, although the topology allows them.
    pub(crate) without: &'static [&'static str],
    /// Class of the faults that are drawn in addition to the usual ones.
    pub(crate) also: Class,
    pub(crate) wants: Wants,
    /// Minimum number of overlapping beliefs that the judge must find: [`FOUND`] in controls and in
    /// `strangers/single`, otherwise zero.
    pub(crate) finds: u64,
}

/// Faults that must happen at least once in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// All faults that can be drawn.
    All,
    /// Faults that replace a primary or move slots, and faults of classes other than the usual one.
    Failovers,
    /// None.
    None,
}

impl Rounds {
    pub(crate) fn has(&self, fault: &Fault, options: &Options, at: &dyn Topology) -> bool {
        let class = fault.class == Class::Usual || fault.class == self.also;
        let named = fault.name.contains(&options.fault) && !self.without.contains(&fault.name);
        class && named && (fault.on)(at)
    }

    /// The faults that must happen.
    pub(crate) fn wanted(&self, faults: &[&'static Fault]) -> Vec<&'static Fault> {
        let is_wanted = |fault: &&&'static Fault| match self.wants {
            Wants::All => true,
            Wants::Failovers => {
                fault.failovers > 0 || fault.name == SLOTS_MOVED || fault.class != Class::Usual
            }
            Wants::None => false,
        };
        faults.iter().filter(is_wanted).copied().collect()
    }
}

/// The timing of the faults in a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Time after which no new fault begins in a round.
    pub(crate) round: Duration,
    /// Largest number of faults in a round.
    pub(crate) faults: usize,
    /// `true` if the next fault waits until the servers have recovered and each task has made progress.
    pub(crate) settles: bool,
    /// Longest pause between two faults.
    pub(crate) rest: Duration,
}

const ONE_BY_ONE: Pace = Pace {
    round: Duration::from_secs(30),
    faults: 8,
    settles: true,
    rest: Duration::from_millis(300),
};

/// The next fault may begin before the effects of the last one have ended.
const STORM: Pace = Pace {
    round: Duration::from_secs(3),
    faults: usize::MAX,
    settles: false,
    rest: Duration::from_millis(50),
};

/// Faults after which a server of a quorum has lost its leases or treats them as expired.
const FORGETS: [&str; 5] = [JUMP, HOUR, KILLS[0], KILLS[1], KILLS[2]];

type Start = fn(Setting) -> Box<dyn Topology>;

/// The function that runs a suite.
type Play = Box<dyn Fn(&Options, &Arc<Report>) + Send + Sync>;

/// A suite, and the function that runs it.
pub(crate) struct Suite {
    pub(crate) name: String,
    /// Rows of `docs/evidence.md`.
    pub(crate) evidence: &'static str,
    /// Description for `--list`.
    pub(crate) what: String,
    pub(crate) play: Play,
}

/// Minimum number of overlapping beliefs, in a suite that must show some.
const FOUND: u64 = 3;

/// Suffix of the name of a control. A control is the same suite with a setting that does not prevent overlaps.
const CONTROL: &str = "/control";

impl Suite {
    pub(crate) fn is_control(&self) -> bool {
        self.name.ends_with(CONTROL)
    }

    /// Name from which the random choices are seeded. A control uses the name of its suite, to draw the same
    /// faults.
    pub(crate) fn seeded_by(&self) -> &str {
        self.name.strip_suffix(CONTROL).unwrap_or(&self.name)
    }
}

pub(crate) fn all() -> Vec<Suite> {
    [vec![chaos()], rounds(), others(), scripts(), crashes(), holders(), promotions(), vec![fuzz()]]
        .into_iter()
        .flatten()
        .collect()
}

/// Values that most suites share.
const USUAL: Rounds = Rounds {
    on: Single::start,
    setting: Setting::Default,
    work: LOCKS,
    promises: NoOverlap,
    pace: ONE_BY_ONE,
    without: &[],
    also: Class::Usual,
    wants: Wants::None,
    finds: 0,
};

/// Commands on the wire for locks, semaphores, latches and sessions, under faults of keys, clients and
/// servers.
fn chaos() -> Suite {
    let rounds = Rounds {
        on: PairWithStrangers::start,
        setting: Setting::Default,
        work: WIRE,
        promises: EveryRule,
        pace: STORM,
        // Excluded: it takes about as long as twenty other faults.
        without: &[STOPPED],
        ..USUAL
    };
    suite("chaos/pair", "1, 3, 24, F4, F8, F20, F21", rounds)
}

/// A server that receives random commands and bytes.
fn fuzz() -> Suite {
    let rounds = Rounds {
        on: FuzzTarget::start,
        setting: Setting::Default,
        work: GARBAGE,
        promises: EveryRule,
        pace: Pace { round: Duration::from_secs(5), rest: Duration::from_secs(2), ..STORM },
        ..USUAL
    };
    suite("fuzz/single", "20", rounds)
}

/// Exclusive locks on each topology whose clients use the crate. Some of these suites have a control, in
/// which beliefs must overlap.
fn rounds() -> Vec<Suite> {
    use Setting::{
        AllReplicas, Default, IoThreads, MinReplicas, MinReplicasToWrite, Quarantine, SlowClock,
    };
    type Row = (
        &'static str,
        &'static str,
        Start,
        Setting,
        Promises,
        &'static [&'static str],
        Option<Setting>,
    );
    // name, rows of `docs/evidence.md`, topology, setting, promises, without these faults, setting of the control
    #[rustfmt::skip]
    let table: [Row; 16] = [
        ("single/default", "2, F6, F8", Single::start, Default, NoOverlap, &[STEP], Some(SlowClock)),
        ("single/io-threads", "2", Single::start, IoThreads, NoOverlap, &[STEP], None),
        ("pair/default", "15, F18", Pair::start, Default, NoOverlap, &[], Some(SlowClock)),
        ("pair/min_replicas", "15, F18", Pair::start, MinReplicas, NoOverlap, &[], None),
        ("pair/all_replicas", "15, F18", Pair::start, AllReplicas, NoOverlap, &[], None),
        ("pair/min-replicas-to-write", "15, F18", Pair::start, MinReplicasToWrite, NoOverlap, &[], None),
        ("pair/quarantine", "15, F18", Pair::start, Quarantine, NoOverlap, &[], None),
        ("sentinel/all_replicas", "2", SentinelSite::start, AllReplicas, NoLoss, &[], Some(Default)),
        // A grant may be lost, but the lock is not granted again during the quarantine.
        ("sentinel/quarantine", "2", SentinelSite::start, Quarantine, NoOverlap, &[], Some(Default)),
        ("sentinel/default", "2, F16", SentinelSite::start, Default, Tokens, &[], None),
        ("cluster/all_replicas", "2", ClusterNodes::start, AllReplicas, NoLoss, &[], Some(Default)),
        ("cluster/default", "2", ClusterNodes::start, Default, Tokens, &[], None),
        ("five/quarantine", "2, F22", FiveIndependent::start, Quarantine, NoOverlap, &[JUMP], Some(Default)),
        ("five/apart", "2, F22", FiveIndependent::start_apart, Quarantine, NoOverlap, &FORGETS, Some(SlowClock)),
        // A jump of a server's clock ends all leases at that server. If another server also lost its data, tokens
        // could decrease.
        ("five/jumps", "F22", FiveIndependent::start, Quarantine, Tokens, &[HOUR, KILLS[0], KILLS[1], KILLS[2]], None),
        ("five/forgetful", "F22", FiveIndependent::start, Default, Tokens, &[JUMP, KILLS[2]], None),
    ];
    let of = |(name, evidence, on, setting, promises, without, control): Row| {
        let rounds = move || Rounds { on, setting, promises, without, wants: Wants::All, ..USUAL };
        let control = control.map(|setting| {
            let promises = Nothing;
            let rounds = Rounds { setting, promises, finds: FOUND, ..rounds() };
            suite(&format!("{name}{CONTROL}"), evidence, rounds)
        });
        [suite(name, evidence, rounds())].into_iter().chain(control)
    };
    table.into_iter().flat_map(of).chain(emptied()).chain([strangers()]).collect()
}

/// Suites in which primaries are killed and restart at once without data. A quarantine prevents overlaps; in the
/// controls, which have none, beliefs must overlap.
fn emptied() -> impl Iterator<Item = Suite> {
    use Setting::{AllReplicas, Quarantine};
    let places: [(&str, Start); 3] = [
        ("pair", Pair::start_forgetful),
        ("sentinel", SentinelSite::start_forgetful),
        ("cluster", ClusterNodes::start_forgetful),
    ];
    places.into_iter().flat_map(|(place, on)| {
        let rounds = move |setting, promises, finds| {
            let (also, wants) = (Class::Empty, Wants::Failovers);
            Rounds { on, setting, promises, also, wants, finds, ..USUAL }
        };
        let name = format!("empty/{place}");
        let control = rounds(AllReplicas, Nothing, FOUND);
        let control = suite(&format!("{name}{CONTROL}"), "13", control);
        [suite(&name, "13", rounds(Quarantine, Beliefs, 0)), control]
    })
}

/// Locks that administrators delete or flush, or that a full server evicts. Two clients may believe at once that
/// they hold the same lock, but no stale write is accepted.
fn strangers() -> Suite {
    let (also, wants, finds) = (Class::Stranger, Wants::All, FOUND);
    let rounds = Rounds { promises: Tokens, without: &[STEP], also, wants, finds, ..USUAL };
    suite("strangers/single", "F20", rounds)
}

/// The other workloads whose clients use the crate, on several topologies.
fn others() -> Vec<Suite> {
    use Setting::{AllReplicas, Default, Quarantine};
    type Row = (&'static str, Work, Promises);
    type On = (&'static str, Start, Setting, &'static [&'static str]);
    // name, workload, what is promised if all replicas confirm
    let works: [Row; 7] = [
        ("readers", READERS, NoLoss),
        ("semaphores", SEMAPHORES, NoLoss),
        ("latches", LATCHES, NoLoss),
        ("results", RESULTS, NoLoss),
        ("sets", SETS, NoLoss),
        ("elections", ELECTIONS, NoLoss),
        // When a session ends, its client loses the lock before the lease has ended.
        ("bound", BOUND, NoOverlap),
    ];
    let places: [On; 6] = [
        ("single/default", Single::start, Default, &[STEP]),
        ("pair/default", Pair::start, Default, &[]),
        ("sentinel/all_replicas", SentinelSite::start, AllReplicas, &[]),
        ("sentinel/quarantine", SentinelSite::start, Quarantine, &[]),
        ("sentinel/default", SentinelSite::start, Default, &[]),
        ("cluster/all_replicas", ClusterNodes::start, AllReplicas, &[]),
    ];
    let of = |(what, work, promises): Row| {
        places.into_iter().map(move |(place, on, setting, without)| {
            let promises = match (place, setting) {
                ("sentinel/default", _) => Tokens,
                (_, Default | Quarantine) => NoOverlap,
                _ => promises,
            };
            // The leases of bound locks are longer than all clock steps.
            let without = if what == "bound" { &[] } else { without };
            // On a single server all faults must happen; elsewhere those that replace a primary or move slots.
            let wants = if place == "single/default" { Wants::All } else { Wants::Failovers };
            let rounds = Rounds { on, setting, work, promises, without, wants, ..USUAL };
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
