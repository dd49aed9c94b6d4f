//! The identity of a held lock.

use crate::wire::reply::Token;
use crate::wire::request::{self, GiveBack, Mode};
use redis::{Cmd, RedisResult};
use std::sync::Arc;
use std::time::Duration;

/// A held lock, as the server knows it.
#[derive(Clone, Debug)]
pub(crate) struct HeldLock {
    /// Its kind and mode.
    pub(crate) mode: Mode,
    /// The name of the lock.
    pub(crate) key: Arc<[u8]>,
    /// Its owner.
    pub(crate) owner: Arc<str>,
    /// The token of the grant.
    pub(crate) token: Token,
}

impl HeldLock {
    /// Builds an acquire by the same owner, with the resulting number of holds.
    pub(crate) fn acquire(&self, lease: Duration, holds: Option<u32>) -> RedisResult<Cmd> {
        request::acquire(self.mode, &*self.key, &*self.owner, lease, holds)
    }

    pub(crate) fn release(&self, give_back: GiveBack) -> Cmd {
        request::release(self.mode, &*self.key, &*self.owner, give_back)
    }
}
