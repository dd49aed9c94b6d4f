//! Builds the commands: arguments in order, times in whole milliseconds.

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ToSingleRedisArg};
use std::sync::Arc;
use std::time::Duration;

/// Ten years: the longest timeout, and the longest lease that a server can be configured to accept.
pub(crate) const LONGEST: Duration = Duration::from_millis(315_360_000_000);

/// Kind of object, and how it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// A lock, exclusively.
    Alone,
    /// A lock, shared.
    Shared,
    /// A number of permits of a semaphore.
    Permits(u32),
    /// All free permits of a semaphore.
    AllPermits,
    /// A latch: it can be waited for, but not held.
    Latch,
}

impl Mode {
    /// Returns the hold count after a first acquire.
    pub(crate) fn once(self) -> u32 {
        match self {
            // For `AllPermits` the number of permits is not known; it is at least 1.
            Self::Alone | Self::Shared | Self::AllPermits | Self::Latch => 1,
            Self::Permits(permits) => permits,
        }
    }

    /// Returns the mode after a grant, with the number of holds that the server reports.
    pub(crate) fn held(self, holds: u64) -> Self {
        match self {
            Self::AllPermits => Self::Permits(u32::try_from(holds).unwrap_or(u32::MAX)),
            Self::Alone | Self::Shared | Self::Permits(_) | Self::Latch => self,
        }
    }

    fn of<'a>(self, lock: &'a str, semaphore: &'a str, latch: &'a str) -> &'a str {
        match self {
            Self::Alone | Self::Shared => lock,
            Self::Permits(_) | Self::AllPermits => semaphore,
            Self::Latch => latch,
        }
    }

    /// Returns the argument for the number of permits: a number, or `ALL`.
    fn permits(self) -> (Option<u32>, Option<&'static str>) {
        match self {
            Self::Alone | Self::Shared | Self::Latch => (None, None),
            Self::Permits(permits) => (Some(permits), None),
            Self::AllPermits => (None, Some("ALL")),
        }
    }

    fn shared(self) -> Option<&'static str> {
        (self == Self::Shared).then_some("SHARED")
    }
}

/// Builds a command. Arguments that are `None` are left out.
macro_rules! cmd {
    ($name:expr $(, $argument:expr)* $(,)?) => {
        redis::cmd($name) $(.arg($argument))* .take()
    };
}

pub(crate) fn acquire(
    mode: Mode,
    key: impl ToSingleRedisArg,
    owner: impl ToSingleRedisArg,
    lease: Duration,
    holds: Option<u32>,
) -> RedisResult<Cmd> {
    let name = mode.of("LOCK.ACQUIRE", "SEM.ACQUIRE", "LATCH.WAIT");
    let (lease, holds) = (lease_millis(lease)?, holds.map(|holds| ("HOLDS", holds)));
    Ok(cmd!(name, key, owner, mode.permits(), lease, mode.shared(), holds))
}

pub(crate) fn wait(
    mode: Mode,
    key: impl ToSingleRedisArg,
    owner: impl ToSingleRedisArg,
    lease: Duration,
    timeout: Option<Duration>,
    holds: Option<u32>,
    session: Option<&str>,
) -> RedisResult<Cmd> {
    let name = mode.of("LOCK.WAIT", "SEM.WAIT", "LATCH.WAIT");
    let is_held = mode != Mode::Latch;
    let lease = is_held.then(|| lease_millis(lease)).transpose()?;
    let holds = holds.filter(|_| is_held).map(|holds| ("HOLDS", holds));
    let (timeout, session) = (timeout_millis(timeout)?, session.map(|id| ("SESSION", id)));
    Ok(cmd!(name, key, owner, mode.permits(), lease, timeout, mode.shared(), holds, session))
}

/// Adds `VALUE` and the owner's value to a command, if there is one.
pub(crate) fn with_value(mut cmd: Cmd, value: Option<&[u8]>) -> Cmd {
    cmd.arg(value.map(|value| ("VALUE", value))).take()
}

/// Adds `UNLESS` and the ready-key to a command, if there is a ready-key.
pub(crate) fn with_unless(mut cmd: Cmd, ready_key: Option<&[u8]>) -> Cmd {
    cmd.arg(ready_key.map(|key| ("UNLESS", key))).take()
}

/// Further locks of a command. They are granted, renewed and released together with the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Further {
    /// Locks in the mode of the command.
    pub(crate) with: Vec<Arc<[u8]>>,
    /// Locks that are shared, whatever the mode is.
    pub(crate) under: Vec<Arc<[u8]>>,
}

/// Returns all locks of a command with the mode of each, [`Mode::Shared`] for the locks of `UNDER`.
pub(crate) fn modes<'a>(
    mode: Mode,
    key: &'a [u8],
    further: Option<&'a Further>,
) -> impl Iterator<Item = (&'a [u8], Mode)> {
    let with = further.into_iter().flat_map(|further| &further.with);
    let under = further.into_iter().flat_map(|further| &further.under);
    let in_mode =
        std::iter::once(key).chain(with.map(|name| &**name)).map(move |name| (name, mode));
    in_mode.chain(under.map(|name| (&**name, Mode::Shared)))
}

/// Adds the further locks to a command, if there are any.
pub(crate) fn with_further(cmd: Cmd, further: Option<&Further>) -> Cmd {
    let Some(Further { with, under }) = further else { return cmd };
    with_keys(with_keys(cmd, "WITH", with), "UNDER", under)
}

/// Adds the option `word` with the number of keys and the keys to a command, if there are any.
pub(crate) fn with_keys(mut cmd: Cmd, word: &str, keys: &[impl AsRef<[u8]>]) -> Cmd {
    if !keys.is_empty() {
        cmd.arg(word).arg(keys.len());
    }
    for key in keys {
        cmd.arg(key.as_ref());
    }
    cmd
}

/// A result that a release stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToStore<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Time after which the server deletes it.
    pub(crate) ttl: Option<Duration>,
}

/// Adds `STORE` to a release, which then also stores a result.
pub(crate) fn with_store(mut cmd: Cmd, result: ToStore<'_>) -> RedisResult<Cmd> {
    let ttl = result.ttl.map(ttl_millis).transpose()?;
    Ok(cmd.arg(("STORE", result.key, result.value)).arg(ttl.map(|ttl| ("PX", ttl))).take())
}

pub(crate) fn get(key: impl ToSingleRedisArg) -> Cmd {
    cmd!("GET", key)
}

pub(crate) fn observe(key: impl ToSingleRedisArg, session: &str) -> Cmd {
    cmd!("LOCK.OBSERVE", key, "SESSION", session)
}

pub(crate) fn unobserve(key: impl ToSingleRedisArg, session: &str) -> Cmd {
    cmd!("LOCK.UNOBSERVE", key, "SESSION", session)
}

pub(crate) fn open_session(ttl: Duration) -> RedisResult<Cmd> {
    Ok(cmd!("SESSION.OPEN", lease_millis(ttl)?))
}

/// Builds a request for the outcomes of a session after `ack`, which waits up to `timeout` for one.
pub(crate) fn next(session: &str, ack: u64, timeout: Duration) -> RedisResult<Cmd> {
    Ok(cmd!("SESSION.NEXT", session, ack, timeout_millis(Some(timeout))?))
}

/// Builds a request for the outcomes of a session after `ack`, which does not wait.
pub(crate) fn look(session: &str, ack: u64) -> Cmd {
    cmd!("SESSION.NEXT", session, ack, 0)
}

pub(crate) fn close_session(session: &str) -> Cmd {
    cmd!("SESSION.CLOSE", session)
}

/// Number of holds or permits that a release gives back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GiveBack {
    /// One hold.
    One,
    /// All holds or permits.
    All,
    /// All permits but this number, or the one hold of a lock that exceeds this number. Gives back nothing if
    /// the owner has this number already.
    DownTo(u32),
}

pub(crate) fn release(
    mode: Mode,
    key: impl ToSingleRedisArg,
    owner: impl ToSingleRedisArg,
    give_back: GiveBack,
) -> Cmd {
    let name = mode.of("LOCK.RELEASE", "SEM.RELEASE", "LATCH.CANCEL");
    let give_back = match give_back {
        GiveBack::One => (None, None),
        GiveBack::All => (Some("ALL"), None),
        GiveBack::DownTo(holds) => (Some("HOLDS"), Some(holds)),
    };
    cmd!(name, key, owner, mode.shared(), give_back)
}

/// Builds a renewal. `token` is the smallest token that an exclusive lock must have afterwards.
pub(crate) fn renew(
    mode: Mode,
    key: impl ToSingleRedisArg,
    owner: impl ToSingleRedisArg,
    lease: Duration,
    token: Option<u64>,
) -> RedisResult<Cmd> {
    let name = mode.of("LOCK.RENEW", "SEM.RENEW", "LATCH.INFO");
    let (lease, token) = (lease_millis(lease)?, token.map(|token| ("TOKEN", token)));
    Ok(cmd!(name, key, owner, lease, token))
}

pub(crate) fn cancel(mode: Mode, key: impl ToSingleRedisArg, owner: impl ToSingleRedisArg) -> Cmd {
    cmd!(mode.of("LOCK.CANCEL", "SEM.CANCEL", "LATCH.CANCEL"), key, owner)
}

pub(crate) fn info(key: impl ToSingleRedisArg, waiters: Option<u32>) -> Cmd {
    cmd!("LOCK.INFO", key, waiters.map(|count| ("WAITERS", count)))
}

pub(crate) fn set_permits(key: impl ToSingleRedisArg, permits: u32, only_if_unset: bool) -> Cmd {
    cmd!("SEM.SET", key, permits, only_if_unset.then_some("NX"))
}

pub(crate) fn semaphore_info(key: impl ToSingleRedisArg) -> Cmd {
    cmd!("SEM.INFO", key)
}

pub(crate) fn set_latch(
    key: impl ToSingleRedisArg,
    count: u32,
    lifetime: Option<Duration>,
) -> RedisResult<Cmd> {
    let lifetime = lifetime.map(|lifetime| millis("lifetime", lifetime)).transpose()?;
    Ok(cmd!("LATCH.SET", key, count, lifetime.map(|millis| ("PX", millis))))
}

pub(crate) fn count_down(key: impl ToSingleRedisArg, participant: Option<&[u8]>) -> Cmd {
    cmd!("LATCH.COUNTDOWN", key, participant)
}

pub(crate) fn latch_info(key: impl ToSingleRedisArg) -> Cmd {
    cmd!("LATCH.INFO", key)
}

pub(crate) fn list(count: u32) -> Cmd {
    cmd!("LOCK.LIST", "COUNT", count)
}

pub(crate) fn profile(count: u32, reset: bool) -> Cmd {
    cmd!("LOCK.PROFILE", "COUNT", count, reset.then_some("RESET"))
}

pub(crate) fn force_release(key: impl ToSingleRedisArg) -> Cmd {
    cmd!("LOCK.FORCERELEASE", key)
}

fn lease_millis(lease: Duration) -> RedisResult<u64> {
    millis("lease", lease)
}

/// Returns the lifetime of a result in milliseconds.
pub(crate) fn ttl_millis(ttl: Duration) -> RedisResult<u64> {
    millis("ttl", ttl)
}

/// Returns the timeout in milliseconds, or 0 for a timeout of `None`. A timeout of zero is an error, since
/// the server would take it as no limit.
fn timeout_millis(timeout: Option<Duration>) -> RedisResult<u64> {
    timeout.map_or(Ok(0), |timeout| millis("timeout", timeout))
}

/// Returns a time in milliseconds, rounded up: a lease or wait is never shorter than requested.
fn millis(what: &str, time: Duration) -> RedisResult<u64> {
    let millis = time.as_nanos().div_ceil(1_000_000);
    match u64::try_from(millis) {
        Ok(millis) if millis > 0 && time <= LONGEST => Ok(millis),
        _ => Err(RedisError::from((
            ErrorKind::Client,
            "invalid argument",
            format!("{what} out of range: {time:?} is not 1 ms to ten years"),
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Arg;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the command as in a shell, with all bytes escaped that are not text.
    fn typed(cmd: RedisResult<Cmd>) -> String {
        let cmd = cmd.unwrap();
        let args = cmd.args_iter().map(|arg| match arg {
            Arg::Simple(bytes) => bytes.escape_ascii().to_string(),
            Arg::Cursor | _ => panic!("no cursors here"),
        });
        args.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn arguments_have_the_order_of_the_syntax() {
        assert_eq!(
            typed(acquire(Mode::Alone, "k", "alice", SECOND, None)),
            "LOCK.ACQUIRE k alice 1000"
        );
        assert_eq!(
            typed(acquire(Mode::Alone, "k", "alice", SECOND, Some(2))),
            "LOCK.ACQUIRE k alice 1000 HOLDS 2"
        );
        assert_eq!(
            typed(wait(Mode::Alone, "k", "bob", SECOND, Some(2 * SECOND), None, None)),
            "LOCK.WAIT k bob 1000 2000"
        );
        assert_eq!(
            typed(wait(Mode::Alone, "k", "bob", SECOND, None, Some(1), None)),
            "LOCK.WAIT k bob 1000 0 HOLDS 1"
        );
        assert_eq!(
            typed(Ok(release(Mode::Alone, "k", "alice", GiveBack::One))),
            "LOCK.RELEASE k alice"
        );
        assert_eq!(
            typed(Ok(release(Mode::Alone, "k", "alice", GiveBack::All))),
            "LOCK.RELEASE k alice ALL"
        );
        assert_eq!(
            typed(Ok(release(Mode::Alone, "k", "alice", GiveBack::DownTo(0)))),
            "LOCK.RELEASE k alice HOLDS 0"
        );
        assert_eq!(
            typed(acquire(Mode::Shared, "k", "alice", SECOND, Some(1))),
            "LOCK.ACQUIRE k alice 1000 SHARED HOLDS 1"
        );
        assert_eq!(
            typed(wait(Mode::Shared, "k", "bob", SECOND, None, Some(1), Some("id"))),
            "LOCK.WAIT k bob 1000 0 SHARED HOLDS 1 SESSION id"
        );
        assert_eq!(
            typed(Ok(release(Mode::Shared, "k", "alice", GiveBack::All))),
            "LOCK.RELEASE k alice SHARED ALL"
        );
        assert_eq!(
            typed(renew(Mode::Alone, "k", "alice", SECOND, None)),
            "LOCK.RENEW k alice 1000"
        );
        assert_eq!(
            typed(renew(Mode::Alone, "k", "alice", SECOND, Some(7))),
            "LOCK.RENEW k alice 1000 TOKEN 7"
        );
        assert_eq!(typed(Ok(cancel(Mode::Alone, "k", "bob"))), "LOCK.CANCEL k bob");
        assert_eq!(typed(Ok(info("k", None))), "LOCK.INFO k");
        assert_eq!(typed(Ok(info("k", Some(5)))), "LOCK.INFO k WAITERS 5");
        assert_eq!(
            typed(acquire(Mode::AllPermits, "s", "a", SECOND, Some(1))),
            "SEM.ACQUIRE s a ALL 1000 HOLDS 1"
        );
    }

    #[test]
    fn arguments_of_semaphores_latches_and_sessions() {
        let two = Mode::Permits(2);
        assert_eq!(
            typed(acquire(two, "s", "a", SECOND, Some(2))),
            "SEM.ACQUIRE s a 2 1000 HOLDS 2"
        );
        assert_eq!(typed(wait(two, "s", "a", SECOND, None, None, None)), "SEM.WAIT s a 2 1000 0");
        assert_eq!(typed(Ok(release(two, "s", "a", GiveBack::All))), "SEM.RELEASE s a ALL");
        assert_eq!(typed(renew(two, "s", "a", SECOND, None)), "SEM.RENEW s a 1000");
        assert_eq!(typed(Ok(cancel(two, "s", "a"))), "SEM.CANCEL s a");
        assert_eq!(typed(Ok(set_permits("s", 5, true))), "SEM.SET s 5 NX");
        assert_eq!(typed(set_latch("l", 3, None)), "LATCH.SET l 3");
        assert_eq!(typed(set_latch("l", 3, Some(SECOND))), "LATCH.SET l 3 PX 1000");
        assert_eq!(typed(Ok(count_down("l", None))), "LATCH.COUNTDOWN l");
        assert_eq!(typed(Ok(count_down("l", Some(b"p")))), "LATCH.COUNTDOWN l p");
        assert_eq!(
            typed(wait(Mode::Latch, "l", "w", SECOND, Some(SECOND), Some(1), Some("id"))),
            "LATCH.WAIT l w 1000 SESSION id"
        );
        assert_eq!(typed(Ok(cancel(Mode::Latch, "l", "w"))), "LATCH.CANCEL l w");
        assert_eq!(typed(open_session(SECOND)), "SESSION.OPEN 1000");
        assert_eq!(typed(next("id", 7, SECOND)), "SESSION.NEXT id 7 1000");
        assert_eq!(typed(Ok(close_session("id"))), "SESSION.CLOSE id");
        assert_eq!(typed(Ok(list(10))), "LOCK.LIST COUNT 10");
        assert_eq!(typed(Ok(profile(10, false))), "LOCK.PROFILE COUNT 10");
        assert_eq!(typed(Ok(profile(10, true))), "LOCK.PROFILE COUNT 10 RESET");
        assert_eq!(typed(Ok(force_release("k"))), "LOCK.FORCERELEASE k");
    }

    #[test]
    fn arguments_of_results() {
        let wait = wait(Mode::Alone, "r:lock", "bob", SECOND, None, Some(1), Some("id"));
        assert_eq!(
            typed(wait.map(|cmd| with_unless(cmd, Some(b"r")))),
            "LOCK.WAIT r:lock bob 1000 0 HOLDS 1 SESSION id UNLESS r"
        );
        let store = |ttl| {
            let release = release(Mode::Alone, "r:lock", "bob", GiveBack::DownTo(0));
            typed(with_store(release, ToStore { key: b"r", value: b"", ttl }))
        };
        assert_eq!(store(None), "LOCK.RELEASE r:lock bob HOLDS 0 STORE r ");
        assert_eq!(store(Some(SECOND)), "LOCK.RELEASE r:lock bob HOLDS 0 STORE r  PX 1000");
        assert!(ttl_millis(Duration::ZERO).is_err());
        assert_eq!(typed(Ok(get("r"))), "GET r");
    }

    #[test]
    fn keys_and_owners_may_be_any_bytes() {
        let key: &[u8] = b"\x00\xff k";
        let owner = vec![0_u8, 10, 13];
        assert_eq!(typed(Ok(cancel(Mode::Alone, key, &owner))), r"LOCK.CANCEL \x00\xff k \x00\n\r");
        assert_eq!(typed(Ok(cancel(Mode::Alone, String::from("k"), 7))), "LOCK.CANCEL k 7");
    }

    #[test]
    fn times_are_rounded_up_to_milliseconds() {
        for (micros, rounded) in [(1, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(lease_millis(Duration::from_micros(micros)).unwrap(), rounded);
        }
    }

    #[test]
    fn times_out_of_range_are_refused_before_sending() {
        assert_eq!(lease_millis(LONGEST).unwrap(), 315_360_000_000);
        for bad in [Duration::ZERO, LONGEST + Duration::from_nanos(1), Duration::MAX] {
            for refused in [
                acquire(Mode::Alone, "k", "a", bad, None),
                wait(Mode::Alone, "k", "a", bad, None, None, None),
                wait(Mode::Alone, "k", "a", SECOND, Some(bad), None, None),
                renew(Mode::Alone, "k", "a", bad, None),
            ] {
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::Client, "{bad:?}");
            }
        }
    }
}
