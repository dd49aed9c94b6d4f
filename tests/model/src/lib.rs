//! A small world of clients and servers, explored exhaustively: whatever may happen in whatever
//! order, within the limits of the world, do two clients ever believe to hold the same lock?
//!
//! ```text
//!   client ── request ──►  primary ── copies, late ──►  replica(s)
//!     ▲ ◄── answer, late ──┤  (the decisions are the     │
//!     │                    ▼   core's own)               ▼ may be promoted, stale or not,
//!     └── write, late ──► resource                         while the old one is dead or not
//! ```
//!
//! Each safeguard is a switch. With all that a kind of failure needs, no bad state is reachable;
//! with one of them off, the checker must find the hole that is known to be there: so it looks.
//! A tick is a millisecond of every clock; requests, answers, copies and writes take any time.
//!
//! | switch | without it |
//! |---|---|
//! | [`World::from_sending`] (R1) | a lease counted from a late answer outlives the server's |
//! | [`World::offer`] (R2) | so does that of a waiter, who asked long ago |
//! | [`World::counts_late`] | a shorter renewal that nobody waits for any more arrives after a longer one |
//! | [`World::confirmed`] | a primary that dies takes grants with it |
//! | [`World::freshest`] | one that has not confirmed is promoted |
//! | [`World::renewals_confirmed`] | a primary that is cut off goes on renewing |
//! | [`World::quarantine`] | a promoted replica grants what it has not heard of |
//! | [`World::min_replicas`] | a primary that is cut off goes on granting |
//! | [`World::floor`] | a promoted replica issues tokens that are not larger |
//! | [`World::fencing`] | a late write lands after that of the next holder |

#![allow(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::panic,
    reason = "clients, servers and ticks are few, and a panic is how a model fails"
)]

pub mod bound;
mod client;
mod server;
mod state;

use stateright::{Model, Property};

pub use state::{Action, State};

/// The limits of a world, and its safeguards.
#[derive(Clone, Debug)]
pub struct World {
    /// How many clients there are.
    pub clients: usize,
    /// How many servers there are; the first is the primary.
    pub servers: usize,
    /// How many ticks there are.
    pub ticks: u8,
    /// How long a lease is, in ticks.
    pub lease: u8,
    /// How often each client asks for the lock, renews it, and writes.
    pub times: [u8; 3],
    /// How often the primary may change.
    pub failovers: u8,
    /// Whether a primary is replaced only when it is dead; else it may only be cut off.
    pub only_when_dead: bool,
    /// A client counts a lease from before it sent the command that set it.
    pub from_sending: bool,
    /// A waiter is granted a short lease, and confirms it with a renewal.
    pub offer: bool,
    /// Whether renewals may be for one tick only, and may arrive when nobody waits for them any more.
    pub late: bool,
    /// A client counts on no more than the shortest renewal that may yet arrive.
    pub counts_late: bool,
    /// How many replicas must have a grant before it counts.
    pub confirmed: usize,
    /// Only a replica is promoted that no other one is ahead of.
    pub freshest: bool,
    /// Whether renewals, too, count only when they are confirmed.
    pub renewals_confirmed: bool,
    /// A promoted replica grants nothing for a lease.
    pub quarantine: bool,
    /// A primary without replicas refuses to write, one tick after it lost them.
    pub min_replicas: bool,
    /// Tokens are reserved ahead, and who takes over begins above what is reserved.
    pub floor: bool,
    /// The resource refuses tokens that are too small.
    pub fencing: bool,
}

impl World {
    /// Two clients and one server, with every rule for clients observed.
    #[must_use]
    pub fn calm() -> Self {
        Self {
            clients: 2,
            servers: 1,
            ticks: 5,
            lease: 1,
            times: [1, 1, 0],
            failovers: 0,
            only_when_dead: true,
            from_sending: true,
            offer: true,
            late: false,
            counts_late: true,
            confirmed: 0,
            freshest: false,
            renewals_confirmed: true,
            quarantine: false,
            min_replicas: false,
            floor: true,
            fencing: true,
        }
    }

    /// The same with renewals of two lengths, which may be late.
    #[must_use]
    pub fn late() -> Self {
        Self { late: true, ticks: 4, lease: 3, times: [1, 2, 0], ..Self::calm() }
    }

    /// The same as the calm one with a replica, which may take over once.
    #[must_use]
    pub fn failover() -> Self {
        Self { servers: 2, failovers: 1, ..Self::calm() }
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::begin(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        state.may_happen(self, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        next.happen(self, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one believes", |_, state: &State| state.believers() <= 1),
            // Only a quarantine lets a holder be, whom a promoted replica has not heard of.
            Property::always("believed is held", |world: &Self, state: &State| {
                world.confirmed == 0 || state.believed_is_held()
            }),
            Property::always("tokens grow", |_, state: &State| !state.token_went_back),
            Property::always("no stale write", |_, state: &State| !state.stale_write),
            // A world in which nothing happens proves nothing.
            Property::sometimes("handed on", |_, state: &State| state.was_handed_on),
        ]
    }
}
