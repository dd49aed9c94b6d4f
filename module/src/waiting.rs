//! Blocked clients: what each waits for, and the note that is kept with each answer until the answer is
//! written or lost.

use std::cell::Cell;

use kvlock_core::{Account, Charge, Quota, Reading, UnsentGrant, WaiterId};

use crate::redis::Parked;

/// A blocked client: a waiter in a queue, or the reader of a session.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) client: Parked,
    /// Id of the client in `CLIENT LIST`.
    pub(crate) client_id: u64,
    /// Charges to the account of the client's user: one blocked client, and one wait unless the client reads
    /// a session.
    pub(crate) _charges: (Charge, Option<Charge>),
}

/// Estimated memory of a blocked client in bytes: the client with its two helper clients, as measured on
/// Redis 7.0. Newer servers need about two thirds of it.
const BLOCKED_BYTES: usize = 55_000;

impl Waiting {
    /// Returns a waiter. Charges it to the account of its user.
    pub(crate) fn waiter(client: Parked, client_id: u64, account: &Account) -> Self {
        let wait = account.charge(Quota::Waits, 0);
        Self {
            _charges: (account.charge(Quota::Blocked, BLOCKED_BYTES), Some(wait)),
            client,
            client_id,
        }
    }

    /// Returns a reader of a session. Charges it to the account of the session's user.
    pub(crate) fn reader(client: Parked, client_id: u64, account: &Account) -> Self {
        Self { _charges: (account.charge(Quota::Blocked, BLOCKED_BYTES), None), client, client_id }
    }
}

/// What a blocked client waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitsFor {
    /// A grant, or the opening of a latch, as this waiter.
    Grant(WaiterId),
    /// Outcomes of a session, at most this number.
    Outcomes(Reading, usize),
}

/// Information that is kept with an answer until the answer is written or lost.
#[derive(Debug)]
pub(crate) enum Note {
    /// A grant. It is taken back if the answer is lost.
    Grant(UnsentGrant),
    Outcomes(Outcomes),
}

/// A reply with outcomes to the reader of a session.
#[derive(Debug)]
pub(crate) struct Outcomes {
    pub(crate) reading: Reading,
    /// Largest number of outcomes that the reply may contain.
    pub(crate) most: usize,
    /// Number of the last outcome in the reply. `None` until the reply is composed.
    pub(crate) up_to: Cell<Option<u64>>,
}

impl Outcomes {
    pub(crate) fn new(reading: Reading, most: usize) -> Self {
        Self { reading, most, up_to: Cell::new(None) }
    }
}
