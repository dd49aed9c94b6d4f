//! The explored worlds: worlds in which no bad state may be reachable, and for each safeguard a world without
//! it, in which a bad state must be reachable.

#![allow(clippy::print_stdout, reason = "what is explored is shown")]

use crate::world::Rule::{
    BindsAnew, BindsBefore, CountsLate, Fencing, Floor, KeepsTheOneBefore, LeaseFromSending, Offer,
    OnlyItsOwn, OwnBeats, ReadsOn, Releases, RenewalsConfirmed, SessionFromSending, StoreFenced,
    StoresConfirmed, Ttl, Unless,
};
use crate::{Plan, World};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};
use std::time::Instant;

/// A world and its expected result.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Description of the world.
    pub name: &'static str,
    world: World,
    /// The property that is violated there, if any.
    hole: Option<&'static str>,
}

const fn safe(name: &'static str, world: World) -> Row {
    Row { name, world, hole: None }
}

const fn hole(name: &'static str, property: &'static str, world: World) -> Row {
    Row { name, world, hole: Some(property) }
}

/// The property that is violated when two clients believe that they hold the lock.
const TWO: &str = "one believes";
/// The property that is violated when the work is repeated although its result exists.
const BESIDE_RESULT: &str = "no work beside a result";

const CALM: World = World::CALM;
const WAITERS: World = World { clients: &[Plan::ASKS; 3], ..CALM };
/// Each client renews with its own lease or with a shorter one, and a renewal may arrive late.
const LATE: World = World {
    clients: &[Plan { lease: 3, renews: 2, shortens: true, ..Plan::ASKS }; 2],
    ticks: 4,
    ..CALM
};
const WRITING: World = World { clients: &[Plan { writes: 1, ..Plan::ASKS }; 2], ..CALM };
/// A world with a replica, which may take over once.
const FAILOVER: World = World { servers: 2, failovers: 1, ..CALM };
const STALE: World = World { servers: 3, clients: &[Plan::ASKS; 2], ..FAILOVER };
/// The primary may be cut off, and replaced while it still runs.
const CUT: World = World { only_when_dead: false, ..FAILOVER };
/// A client with a lease so long that a renewal in its middle matters.
const LONG: Plan = Plan { lease: 2, ..Plan::RENEWS };
const WAITED_OUT: World = World { clients: &[Plan::ASKS; 2], ticks: 6, quarantine: true, ..CUT };

const RENEWED: World =
    World { clients: &[LONG; 2], confirmed: 1, breaks: &[RenewalsConfirmed], ..CUT };
/// Like `CALM`, with longer leases and more ticks.
const LONGER: World = World { clients: &[LONG; 2], ticks: 7, ..CALM };
const REPLACED: World = World { servers: 2, failovers: 1, ..LONGER };
const OF_TWO: World =
    World { clients: &[Plan { lease: 2, ..Plan::ASKS }; 2], servers: 3, ..REPLACED };

/// A client that binds the lock, and a client that requests the same lock.
const BOUND: World = World { clients: &[Plan::BOUND, Plan::ASKS], ..CALM };
/// Like `BOUND`, but the other client may open a session too.
const BESIDE: World =
    World { clients: &[Plan::BOUND, Plan { opens: 1, ..Plan::ASKS }], ticks: 4, ..CALM };
const RESTART: World =
    World { clients: &[Plan { opens: 2, ..Plan::BOUND }, Plan::ASKS], restarts: 1, ..CALM };
/// One heartbeat or one binding may be late, but not both.
const LEFT: World = World {
    clients: &[Plan { opens: 2, reads: 2, ..Plan::BOUND }, Plan::ASKS],
    breaks: &[ReadsOn],
    ..CALM
};
const MOVES: World = World { breaks: &[ReadsOn, KeepsTheOneBefore], ..LEFT };
/// Two heartbeats or bindings may be late. A late heartbeat may replace the current reader.
const ANEW: World = World {
    clients: &[Plan { opens: 2, reads: 2, gives_up: 2, ..Plan::BOUND }, Plan::ASKS],
    ..CALM
};
const SHARES: World =
    World { clients: &[Plan { downgrades: 1, ..Plan::BOUND }, Plan::ASKS], ..CALM };

/// A client that wants a result, and may produce it again when it has expired.
const ONCE: Plan = Plan { keeps: 2, asks: 2, ..Plan::ASKS };
const RESULTS: World = World { clients: &[ONCE; 2], ..CALM };
/// One of the replicas may take over from the primary. The other one then has to confirm its grants.
const COPIED: World = World {
    clients: &[Plan { keeps: 2, ..Plan::ASKS }; 2],
    servers: 3,
    failovers: 1,
    ticks: 3,
    confirmed: 1,
    freshest: true,
    ..CALM
};

/// Worlds that the tests explore.
pub const SMALL: &[Row] = &[
    safe("one server and careful clients", CALM),
    hole("a lease counted from the answer", TWO, World { breaks: &[LeaseFromSending], ..CALM }),
    safe("three clients", WAITERS),
    hole("a waiter that confirms nothing", TWO, World { breaks: &[Offer], ..WAITERS }),
    safe("a shorter renewal that arrives late", LATE),
    hole("one that is not counted on", TWO, World { breaks: &[CountsLate], ..LATE }),
    safe("a resource that looks at tokens", WRITING),
    hole("one that does not", "no stale write", World { breaks: &[Fencing], ..WRITING }),
    hole("a primary that dies with its grants", TWO, FAILOVER),
    safe("grants that a replica confirmed", World { confirmed: 1, ..FAILOVER }),
    safe("grants that are waited out", World { quarantine: true, ..FAILOVER }),
    hole("a replica without a floor", "tokens grow", World { breaks: &[Floor], ..FAILOVER }),
    hole("a stale replica", TWO, World { confirmed: 1, ..STALE }),
    safe("the freshest replica", World { confirmed: 1, freshest: true, ..STALE }),
    safe("replicas that all confirm", World { confirmed: 2, ..STALE }),
    safe("a primary that is cut off", World { confirmed: 1, ..CUT }),
    hole("one whose renewals are not confirmed", "believed is held", RENEWED),
    hole("one that goes on while it is waited for", TWO, WAITED_OUT),
    safe("one that has no replicas by then", World { min_replicas: true, ..WAITED_OUT }),
    safe("what is bound is believed no longer than its session", BOUND),
    hole(
        "a session counted from the answer",
        TWO,
        World { breaks: &[SessionFromSending], ..BOUND },
    ),
    hole("a server that ends a session early", TWO, World { breaks: &[Ttl], ..BOUND }),
    hole("what stays", "freed with its session", World { breaks: &[Releases], ..BOUND }),
    safe("a session with nothing bound to it", BESIDE),
    hole("one that frees what is bound to another", TWO, World { breaks: &[OnlyItsOwn], ..BESIDE }),
    safe("after a restart the lease counts until it is bound anew", RESTART),
    hole("a binding that counts when answered", TWO, World { breaks: &[BindsBefore], ..RESTART }),
    safe("a session that is left, and no binding is late", LEFT),
    hole("a belief that moves before the binding", TWO, MOVES),
    safe("late heartbeats", ANEW),
    hole("one of a newer session counts", TWO, World { breaks: &[OwnBeats], ..ANEW }),
    hole("a session that the server has is left", TWO, World { breaks: &[ReadsOn], ..ANEW }),
    safe("a reader that was the writer", SHARES),
    hole("one that is not bound anew", TWO, World { breaks: &[BindsAnew], ..SHARES }),
    safe("clients that want a result", RESULTS),
    hole("a result that is not looked at", BESIDE_RESULT, World { breaks: &[Unless], ..RESULTS }),
    hole(
        "a result that is stored too late",
        "results grow",
        World { breaks: &[StoreFenced], ..RESULTS },
    ),
    safe(
        "three clients that want a result",
        World { clients: &[Plan { keeps: 2, ..Plan::ASKS }; 3], ticks: 3, ..CALM },
    ),
    hole(
        "one that replaces a newer result",
        "kept is read",
        World { breaks: &[StoreFenced], ..RESULTS },
    ),
    safe("a result that a replica has", COPIED),
    hole(
        "a result that no replica has",
        BESIDE_RESULT,
        World { breaks: &[StoresConfirmed], ..COPIED },
    ),
];

/// Larger safe worlds.
pub const LARGE: &[Row] = &[
    safe("late renewals", World { ticks: 5, ..LATE }),
    safe("three clients", World { clients: &[LONG; 3], ..LONGER }),
    safe("confirmed", World { confirmed: 1, ..REPLACED }),
    safe("confirmed by all", World { confirmed: 2, ..OF_TWO }),
    safe("the freshest", World { confirmed: 1, freshest: true, ..OF_TWO }),
    safe("quarantine", World { quarantine: true, ..REPLACED }),
    safe("cut off, confirmed", World { only_when_dead: false, confirmed: 1, ..REPLACED }),
    safe(
        "cut off, quarantine",
        World { only_when_dead: false, ticks: 8, quarantine: true, min_replicas: true, ..REPLACED },
    ),
    safe("results", World { clients: &[ONCE, ONCE, Plan { keeps: 2, ..Plan::ASKS }], ..CALM }),
    safe(
        "results, confirmed",
        World { clients: &[ONCE, Plan { keeps: 2, ..Plan::ASKS }], ticks: 4, ..COPIED },
    ),
    safe("bound, restarted", World { ticks: 6, restarts: 1, ..ANEW }),
    safe(
        "bound, shared",
        World {
            clients: &[Plan { opens: 2, downgrades: 1, ..Plan::BOUND }, Plan::ASKS],
            ticks: 6,
            ..CALM
        },
    ),
];

impl Row {
    /// Returns whether no bad state may be reachable there.
    pub fn is_safe(&self) -> bool {
        self.hole.is_none()
    }

    /// Returns whether clients open sessions there.
    pub fn has_sessions(&self) -> bool {
        self.world.has_sessions()
    }

    /// Explores all states of the world, or those up to the expected violation, and prints the result.
    /// Returns the number of states, and whether the result is the expected one.
    pub fn explore(&self) -> (usize, bool) {
        let began = Instant::now();
        let builder = self.world.checker().threads(1);
        let checker = match self.hole {
            None => builder,
            Some(hole) => builder.finish_when(HasDiscoveries::AnyOf([hole].into())),
        };
        let checker = checker.spawn_bfs().join();
        let (count, depth) = (checker.unique_state_count(), checker.max_depth());
        println!("{}: {count} states, depth {depth}, in {:.0?}", self.name, began.elapsed());
        let mut good = true;
        for property in checker.model().properties() {
            let found = checker.discovery(property.name);
            let happens = matches!(property.expectation, Expectation::Sometimes);
            let is_well = match self.hole {
                Some(hole) => hole != property.name || found.is_some(),
                None => happens == found.is_some(),
            };
            good &= is_well;
            if !is_well || self.hole == Some(property.name) {
                let not = if is_well { "" } else { "NOT " };
                println!("{not}{}: {:?}", property.name, found.map(Path::into_actions));
            }
        }
        (count, good)
    }
}
