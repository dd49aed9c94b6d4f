//! Who holds what.

use crate::wire::reply::Token;
use crate::wire::request::{self, Mode};
use redis::{Cmd, RedisResult};
use std::sync::Arc;
use std::time::Duration;

/// Who holds what, as the server knows it.
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    pub(crate) mode: Mode,
    pub(crate) key: Arc<[u8]>,
    pub(crate) owner: Arc<str>,
    pub(crate) token: Token,
    /// The token is not this server's own: each renewal sees to it that the server has it.
    pub(crate) raised: bool,
}

impl Tenure {
    /// What sets the lease anew.
    pub(crate) fn renewal(&self, lease: Duration) -> RedisResult<Cmd> {
        let (key, owner) = (&*self.key, &*self.owner);
        if self.raised {
            request::renew_with_token(key, owner, lease, self.token.value())
        } else {
            request::renew(self.mode, key, owner, lease)
        }
    }
}
