//! Explores the safe worlds further than the tests do, and ends with 1 if one of them is not.
//!
//! ```text
//! cargo run --release -p kvlock-model
//! ```

#![allow(clippy::print_stdout, reason = "it is run by hand")]

#[path = "../../harness/commit.rs"]
mod commit;

use kvlock_model::{World, bound};
use stateright::{Checker, Expectation, Model};
use std::fmt::Debug;
use std::hash::Hash;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let calm = World { ticks: 7, lease: 2, ..World::calm() };
    let failover = World { servers: 2, failovers: 1, ..calm.clone() };
    let cut = World { only_when_dead: false, ..failover.clone() };
    let three = World { servers: 3, times: [1, 0, 0], ..failover.clone() };
    let worlds = [
        ("late renewals", World { ticks: 5, ..World::late() }),
        ("three clients", World { clients: 3, ..calm }),
        ("confirmed", World { confirmed: 1, ..failover.clone() }),
        ("confirmed by all", World { confirmed: 2, ..three.clone() }),
        ("the freshest", World { confirmed: 1, freshest: true, ..three }),
        ("quarantine", World { quarantine: true, ..failover }),
        ("cut off, confirmed", World { confirmed: 1, ..cut.clone() }),
        ("cut off, quarantine", World { ticks: 8, quarantine: true, min_replicas: true, ..cut }),
    ];
    let of_bound = bound::World { ticks: 6, ..bound::World::bound_anew() };
    let shared = bound::Client { opens: 2, downgrades: 1, ..bound::Client::BOUND };
    let clients = vec![shared, bound::Client::PLAIN];
    let of_bound = [
        ("bound, restarted", bound::World { restarts: 1, ..of_bound.clone() }),
        ("bound, shared", bound::World { clients, ..of_bound }),
    ];
    let all = worlds.map(|(name, world)| explore(name, world));
    let of_bound = of_bound.map(|(name, world)| explore(name, world));
    let all = || all.iter().chain(&of_bound);
    let states: usize = all().map(|(count, _)| count).sum();
    println!("{}: {states} states", commit::commit());
    if all().all(|(_, good)| *good) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Goes through all states of a world. How many there are, and whether all is well.
fn explore<M>(name: &str, world: M) -> (usize, bool)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let began = Instant::now();
    let checker = world.checker().threads(1).spawn_bfs().join();
    let (count, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}: {count} states, depth {depth}, in {:.0?}", began.elapsed());
    let mut good = checker.is_done();
    for property in checker.model().properties() {
        let found = checker.discovery(property.name);
        // A world in which nothing happens proves nothing.
        let is_well = matches!(property.expectation, Expectation::Sometimes) == found.is_some();
        good &= is_well;
        if !is_well {
            println!("NOT {}: {:?}", property.name, found.map(stateright::Path::into_actions));
        }
    }
    (count, good)
}
