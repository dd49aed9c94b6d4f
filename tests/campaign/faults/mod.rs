//! Faults that happen under load, one file for each kind.
//!
//! Each fault states on which topologies it can happen. To add a fault, add a line to the table of its file.
//! A suite draws from the faults of the usual class that fit its topology and that the suite does not exclude.
//! A suite must ask for faults of other classes.

mod beside;
mod clients;
mod clocks;
mod commands;
mod data;
mod harms;
mod intruders;
mod keys;
mod options;
mod places;
mod returns;
mod stale;
mod stranger;
mod twice;
mod watcher;

pub(crate) use beside::{BESIDE, Beside};
pub(crate) use clocks::{HOUR, JUMP, STEP};
pub(crate) use commands::SLOTS_MOVED;
pub(crate) use harms::{KILLS, STOPPED};
pub(crate) use options::settle;

use self::harms::Harm;
use self::stranger::Stranger;
use crate::round::Moment;
use crate::topology::{
    ClusterNodes, FiveIndependent, FuzzTarget, Pair, PairWithStrangers, SentinelSite, Single,
    Topology, cast,
};
use harness::random::Random;
use harness::resp::ReceiveError;

/// All faults except those of [`BESIDE`].
pub(crate) fn all() -> impl Iterator<Item = &'static Fault> {
    let tables = [
        clients::FAULTS,
        clocks::FAULTS,
        commands::FAULTS,
        data::FAULTS,
        harms::FAULTS,
        intruders::FAULTS,
        keys::FAULTS,
        options::FAULTS,
        places::FAULTS,
        returns::FAULTS,
        stale::FAULTS,
        watcher::FAULTS,
        twice::FAULTS,
    ];
    tables.into_iter().flatten()
}

/// A fault: what happens, where it can happen, and how often it is drawn.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// Relative frequency.
    pub(crate) weight: u64,
    /// `true` if the fault can happen on a topology.
    pub(crate) on: On,
    pub(crate) class: Class,
    /// Number of failovers that are counted for the fault.
    pub(crate) failovers: u64,
    act: Act,
}

/// Class of a fault. A suite must ask for each class except the usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Drawn by each suite that does not exclude the fault, if it fits the topology.
    Usual,
    /// A primary restarts without its data. Then grants may be lost even if replicas had confirmed them.
    Empty,
    /// An administrator deletes or flushes locks whose holders use the Rust client, or a full server evicts
    /// them.
    Stranger,
}

type On = fn(&dyn Topology) -> bool;

/// The action of a fault.
enum Act {
    /// A fault of the given number of servers, repaired after a time.
    Harm(Harm, usize, harms::Time),
    /// A fault of a primary, repaired some time after another server has replaced it.
    Replaced(Harm),
    /// An action of a stranger.
    Stranger(fn(&mut Stranger<'_>) -> Result<(), ReceiveError>),
    /// Anything else.
    Once(fn(&dyn Topology, &mut Moment<'_>, &mut Random)),
}

const fn fault(
    name: &'static str,
    weight: u64,
    on: On,
    act: fn(&dyn Topology, &mut Moment<'_>, &mut Random),
) -> Fault {
    new(name, weight, on, Act::Once(act))
}

const fn new(name: &'static str, weight: u64, on: On, act: Act) -> Fault {
    Fault { name, weight, on, class: Class::Usual, failovers: 0, act }
}

const fn by_stranger(
    name: &'static str,
    weight: u64,
    act: fn(&mut Stranger<'_>) -> Result<(), ReceiveError>,
) -> Fault {
    new(name, weight, is_a::<PairWithStrangers>, Act::Stranger(act))
}

impl Fault {
    const fn of(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    const fn replaces(mut self, failovers: u64) -> Self {
        self.failovers = failovers;
        self
    }

    pub(crate) fn happens(&self, at: &dyn Topology, moment: &mut Moment<'_>, random: &mut Random) {
        match self.act {
            Act::Harm(harm, servers, time) => harm.for_a_while(servers, time, at, moment, random),
            Act::Replaced(harm) => harm.until_replaced(at, moment, random),
            Act::Stranger(act) => Stranger::acts(at, moment, random, act),
            Act::Once(act) => act(at, moment, random),
        }
        moment.round.log.add("failovers", self.failovers);
    }
}

/// Returns whether the topology is of type `T`.
fn is_a<T: Topology>(at: &dyn Topology) -> bool {
    cast::<T>(at).is_some()
}

/// Returns whether faults may send commands to the servers of the topology. The server that receives random commands
/// is the only exception.
fn anywhere(at: &dyn Topology) -> bool {
    !is_a::<FuzzTarget>(at)
}

fn not_of_five(at: &dyn Topology) -> bool {
    !is_a::<FiveIndependent>(at)
}

fn has_proxy(at: &dyn Topology) -> bool {
    at.proxy(at.primary(&mut Random::new(0))).is_some()
}

fn is_replaced(at: &dyn Topology) -> bool {
    at.replacement(at.primary(&mut Random::new(0))).is_some()
}

fn is_replicated(at: &dyn Topology) -> bool {
    is_a::<Pair>(at) || is_a::<SentinelSite>(at) || is_a::<ClusterNodes>(at)
}

fn keeps_data(at: &dyn Topology) -> bool {
    is_replicated(at) && at.keeps_data()
}

fn forgets(at: &dyn Topology) -> bool {
    is_replicated(at) && !at.keeps_data()
}

fn fails_over(at: &dyn Topology) -> bool {
    not_of_five(at) && !is_a::<Single>(at) && !is_a::<FuzzTarget>(at)
}
