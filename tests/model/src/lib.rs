//! Explores all orders of events in small worlds of clients and servers. Checks, for example, that two clients
//! never believe at once that they hold the same lock.
//!
//! ```text
//!   client ── request, heartbeat ──►  primary ── copies, late ──►  replica(s)
//!     ▲  late, lost, or repeated      lock, queue, sessions         may be promoted, stale or not,
//!     │ ◄── answer, late or lost ──┤  (the decisions are            while the old one is dead or not
//!     │                               the core's own)
//!     └── write, late ──► resource    may restart, with its keyspace
//! ```
//!
//! A client believes that it holds the lock at most until its lease ends, or until the session ends to which
//! the lock is bound. Each safeguard can be switched off: it is a [`Rule`] that may be broken, or a setting of a
//! [`World`]. With all safeguards for a kind of failure, no bad state is reachable. With one of them off, the
//! checker must find the known violation, which shows that the checker works. [`worlds`] is the table of
//! worlds.
//!
//! In some worlds a client wants the lock only while there is no result (`UNLESS`). The holder can store a
//! result when it releases the lock (`STORE`). Once it knows that the result is stored, clients read this
//! result until it expires, and no client repeats the work.
//!
//! A tick is a millisecond of every clock. Requests, replies, copies and writes may take any time.

#![allow(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::panic,
    reason = "clients, servers and ticks are few, and a panic is how a model fails"
)]

mod client;
mod failover;
mod happen;
mod server;
mod state;
mod table;
mod turn;
mod world;
pub mod worlds;

use stateright::{Model, Property};

pub use client::Asks;
pub use state::{Action, State};
pub use world::{Plan, Rule, World};

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
            Property::always("one believes", |_, state: &State| state.believers().count() <= 1),
            // Without confirmation, a promoted replica may lack the lock of a holder.
            Property::always("believed is held", |world: &Self, state: &State| {
                world.confirmed == 0 || state.believed_is_held()
            }),
            Property::always("tokens grow", |_, state: &State| state.noted != "tokens grow"),
            Property::always("no stale write", |_, state: &State| state.noted != "no stale write"),
            Property::always("freed with its session", |_, state: &State| {
                !state.outlives_its_session()
            }),
            Property::always("no work beside a result", |_, state: &State| {
                !state.works_beside_result()
            }),
            Property::always("kept is read", |_, state: &State| state.noted != "kept is read"),
            Property::always("told of what is there", |_, state: &State| {
                state.noted != "told of what is there"
            }),
            Property::always("results grow", |_, state: &State| state.noted != "results grow"),
            // Worlds in which these events do not happen prove nothing.
            Property::sometimes("handed on", |_, state: &State| state.noted == "handed on"),
            Property::sometimes("freed early", |world: &Self, state: &State| {
                !world.has_sessions() || state.noted == "freed early"
            }),
            Property::sometimes("told", |world: &Self, state: &State| {
                !world.has_results() || state.noted == "told"
            }),
            Property::sometimes("kept by a restart", |world: &Self, state: &State| {
                world.restarts == 0 || state.noted == "kept by a restart"
            }),
        ]
    }
}
