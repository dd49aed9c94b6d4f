//! What can happen to servers under load, one file for each sort of faults.
//!
//! A fault says on which topologies it can happen, and does it there. One that is new is a line in
//! the table of its file, or a file with a table that is named in `tables!`; then every suite of rounds
//! whose topology it can happen on draws it.

pub(crate) use minority::{JUMP, KILLS};
pub(crate) use options::settle;
pub(crate) use processes::RESTARTED;
pub(crate) use sessions::{STEP, STOPPED};

use crate::round::Moment;
use crate::topology::{Five, Single, Target, Topology, cast};
use harness::random::Random;

type On = fn(&dyn Topology) -> bool;
type Act = fn(&dyn Topology, &mut Moment<'_>, &mut Random);

/// Something that can happen to servers.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// How often it comes, beside the others.
    pub(crate) weight: u64,
    /// Whether it can happen there.
    pub(crate) on: On,
    pub(crate) act: Act,
}

const fn fault(name: &'static str, weight: u64, on: On, act: Act) -> Fault {
    Fault { name, weight, on, act }
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

fn fails_over(at: &dyn Topology) -> bool {
    not_of_five(at) && !on::<Single>(at) && !on::<Target>(at)
}

/// Makes [`all`] of the tables of these files.
macro_rules! tables {
    ($($file:ident),+ $(,)?) => {
        $(mod $file;)+

        /// All of them.
        pub(crate) fn all() -> impl Iterator<Item = &'static Fault> {
            [$($file::FAULTS),+].into_iter().flatten()
        }
    };
}

mod stranger;

tables!(
    clients, commands, data, keys, memory, minority, network, options, processes, roles, sessions,
);

/// One of these, drawn by their weights.
pub(crate) fn draw(faults: &[&'static Fault], random: &mut Random) -> &'static Fault {
    let mut drawn = random.below(faults.iter().map(|fault| fault.weight).sum());
    let hit = |fault: &&&Fault| {
        let hit = drawn < fault.weight;
        drawn = drawn.saturating_sub(fault.weight);
        hit
    };
    faults.iter().find(hit).expect("one of them is drawn")
}
