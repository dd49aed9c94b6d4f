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
    /// In so many cases of a hundred the lease is a part of that, not renewed, and the lock held
    /// until it is over.
    pub(super) fixed: u64,
    /// It holds a lock for any time below this.
    pub(super) hold_ms: u64,
    /// In so many cases of a hundred it holds the lock for longer than its lease: twice as long.
    pub(super) long: u64,
    /// In so many cases of a hundred it waits no longer than a part of the lease.
    pub(super) limited: u64,
    /// So many do that at once, by one client.
    pub(super) tasks: u64,
    /// The threads of its runtime.
    pub(super) threads: u64,
    /// In every second hold one of those threads is blocked once, for so long.
    pub(super) block_ms: u64,
    /// The socket of the store that it counts in while it holds a lock; none if it is empty.
    pub(super) store: String,
    /// How often it writes after a loss, without asking.
    pub(super) careless: u64,
    /// How fast the clock runs by which it counts leases: right is 100.
    pub(super) clock: u64,
    /// Decides what is left open above.
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
            store: String::new(),
            careless: 0,
            clock: 100,
            seed: 0,
        }
    }
}
