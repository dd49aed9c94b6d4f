//! The lock table: the state that its operations keep between two calls.
//!
//! This file imports only values and stores. The operations are in the files of the layer above,
//! each with an `impl Table`: `lib.rs` lists these files.

use std::collections::VecDeque;

use crate::account::Accounts;
use crate::agenda::{Agenda, Sweep};
use crate::bindings::Bindings;
use crate::discarded::Discarded;
use crate::flight::Flights;
use crate::histogram::Histogram;
use crate::outbox::UnsentGrant;
use crate::outcome::{Counters, Limits};
use crate::profile::Profile;
use crate::quarantine::Quarantine;
use crate::queue::Queues;
use crate::sessions::Sessions;
use crate::token::TokenSource;
use crate::turns::Turns;
use crate::types::Millis;
use crate::watches::Watches;

/// The lock table. `P` identifies a client to answer.
#[derive(Debug)]
pub struct Table<P> {
    pub(crate) queues: Queues<P>,
    pub(crate) sessions: Sessions<P>,
    /// Counts what is kept for each user.
    pub(crate) accounts: Accounts,
    pub(crate) bindings: Bindings,
    pub(crate) agenda: Agenda,
    pub(crate) tokens: TokenSource,
    pub(crate) in_flight: Flights,
    /// Unfinished sweeps: see `sweep.rs`.
    pub(crate) sweeps: VecDeque<Sweep>,
    pub(crate) last_grant: u64,
    pub(crate) quarantine: Quarantine,
    pub(crate) turns: Turns,
    pub(crate) watches: Watches,
    pub(crate) rotation: Rotation,
    /// Grants that were never sent. They are taken back as soon as writing is allowed.
    pub(crate) unsent: VecDeque<UnsentGrant>,
    /// Data that no decision uses any more, freed in small steps.
    pub(crate) discarded: VecDeque<Discarded<P>>,
    /// Blocked clients to answer with `ready`.
    pub(crate) ready_clients: VecDeque<P>,
    /// Limits of waiters, blocked clients, sessions and bindings.
    pub limits: Limits,
    /// Longest time between two looks at a key that has waiters; it grows if very many keys have
    /// waiters. `None` for no such looks. Needed where keys can change without an event.
    pub look_every: Option<Millis>,
    pub(crate) counters: Counters,
    /// Waiting times of the waiters that were granted something.
    pub(crate) wait_times: Histogram,
    /// Hold times of exclusive locks that were released by their owners.
    pub(crate) hold_times: Histogram,
    pub(crate) profile: Profile,
    /// State of the random numbers for [`Self::samples_this_release`].
    pub(crate) samples: u64,
}

impl<P> Table<P> {
    /// Returns an empty table.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            queues: Queues::default(),
            sessions: Sessions::default(),
            accounts: Accounts::default(),
            bindings: Bindings::default(),
            agenda: Agenda::default(),
            tokens: TokenSource::default(),
            in_flight: Flights::default(),
            sweeps: VecDeque::new(),
            last_grant: 0,
            quarantine: Quarantine::default(),
            turns: Turns::default(),
            watches: Watches::default(),
            rotation: Rotation::default(),
            unsent: VecDeque::new(),
            discarded: VecDeque::new(),
            ready_clients: VecDeque::new(),
            limits,
            look_every: None,
            counters: Counters::default(),
            wait_times: Histogram::default(),
            hold_times: Histogram::default(),
            profile: Profile::default(),
            samples: 0,
        }
    }
}

/// Position of the scheduler in its two groups of work: see `work.rs`.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    pub(crate) pieces: u64,
    pub(crate) urgent: usize,
    pub(crate) rest: usize,
}
