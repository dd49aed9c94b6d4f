//! Commands as they are sent: arguments in order, times in whole milliseconds.

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ToSingleRedisArg};
use std::time::Duration;

/// Ten years: the longest lease or timeout that a server can be configured to take.
const MILLIS_MAX: u128 = 315_360_000_000;

/// What is held, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// A lock.
    Alone,
    /// A lock, with others who share it.
    Shared,
    /// So many permits of a semaphore.
    Permits(u32),
    /// As many permits as are free.
    AllPermits,
    /// Nothing: latches are only waited for.
    Latch,
}

impl Mode {
    /// What `HOLDS` says when somebody who held nothing has it.
    pub(crate) fn once(self) -> u32 {
        match self {
            // Of all that are free at least one, whose number nobody knows.
            Self::Alone | Self::Shared | Self::AllPermits | Self::Latch => 1,
            Self::Permits(permits) => permits,
        }
    }

    /// What is held when the server says that it is so much.
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
}

pub(crate) fn acquire(
    mode: Mode,
    key: impl ToSingleRedisArg,
    owner: impl ToSingleRedisArg,
    lease: Duration,
    holds: Option<u32>,
) -> RedisResult<Cmd> {
    let mut cmd = start(mode.of("LOCK.ACQUIRE", "SEM.ACQUIRE", "LATCH.WAIT"), key);
    cmd.arg(owner);
    permits(&mut cmd, mode).arg(lease_millis(lease)?);
    Ok(with_holds(in_mode(cmd, mode), holds))
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
    let mut cmd = start(mode.of("LOCK.WAIT", "SEM.WAIT", "LATCH.WAIT"), key);
    cmd.arg(owner);
    if mode != Mode::Latch {
        permits(&mut cmd, mode).arg(lease_millis(lease)?);
    }
    cmd.arg(timeout_millis(timeout)?);
    let mut cmd = with_holds(in_mode(cmd, mode), holds.filter(|_| mode != Mode::Latch));
    if let Some(session) = session {
        cmd.arg("SESSION").arg(session);
    }
    Ok(cmd)
}

/// The same with what the owner says of itself.
pub(crate) fn with_value(mut cmd: Cmd, value: Option<&[u8]>) -> Cmd {
    if let Some(value) = value {
        cmd.arg("VALUE").arg(value);
    }
    cmd
}

pub(crate) fn observe(key: impl ToSingleRedisArg, session: &str) -> Cmd {
    let mut cmd = start("LOCK.OBSERVE", key);
    cmd.arg("SESSION").arg(session);
    cmd
}

pub(crate) fn unobserve(key: impl ToSingleRedisArg, session: &str) -> Cmd {
    let mut cmd = start("LOCK.UNOBSERVE", key);
    cmd.arg("SESSION").arg(session);
    cmd
}

pub(crate) fn open_session(ttl: Duration) -> RedisResult<Cmd> {
    Ok(start("SESSION.OPEN", lease_millis(ttl)?))
}

/// What has become of the waits of a session, after that one.
pub(crate) fn next(session: &str, ack: u64, timeout: Duration) -> RedisResult<Cmd> {
    let mut cmd = start("SESSION.NEXT", session);
    cmd.arg(ack).arg(timeout_millis(Some(timeout))?);
    Ok(cmd)
}

pub(crate) fn close_session(session: &str) -> Cmd {
    start("SESSION.CLOSE", session)
}

/// How much a release gives back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GiveBack {
    /// One hold.
    One,
    /// All that there is.
    All,
    /// As much as leaves the owner with this many holds.
    DownTo(u32),
}

pub(crate) fn release(
    mode: Mode,
    key: impl ToSingleRedisArg,
    owner: impl ToSingleRedisArg,
    give_back: GiveBack,
) -> RedisResult<Cmd> {
    let mut cmd = start(mode.of("LOCK.RELEASE", "SEM.RELEASE", "LATCH.CANCEL"), key);
    cmd.arg(owner);
    let mut cmd = in_mode(cmd, mode);
    Ok(match give_back {
        GiveBack::One => cmd,
        GiveBack::All => {
            cmd.arg("ALL");
            cmd
        }
        GiveBack::DownTo(holds) => with_holds(cmd, Some(holds)),
    })
}

pub(crate) fn renew(
    mode: Mode,
    key: impl ToSingleRedisArg,
    owner: impl ToSingleRedisArg,
    lease: Duration,
) -> RedisResult<Cmd> {
    let mut cmd = start(mode.of("LOCK.RENEW", "SEM.RENEW", "LATCH.INFO"), key);
    cmd.arg(owner).arg(lease_millis(lease)?);
    Ok(cmd)
}

/// The same for who holds it alone, with the least that its token is to be.
pub(crate) fn renew_with_token(
    key: impl ToSingleRedisArg,
    owner: impl ToSingleRedisArg,
    lease: Duration,
    token: u64,
) -> RedisResult<Cmd> {
    let mut cmd = renew(Mode::Alone, key, owner, lease)?;
    cmd.arg("TOKEN").arg(token);
    Ok(cmd)
}

pub(crate) fn cancel(
    mode: Mode,
    key: impl ToSingleRedisArg,
    owner: impl ToSingleRedisArg,
) -> RedisResult<Cmd> {
    let mut cmd = start(mode.of("LOCK.CANCEL", "SEM.CANCEL", "LATCH.CANCEL"), key);
    cmd.arg(owner);
    Ok(cmd)
}

pub(crate) fn info(key: impl ToSingleRedisArg, waiters: Option<u32>) -> RedisResult<Cmd> {
    let mut cmd = start("LOCK.INFO", key);
    if let Some(count) = waiters {
        cmd.arg("WAITERS").arg(count);
    }
    Ok(cmd)
}

pub(crate) fn set_permits(
    key: impl ToSingleRedisArg,
    permits: u32,
    only_if_unset: bool,
) -> RedisResult<Cmd> {
    let mut cmd = start("SEM.SET", key);
    cmd.arg(permits);
    if only_if_unset {
        cmd.arg("NX");
    }
    Ok(cmd)
}

pub(crate) fn semaphore_info(key: impl ToSingleRedisArg) -> RedisResult<Cmd> {
    Ok(start("SEM.INFO", key))
}

pub(crate) fn set_latch(
    key: impl ToSingleRedisArg,
    count: u32,
    lifetime: Option<Duration>,
) -> RedisResult<Cmd> {
    let mut cmd = start("LATCH.SET", key);
    cmd.arg(count);
    if let Some(lifetime) = lifetime {
        cmd.arg("PX").arg(timeout_millis(Some(lifetime))?);
    }
    Ok(cmd)
}

pub(crate) fn count_down(key: impl ToSingleRedisArg, participant: Option<&[u8]>) -> Cmd {
    let mut cmd = start("LATCH.COUNTDOWN", key);
    if let Some(participant) = participant {
        cmd.arg(participant);
    }
    cmd
}

pub(crate) fn latch_info(key: impl ToSingleRedisArg) -> Cmd {
    start("LATCH.INFO", key)
}

pub(crate) fn list(count: u32) -> RedisResult<Cmd> {
    let mut cmd = redis::cmd("LOCK.LIST");
    cmd.arg("COUNT").arg(count);
    Ok(cmd)
}

pub(crate) fn profile(count: u32, reset: bool) -> Cmd {
    let mut cmd = redis::cmd("LOCK.PROFILE");
    cmd.arg("COUNT").arg(count);
    if reset {
        cmd.arg("RESET");
    }
    cmd
}

pub(crate) fn force_release(key: impl ToSingleRedisArg) -> RedisResult<Cmd> {
    Ok(start("LOCK.FORCERELEASE", key))
}

fn start(name: &str, key: impl ToSingleRedisArg) -> Cmd {
    let mut cmd = redis::cmd(name);
    cmd.arg(key);
    cmd
}

fn permits(cmd: &mut Cmd, mode: Mode) -> &mut Cmd {
    match mode {
        Mode::Alone | Mode::Shared | Mode::Latch => cmd,
        Mode::Permits(permits) => cmd.arg(permits),
        Mode::AllPermits => cmd.arg("ALL"),
    }
}

fn in_mode(mut cmd: Cmd, mode: Mode) -> Cmd {
    if mode == Mode::Shared {
        cmd.arg("SHARED");
    }
    cmd
}

fn with_holds(mut cmd: Cmd, holds: Option<u32>) -> Cmd {
    if let Some(holds) = holds {
        cmd.arg("HOLDS").arg(holds);
    }
    cmd
}

fn lease_millis(lease: Duration) -> RedisResult<u64> {
    whole_millis(lease).ok_or_else(|| out_of_range("lease out of range: 1 ms to ten years"))
}

/// On the wire 0 means without limit, so a timeout of zero cannot be said. It is refused rather
/// than turned into its opposite.
fn timeout_millis(timeout: Option<Duration>) -> RedisResult<u64> {
    timeout.map_or(Ok(0), |timeout| {
        whole_millis(timeout)
            .ok_or_else(|| out_of_range("timeout out of range: 1 ms to ten years, or None"))
    })
}

/// Rounds up: a lease or wait is never shorter than was asked for.
fn whole_millis(duration: Duration) -> Option<u64> {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    (1..=MILLIS_MAX).contains(&millis).then(|| u64::try_from(millis).ok())?
}

fn out_of_range(message: &'static str) -> RedisError {
    RedisError::from((ErrorKind::Client, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Arg;

    const SECOND: Duration = Duration::from_secs(1);

    /// The command as one would type it, bytes that are not text escaped.
    fn typed(cmd: RedisResult<Cmd>) -> String {
        let cmd = cmd.unwrap();
        let args = cmd.args_iter().map(|arg| match arg {
            Arg::Simple(bytes) => bytes.escape_ascii().to_string(),
            Arg::Cursor | _ => panic!("no cursors here"),
        });
        args.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn arguments_are_in_the_order_of_the_command() {
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
            typed(release(Mode::Alone, "k", "alice", GiveBack::One)),
            "LOCK.RELEASE k alice"
        );
        assert_eq!(
            typed(release(Mode::Alone, "k", "alice", GiveBack::All)),
            "LOCK.RELEASE k alice ALL"
        );
        assert_eq!(
            typed(release(Mode::Alone, "k", "alice", GiveBack::DownTo(0))),
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
            typed(release(Mode::Shared, "k", "alice", GiveBack::All)),
            "LOCK.RELEASE k alice SHARED ALL"
        );
        assert_eq!(typed(renew(Mode::Alone, "k", "alice", SECOND)), "LOCK.RENEW k alice 1000");
        assert_eq!(
            typed(renew_with_token("k", "alice", SECOND, 7)),
            "LOCK.RENEW k alice 1000 TOKEN 7"
        );
        assert_eq!(typed(cancel(Mode::Alone, "k", "bob")), "LOCK.CANCEL k bob");
        assert_eq!(typed(info("k", None)), "LOCK.INFO k");
        assert_eq!(typed(info("k", Some(5))), "LOCK.INFO k WAITERS 5");
        assert_eq!(
            typed(acquire(Mode::AllPermits, "s", "a", SECOND, Some(1))),
            "SEM.ACQUIRE s a ALL 1000 HOLDS 1"
        );
    }

    #[test]
    fn arguments_of_semaphores_latches_and_sessions_too() {
        let two = Mode::Permits(2);
        assert_eq!(
            typed(acquire(two, "s", "a", SECOND, Some(2))),
            "SEM.ACQUIRE s a 2 1000 HOLDS 2"
        );
        assert_eq!(typed(wait(two, "s", "a", SECOND, None, None, None)), "SEM.WAIT s a 2 1000 0");
        assert_eq!(typed(release(two, "s", "a", GiveBack::All)), "SEM.RELEASE s a ALL");
        assert_eq!(typed(renew(two, "s", "a", SECOND)), "SEM.RENEW s a 1000");
        assert_eq!(typed(cancel(two, "s", "a")), "SEM.CANCEL s a");
        assert_eq!(typed(set_permits("s", 5, true)), "SEM.SET s 5 NX");
        assert_eq!(typed(set_latch("l", 3, None)), "LATCH.SET l 3");
        assert_eq!(typed(set_latch("l", 3, Some(SECOND))), "LATCH.SET l 3 PX 1000");
        assert_eq!(typed(Ok(count_down("l", None))), "LATCH.COUNTDOWN l");
        assert_eq!(typed(Ok(count_down("l", Some(b"p")))), "LATCH.COUNTDOWN l p");
        assert_eq!(
            typed(wait(Mode::Latch, "l", "w", SECOND, Some(SECOND), Some(1), Some("id"))),
            "LATCH.WAIT l w 1000 SESSION id"
        );
        assert_eq!(typed(cancel(Mode::Latch, "l", "w")), "LATCH.CANCEL l w");
        assert_eq!(typed(open_session(SECOND)), "SESSION.OPEN 1000");
        assert_eq!(typed(next("id", 7, SECOND)), "SESSION.NEXT id 7 1000");
        assert_eq!(typed(Ok(close_session("id"))), "SESSION.CLOSE id");
        assert_eq!(typed(list(10)), "LOCK.LIST COUNT 10");
        assert_eq!(typed(Ok(profile(10, false))), "LOCK.PROFILE COUNT 10");
        assert_eq!(typed(Ok(profile(10, true))), "LOCK.PROFILE COUNT 10 RESET");
        assert_eq!(typed(force_release("k")), "LOCK.FORCERELEASE k");
    }

    #[test]
    fn keys_and_owners_may_be_any_bytes() {
        let key: &[u8] = b"\x00\xff k";
        let owner = vec![0_u8, 10, 13];
        assert_eq!(typed(cancel(Mode::Alone, key, &owner)), r"LOCK.CANCEL \x00\xff k \x00\n\r");
        assert_eq!(typed(cancel(Mode::Alone, String::from("k"), 7)), "LOCK.CANCEL k 7");
    }

    #[test]
    fn times_are_rounded_up_to_milliseconds() {
        assert_eq!(whole_millis(Duration::from_nanos(1)), Some(1));
        assert_eq!(whole_millis(Duration::from_micros(1000)), Some(1));
        assert_eq!(whole_millis(Duration::from_micros(1001)), Some(2));
    }

    #[test]
    fn times_out_of_range_are_refused_before_sending() {
        let ten_years = Duration::from_millis(315_360_000_000);
        assert_eq!(whole_millis(ten_years), Some(315_360_000_000));
        for bad in [Duration::ZERO, ten_years + Duration::from_nanos(1), Duration::MAX] {
            for refused in [
                acquire(Mode::Alone, "k", "a", bad, None),
                wait(Mode::Alone, "k", "a", bad, None, None, None),
                wait(Mode::Alone, "k", "a", SECOND, Some(bad), None, None),
                renew(Mode::Alone, "k", "a", bad),
            ] {
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::Client, "{bad:?}");
            }
        }
    }
}
