//! Another small world: locks that are bound to sessions of their clients.
//!
//! ```text
//!   client ── binding, heartbeats: late, lost, or once more ──►  server: lock, sessions, bindings
//!     ▲ ◄────────────────── answers, late or lost ──────────────┘  (the decisions are the core's own)
//!     └── believes until the earlier of lease and session          may start anew, with its keyspace
//! ```
//!
//! Each safeguard is a switch again, and without it the checker must find the hole.
//!
//! | switch | without it |
//! |---|---|
//! | [`World::from_sending`] | a session counted from a late answer outlives the server's |
//! | [`World::server_ttl`] | one that the server ends earlier than it said |
//! | [`World::own_beats`] | a heartbeat of a newer session keeps what is bound to the one before |
//! | [`World::binds_before`] | what the server has bound, and the client does not know yet, is freed |
//! | [`World::keeps_the_one_before`] | what is bound anew is freed with the session before |
//! | [`World::reads_on`] | so is what a request binds to it that arrives late |
//! | [`World::binds_anew`] | a lock that is shared from now on is freed, and its reader believes its lease |
//! | [`World::releases`] | what is bound stays when its session is gone |
//! | [`World::only_its_own`] | a session frees what is bound to another |

mod client;
mod made;
mod server;
mod state;

use stateright::{Model, Property};

pub use state::{Action, State};

/// What a client is like, and what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// How long its leases are, in ticks.
    pub lease: u8,
    /// Whether it has its lock bound, and believes in it only then.
    pub bound: bool,
    /// How often it asks for the lock.
    pub asks: u8,
    /// How many sessions it opens.
    pub opens: u8,
    /// How often it reads one.
    pub beats: u8,
    /// How often it does not wait for an answer.
    pub gives_up: u8,
    /// How often it goes on sharing what it has.
    pub downgrades: u8,
}

impl Client {
    /// One that has its locks bound.
    pub const BOUND: Self =
        Self { lease: 5, bound: true, asks: 1, opens: 1, beats: 1, gives_up: 1, downgrades: 0 };
    /// One that opens a session and has nothing bound to it.
    pub const OTHER: Self =
        Self { lease: 1, bound: false, opens: 1, beats: 0, gives_up: 0, ..Self::BOUND };
    /// One that opens none.
    pub const PLAIN: Self = Self { opens: 0, ..Self::OTHER };
}

/// The limits of a world, and its safeguards.
#[derive(Clone, Debug)]
pub struct World {
    /// The clients.
    pub clients: Vec<Client>,
    /// How many ticks there are.
    pub ticks: u8,
    /// How long a session is kept that nobody reads.
    pub ttl: u8,
    /// How long the server keeps it.
    pub server_ttl: u8,
    /// How often the server starts anew.
    pub restarts: u8,
    /// A client counts a session from before it sent what was answered.
    pub from_sending: bool,
    /// A heartbeat keeps the session alone that was read.
    pub own_beats: bool,
    /// A lock is believed no longer than a session from before the server may bind it.
    pub binds_before: bool,
    /// And no longer than the one before until the server has.
    pub keeps_the_one_before: bool,
    /// A session is left when the server does not know it any more, and not before.
    pub reads_on: bool,
    /// What is shared from now on is bound anew before anybody believes in it.
    pub binds_anew: bool,
    /// What is bound is released when its session is gone.
    pub releases: bool,
    /// And nothing else is.
    pub only_its_own: bool,
}

impl World {
    /// Somebody who has the lock bound, and somebody who wants it next.
    #[must_use]
    pub fn calm() -> Self {
        Self {
            clients: vec![Client::BOUND, Client::PLAIN],
            ticks: 5,
            ttl: 2,
            server_ttl: 2,
            restarts: 0,
            from_sending: true,
            own_beats: true,
            binds_before: true,
            keeps_the_one_before: true,
            reads_on: true,
            binds_anew: true,
            releases: true,
            only_its_own: true,
        }
    }

    /// The same with heartbeats that are late: one of them may take over from that which is heard.
    #[must_use]
    pub fn bound_anew() -> Self {
        let twice = Client { opens: 2, beats: 2, gives_up: 2, ..Client::BOUND };
        Self { clients: vec![twice, Client::PLAIN], ..Self::calm() }
    }

    /// The same with a server that starts anew.
    #[must_use]
    pub fn restart() -> Self {
        let twice = Client { opens: 2, ..Client::BOUND };
        Self { clients: vec![twice, Client::PLAIN], restarts: 1, ..Self::calm() }
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
            Property::always("freed with its session", |_, state: &State| {
                !state.outlives_its_session()
            }),
            // Worlds in which these do not happen prove nothing.
            Property::sometimes("freed early", |_, state: &State| state.was_freed_early),
            Property::sometimes("kept by a restart", |world: &Self, state: &State| {
                world.restarts == 0 || state.was_kept
            }),
        ]
    }
}
