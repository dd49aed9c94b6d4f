//! Options of the commands.

use crate::wire::request::{self, GiveBack, Mode, ToStore};
use redis::{Cmd, RedisResult};
use std::time::Duration;

/// Options of an acquire or a wait. Default: exclusively, with one hold more than before.
///
/// # Examples
///
/// ```
/// use kvlock::AcquireOptions;
///
/// let reading = AcquireOptions::default().shared().holds(1);
/// # let _ = reading;
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "options do nothing until they are given to a command"]
pub struct AcquireOptions<'a> {
    pub(super) mode: Mode,
    pub(super) holds: Option<u32>,
    value: Option<&'a [u8]>,
    unless: Option<&'a [u8]>,
    set: Set<'a>,
}

/// Keys of the other locks of a command for several locks.
#[derive(Clone, Copy, Debug, Default)]
struct Set<'a> {
    with: &'a [&'a [u8]],
    under: &'a [&'a [u8]],
}

impl Set<'_> {
    fn add_to(&self, cmd: Cmd) -> Cmd {
        request::with_keys(request::with_keys(cmd, "WITH", self.with), "UNDER", self.under)
    }
}

impl Default for AcquireOptions<'_> {
    fn default() -> Self {
        Self { mode: Mode::Alone, holds: None, value: None, unless: None, set: Set::default() }
    }
}

impl<'a> AcquireOptions<'a> {
    /// Sets the mode to shared: the read lock of a read-write lock.
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Sets the number of holds after the command, 1 to 4,294,967,295. An owner with one hold less gets one
    /// more. An owner with this number of holds keeps them, so the same command can be sent again. A first
    /// acquire has 1, the reentry after it 2.
    pub fn holds(mut self, holds: u32) -> Self {
        self.holds = Some(holds);
        self
    }

    /// Sets the value of an exclusive owner, for example the address of a leader: up to 1,024
    /// bytes. `LOCK.INFO` returns it, and observers of the lock receive it. A shared lock has no value.
    pub fn value(mut self, value: &'a [u8]) -> Self {
        self.value = Some(value);
        self
    }

    /// Sets the key that stores the result of the work: the lock is acquired only if this key does not exist.
    /// If it exists, or is stored while the caller waits, the reply is `None`, and `GET` returns the result.
    /// An owner that already holds the lock re-enters all the same. In a cluster both keys must be in the same
    /// slot.
    pub fn unless(mut self, ready_key: &'a [u8]) -> Self {
        self.unless = Some(ready_key);
        self
    }

    /// Sets further locks to acquire in the same mode: all of them or none. One command can acquire up to 64
    /// locks, in a cluster all in the same slot.
    pub fn with(mut self, keys: &'a [&'a [u8]]) -> Self {
        self.set.with = keys;
        self
    }

    /// Sets further locks to share, even if the lock itself is acquired exclusively.
    pub fn under(mut self, keys: &'a [&'a [u8]]) -> Self {
        self.set.under = keys;
        self
    }

    pub(super) fn add_to(&self, cmd: Cmd) -> Cmd {
        let cmd = request::with_value(self.set.add_to(cmd), self.value);
        request::with_unless(cmd, self.unless)
    }
}

/// Options of a release: the holds to release, a result to store, and other locks to release. Default:
/// one exclusive hold, no result, and no other locks.
///
/// # Examples
///
/// ```
/// // Releases all shared holds of the owner.
/// let options = kvlock::ReleaseOptions::default().shared().all();
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "options do nothing until they are given to a command"]
pub struct ReleaseOptions<'a> {
    pub(super) mode: Mode,
    pub(super) give_back: GiveBack,
    result: Option<ToStore<'a>>,
    set: Set<'a>,
}

impl Default for ReleaseOptions<'_> {
    fn default() -> Self {
        Self { mode: Mode::Alone, give_back: GiveBack::One, result: None, set: Set::default() }
    }
}

impl<'a> ReleaseOptions<'a> {
    /// Sets the mode to shared, to release a shared lock.
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Sets the release to all holds.
    pub fn all(mut self) -> Self {
        self.give_back = GiveBack::All;
        self
    }

    /// Sets the number of holds after the release, 0 to 4,294,967,294. An owner with one hold more releases
    /// one. An owner with this number of holds keeps them, so the same command can be sent again.
    pub fn holds_left(mut self, holds: u32) -> Self {
        self.give_back = GiveBack::DownTo(holds);
        self
    }

    /// Sets a result, which is stored in the same step if the owner holds the lock. Without a `ttl` it stays
    /// until it is deleted or evicted. Waiters with that [ready-key](AcquireOptions::unless) get `None` at
    /// once.
    pub fn store(mut self, ready_key: &'a [u8], value: &'a [u8], ttl: Option<Duration>) -> Self {
        self.result = Some(ToStore { key: ready_key, value, ttl });
        self
    }

    /// Sets further locks to release, which were acquired with [`AcquireOptions::with`]. The reply is `None`
    /// if any of them is not held; the others are released.
    pub fn with(mut self, keys: &'a [&'a [u8]]) -> Self {
        self.set.with = keys;
        self
    }

    /// Sets further shared locks to release, which were acquired with [`AcquireOptions::under`].
    pub fn under(mut self, keys: &'a [&'a [u8]]) -> Self {
        self.set.under = keys;
        self
    }

    pub(super) fn add_to(&self, cmd: Cmd) -> RedisResult<Cmd> {
        let cmd = self.set.add_to(cmd);
        match self.result {
            Some(result) => request::with_store(cmd, result),
            None => Ok(cmd),
        }
    }
}
