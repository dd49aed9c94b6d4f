//! Blocked clients: what each waits for, and what goes with its answer.

use std::cell::Cell;

use kvlock_core::{Account, Charge, Kept, Reading, Untold, WaiterId};

use crate::redis::Parked;

/// A client in a wait queue.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) client: Parked,
    /// The number by which `CLIENT LIST` knows it.
    pub(crate) client_id: u64,
    /// What it counts for its user: a blocked client, and a wait unless it reads a session.
    pub(crate) _charges: (Charge, Option<Charge>),
}

/// Estimated memory of a blocked client in bytes: the client with its two helper clients, as measured on Redis
/// 7.0. Newer servers need about two thirds of it.
const BLOCKED_BYTES: usize = 55_000;

impl Waiting {
    /// A client that waits, of this user.
    pub(crate) fn waiter(client: Parked, client_id: u64, account: &Account) -> Self {
        let wait = account.charge(Kept::Waits, 0);
        Self {
            _charges: (account.charge(Kept::Blocked, BLOCKED_BYTES), Some(wait)),
            client,
            client_id,
        }
    }

    /// A client that reads a session of this user.
    pub(crate) fn reader(client: Parked, client_id: u64, account: &Account) -> Self {
        Self { _charges: (account.charge(Kept::Blocked, BLOCKED_BYTES), None), client, client_id }
    }
}

/// What a parked client waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitsFor {
    /// A place in the queue.
    Grant(WaiterId),
    /// Outcomes of a session, and the most to send.
    Outcomes(Reading, usize),
}

/// What goes with an answer, until it is written.
#[derive(Debug)]
pub(crate) enum Note {
    /// A grant; it is taken back if it is not sent.
    Grant(Untold),
    Outcomes(Outcomes),
}

/// A reply to a reader that is on its way.
#[derive(Debug)]
pub(crate) struct Outcomes {
    pub(crate) reading: Reading,
    /// The most that it may contain.
    pub(crate) most: usize,
    /// The last outcome in it; nothing as long as it is not composed.
    pub(crate) up_to: Cell<Option<u64>>,
}

impl Outcomes {
    pub(crate) fn new(reading: Reading, most: usize) -> Self {
        Self { reading, most, up_to: Cell::new(None) }
    }
}
