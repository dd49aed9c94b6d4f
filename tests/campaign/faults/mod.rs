//! What can happen to servers under load, one file for each sort of faults.
//!
//! A fault says on which topologies it can happen, and does it there. One that is new is a line in
//! the table of its file; then every suite of rounds whose topology it can happen on draws it.

mod clients;
mod clocks;
mod commands;
mod data;
mod harms;
mod keys;
mod options;
mod places;
mod returns;
mod stranger;
mod watcher;

pub(crate) use clocks::{HOUR, JUMP, STEP};
pub(crate) use commands::RESTARTED;
pub(crate) use harms::{KILLS, STOPPED};
pub(crate) use options::settle;

use self::harms::Harm;
use self::stranger::Stranger;
use crate::round::Moment;
use crate::topology::{Five, Single, Strangers, Target, Topology, cast};
use harness::random::Random;
use harness::resp::ReceiveError;

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Fault> {
    let tables = [
        clients::FAULTS,
        clocks::FAULTS,
        commands::FAULTS,
        data::FAULTS,
        harms::FAULTS,
        keys::FAULTS,
        options::FAULTS,
        places::FAULTS,
        returns::FAULTS,
        watcher::FAULTS,
    ];
    tables.into_iter().flatten()
}

/// Something that can happen to servers.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// How often it comes, beside the others.
    pub(crate) weight: u64,
    /// Whether it can happen there.
    pub(crate) on: On,
    act: Act,
}

type On = fn(&dyn Topology) -> bool;

/// What happens.
enum Act {
    /// So many servers are harmed, and mended after a time.
    Harm(Harm, usize, harms::Time),
    /// A primary is harmed, and mended when another has taken its place.
    Replaced(Harm),
    /// A stranger does that.
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
    Fault { name, weight, on, act: Act::Once(act) }
}

const fn by_stranger(
    name: &'static str,
    weight: u64,
    act: fn(&mut Stranger<'_>) -> Result<(), ReceiveError>,
) -> Fault {
    Fault { name, weight, on: on::<Strangers>, act: Act::Stranger(act) }
}

impl Fault {
    pub(crate) fn happens(&self, at: &dyn Topology, moment: &mut Moment<'_>, random: &mut Random) {
        match self.act {
            Act::Harm(harm, servers, time) => harm.for_a_while(servers, time, at, moment, random),
            Act::Replaced(harm) => harm.until_replaced(at, moment, random),
            Act::Stranger(act) => Stranger::acts(at, moment, random, act),
            Act::Once(act) => act(at, moment, random),
        }
    }
}

/// On servers of that sort.
fn on<T: Topology>(at: &dyn Topology) -> bool {
    cast::<T>(at).is_some()
}

/// Where a command gets through.
fn anywhere(at: &dyn Topology) -> bool {
    !on::<Target>(at)
}

fn not_of_five(at: &dyn Topology) -> bool {
    !on::<Five>(at)
}

fn has_proxy(at: &dyn Topology) -> bool {
    at.proxy(at.primary(&mut Random::new(0))).is_some()
}

fn is_replaced(at: &dyn Topology) -> bool {
    at.replacement(at.primary(&mut Random::new(0))).is_some()
}

fn fails_over(at: &dyn Topology) -> bool {
    not_of_five(at) && !on::<Single>(at) && !on::<Target>(at)
}
