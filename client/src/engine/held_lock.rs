//! Who holds what.

use crate::wire::reply::Token;
use crate::wire::request::{self, GiveBack, Mode};
use redis::{Cmd, RedisResult};
use std::sync::Arc;
use std::time::Duration;

/// Who holds what, as the server knows it.
#[derive(Clone, Debug)]
pub(crate) struct HeldLock {
    /// How.
    pub(crate) mode: Mode,
    /// The name of the lock.
    pub(crate) key: Arc<[u8]>,
    /// Who.
    pub(crate) owner: Arc<str>,
    /// As it was granted.
    pub(crate) token: Token,
}

impl HeldLock {
    /// Asks for the same, so that there are so many holds.
    pub(crate) fn acquire(&self, lease: Duration, holds: Option<u32>) -> RedisResult<Cmd> {
        request::acquire(self.mode, &*self.key, &*self.owner, lease, holds)
    }

    pub(crate) fn release(&self, give_back: GiveBack) -> Cmd {
        request::release(self.mode, &*self.key, &*self.owner, give_back)
    }
}
