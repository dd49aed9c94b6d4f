//! Explores the safe worlds further than the tests do, and ends with 1 if one of them is not.
//!
//! ```text
//! cargo run --release -p kvlock-model
//! ```

#![allow(clippy::print_stdout, reason = "it is run by hand")]

#[path = "../../harness/commit.rs"]
mod commit;

use kvlock_model::World;
use stateright::{Checker, Model};
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
    let (mut states, mut bad) = (0, false);
    for (name, world) in worlds {
        let began = Instant::now();
        let checker = world.checker().threads(1).spawn_bfs().join();
        let found = checker.discoveries();
        let wrong: Vec<_> =
            found.iter().filter(|(property, _)| **property != "handed on").collect();
        // A world in which nothing is handed on proves nothing.
        bad |= !wrong.is_empty() || !checker.is_done() || !found.contains_key("handed on");
        states += checker.unique_state_count();
        let (count, depth) = (checker.unique_state_count(), checker.max_depth());
        println!("{name}: {count} states, depth {depth}, in {:.0?}", began.elapsed());
        for (property, path) in wrong {
            println!("NOT {property}: {:?}", path.clone().into_actions());
        }
    }
    println!("{}: {states} states", commit::commit());
    if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
