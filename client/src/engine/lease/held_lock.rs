//! The identity of a held lock.

use crate::wire::reply::Token;
use crate::wire::request::{self, Further, GiveBack, Mode};
use redis::{Cmd, RedisResult};
use std::sync::Arc;
use std::time::Duration;

/// A held lock, as the server knows it.
#[derive(Clone, Debug)]
pub(crate) struct HeldLock {
    /// Kind and mode of the lock.
    pub(crate) mode: Mode,
    /// The name of the lock.
    pub(crate) key: Arc<[u8]>,
    /// Further locks that were granted by the same command.
    pub(crate) further: Option<Arc<Further>>,
    pub(crate) owner: Arc<str>,
    pub(crate) token: Token,
}

impl HeldLock {
    /// Returns the names of all locks that are held in this mode.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let further = self.further.iter().flat_map(|further| &further.with);
        std::iter::once(&self.key).chain(further).map(|key| &**key)
    }

    /// Returns the names of all locks that are held, with the mode of each.
    pub(crate) fn modes(&self) -> impl Iterator<Item = (&[u8], Mode)> {
        request::modes(self.mode, &self.key, self.further.as_deref())
    }

    /// Builds an acquire by the same owner, with the resulting number of holds.
    pub(crate) fn acquire(&self, lease: Duration, holds: Option<u32>) -> RedisResult<Cmd> {
        let request = request::acquire(self.mode, &*self.key, &*self.owner, lease, holds)?;
        Ok(self.with_further(request))
    }

    pub(crate) fn release(&self, give_back: GiveBack) -> Cmd {
        self.with_further(request::release(self.mode, &*self.key, &*self.owner, give_back))
    }

    /// Builds a release of all exclusive holds that leaves the locks of `UNDER` held.
    pub(crate) fn release_exclusive(&self) -> Cmd {
        let request = request::release(self.mode, &*self.key, &*self.owner, GiveBack::All);
        request::with_keys(request, "WITH", self.further.as_ref().map_or(&[], |all| &*all.with))
    }

    /// Builds a renewal: see [`request::renew`].
    pub(crate) fn renew(&self, lease: Duration, token: Option<u64>) -> RedisResult<Cmd> {
        let request = request::renew(self.mode, &*self.key, &*self.owner, lease, token)?;
        Ok(self.with_further(request))
    }

    fn with_further(&self, request: Cmd) -> Cmd {
        request::with_further(request, self.further.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_all_locks() {
        let named = |name: &str| Arc::from(name.as_bytes());
        let further = Further { with: vec![named("second")], under: vec![named("shared")] };
        let held = HeldLock {
            mode: Mode::Alone,
            key: named("first"),
            further: Some(Arc::new(further)),
            owner: "o:1".into(),
            token: Token::from(1),
        };
        assert!(held.keys().eq([&b"first"[..], b"second"]));
        let (alone, shared) = (Mode::Alone, Mode::Shared);
        let modes = [(&b"first"[..], alone), (b"second", alone), (b"shared", shared)];
        assert!(held.modes().eq(modes));
        let exclusive = held.release_exclusive().get_packed_command().escape_ascii().to_string();
        let named = ["first", "second", "shared"].map(|name| exclusive.contains(name));
        assert_eq!(named, [true, true, false], "{exclusive}");
        let acquire = held.acquire(Duration::from_secs(1), None).unwrap();
        let renew = held.renew(Duration::from_secs(1), None).unwrap();
        for command in [acquire, renew, held.release(GiveBack::All)] {
            let sent = command.get_packed_command().escape_ascii().to_string();
            assert!(["first", "second", "shared"].iter().all(|name| sent.contains(name)), "{sent}");
        }
    }
}
