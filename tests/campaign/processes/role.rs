//! What a client process is to do; it is told by a word of its command line.

use serde::{Deserialize, Serialize};

/// What a client process is to do, again and again, until it is killed.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Role {
    /// The address of the server.
    pub(super) address: String,
    /// The locks that it takes, with a comma between them: any of them each time.
    pub(super) keys: String,
    /// The lease of the locks that it holds, which is renewed.
    pub(super) lease_ms: u64,
    /// Percentage of grants with a shorter lease that is not renewed: the lock is held until it has
    /// expired.
    pub(super) fixed: u64,
    /// The longest time for which a lock is held; most are held for less.
    pub(super) hold_ms: u64,
    /// Percentage of grants that are held for twice the lease.
    pub(super) long: u64,
    /// Percentage of waits with a timeout, which is shorter than the lease.
    pub(super) limited: u64,
    /// Concurrent tasks of the one client.
    pub(super) tasks: u64,
    /// The threads of its runtime.
    pub(super) threads: u64,
    /// For how long one of those threads is blocked, in every second hold.
    pub(super) block_ms: u64,
    /// The port of the store in which it counts while it holds a lock; 0: none.
    pub(super) store: u16,
    /// Writes after a loss, without asking the guard.
    pub(super) careless: u64,
    /// Speed of the clock by which it counts leases, in percent.
    pub(super) clock: u64,
    /// The seed of all that is random above.
    pub(super) seed: u64,
}

impl Role {
    /// One that waits for the lock as long as it takes, and holds it until it is lost.
    pub(super) fn new(keys: impl Into<String>, lease_ms: u64) -> Self {
        Self {
            address: String::new(),
            keys: keys.into(),
            lease_ms,
            fixed: 0,
            hold_ms: u64::MAX,
            long: 0,
            limited: 0,
            tasks: 1,
            threads: 1,
            block_ms: 0,
            store: 0,
            careless: 0,
            clock: 100,
            seed: 0,
        }
    }
}
