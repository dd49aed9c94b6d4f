//! The commands of semaphores and latches, as methods of a connection.

use super::send;
use crate::wire::info::{self, LatchInfo, SemaphoreInfo};
use crate::wire::outcome::{self, Queued};
use crate::wire::reply;
use crate::wire::request::{self, GiveBack, Mode};
use redis::aio::ConnectionLike;
use redis::{ParsingError, RedisFuture, ToSingleRedisArg, Value};
use std::time::Duration;

/// The `SEM.*` commands, as methods of every async connection of redis-rs.
///
/// What [`AsyncLockCommands`](crate::AsyncLockCommands) says of owners, leases, connections for waiting,
/// errors and cancelling holds here too. Whoever holds permits and asks for the same number again keeps
/// them, so every command can be repeated.
///
/// # Examples
///
/// ```no_run
/// use kvlock::AsyncSemaphoreCommands;
/// use std::time::Duration;
///
/// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
/// con.sem_set_once("licences", 5).await?;
/// let lease = Duration::from_secs(10);
/// if let Some(held) = con.sem_acquire("licences", "alice:1", 2, lease).await? {
///     println!("{held} permits");
///     con.sem_release("licences", "alice:1").await?;
/// }
/// # Ok(()) }
/// ```
pub trait AsyncSemaphoreCommands: ConnectionLike + Send + Sized {
    /// Says how many permits there are.
    fn sem_set<'a>(&'a mut self, key: impl ToSingleRedisArg, permits: u32) -> RedisFuture<'a, ()> {
        send(self, request::set_permits(key, permits, false), |_| Ok(()))
    }

    /// The same, unless it was said before: `true` if it was not.
    fn sem_set_once<'a>(
        &'a mut self,
        key: impl ToSingleRedisArg,
        permits: u32,
    ) -> RedisFuture<'a, bool> {
        send(self, request::set_permits(key, permits, true), |said| Ok(said != Value::Nil))
    }

    /// Takes so many permits if they can be had at once; how many the owner holds then.
    fn sem_acquire<'a>(
        &'a mut self,
        key: impl ToSingleRedisArg,
        owner: impl ToSingleRedisArg,
        permits: u32,
        lease: Duration,
    ) -> RedisFuture<'a, Option<u64>> {
        let request = request::acquire(Mode::Permits(permits), key, owner, lease, Some(permits));
        send(self, request, reply::holds_left)
    }

    /// Takes all permits that are free; how many they are, if any is.
    fn sem_acquire_all<'a>(
        &'a mut self,
        key: impl ToSingleRedisArg,
        owner: impl ToSingleRedisArg,
        lease: Duration,
    ) -> RedisFuture<'a, Option<u64>> {
        send(self, request::acquire(Mode::AllPermits, key, owner, lease, None), reply::holds_left)
    }

    /// Takes so many permits, in line behind those who came earlier. `None` when `timeout` has passed
    /// or the wait was cancelled.
    fn sem_wait<'a>(
        &'a mut self,
        key: impl ToSingleRedisArg,
        owner: impl ToSingleRedisArg,
        permits: u32,
        lease: Duration,
        timeout: Option<Duration>,
    ) -> RedisFuture<'a, Option<u64>> {
        let mode = Mode::Permits(permits);
        let request = request::wait(mode, key, owner, lease, timeout, Some(permits), None);
        send(self, request, reply::holds_left)
    }

    /// Gives back all permits of this owner; `None` if it holds none.
    fn sem_release<'a>(
        &'a mut self,
        key: impl ToSingleRedisArg,
        owner: impl ToSingleRedisArg,
    ) -> RedisFuture<'a, Option<u64>> {
        let request = request::release(Mode::Permits(1), key, owner, GiveBack::All);
        send(self, request, reply::holds_left)
    }

    /// Sets the lease, which runs from now; `None` if this owner holds nothing.
    fn sem_renew<'a>(
        &'a mut self,
        key: impl ToSingleRedisArg,
        owner: impl ToSingleRedisArg,
        lease: Duration,
    ) -> RedisFuture<'a, Option<Duration>> {
        send(self, request::renew(Mode::Permits(1), key, owner, lease), reply::lease)
    }

    /// Takes this owner out of the queue; `false` if it was in none.
    fn sem_cancel<'a>(
        &'a mut self,
        key: impl ToSingleRedisArg,
        owner: impl ToSingleRedisArg,
    ) -> RedisFuture<'a, bool> {
        send(self, request::cancel(Mode::Permits(1), key, owner), reply::done)
    }

    /// Says how many permits there are, and how many are taken.
    fn sem_info<'a>(&'a mut self, key: impl ToSingleRedisArg) -> RedisFuture<'a, SemaphoreInfo> {
        send(self, request::semaphore_info(key), info::semaphore)
    }
}

impl<C: ConnectionLike + Send> AsyncSemaphoreCommands for C {}

/// The `LATCH.*` commands, as methods of every async connection of redis-rs.
///
/// # Examples
///
/// ```no_run
/// use kvlock::AsyncLatchCommands;
///
/// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
/// con.latch_set("batch:7", 2, None).await?;
/// con.latch_count_down("batch:7", Some(b"worker:1")).await?; // counts once, however often it is sent
/// let left = con.latch_count_down("batch:7", Some(b"worker:2")).await?;
/// assert_eq!(left, Some(0));
/// assert!(con.latch_wait("batch:7", "me:1", None).await?); // it is open
/// # Ok(()) }
/// ```
pub trait AsyncLatchCommands: ConnectionLike + Send + Sized {
    /// Closes a latch with that count, for that time at most; `false` if it is closed already.
    fn latch_set<'a>(
        &'a mut self,
        key: impl ToSingleRedisArg,
        count: u32,
        lifetime: Option<Duration>,
    ) -> RedisFuture<'a, bool> {
        send(self, request::set_latch(key, count, lifetime), |set| Ok(set != Value::Nil))
    }

    /// Counts down by one, once for each participant that is named; how many are left, `None` if the
    /// latch is open.
    fn latch_count_down<'a>(
        &'a mut self,
        key: impl ToSingleRedisArg,
        participant: Option<&[u8]>,
    ) -> RedisFuture<'a, Option<u64>> {
        send(self, Ok(request::count_down(key, participant)), reply::holds_left)
    }

    /// Waits until the latch is open; `false` if `timeout` has passed before.
    fn latch_wait<'a>(
        &'a mut self,
        key: impl ToSingleRedisArg,
        waiter: impl ToSingleRedisArg,
        timeout: Option<Duration>,
    ) -> RedisFuture<'a, bool> {
        let request = request::wait(Mode::Latch, key, waiter, Duration::ZERO, timeout, None, None);
        send(self, request, is_open)
    }

    /// Takes this waiter out of those who wait; `false` if it was none of them.
    fn latch_cancel<'a>(
        &'a mut self,
        key: impl ToSingleRedisArg,
        waiter: impl ToSingleRedisArg,
    ) -> RedisFuture<'a, bool> {
        send(self, request::cancel(Mode::Latch, key, waiter), reply::done)
    }

    /// Says how many are still to count down.
    fn latch_info<'a>(&'a mut self, key: impl ToSingleRedisArg) -> RedisFuture<'a, LatchInfo> {
        send(self, Ok(request::latch_info(key)), info::latch)
    }
}

impl<C: ConnectionLike + Send> AsyncLatchCommands for C {}

fn is_open(answer: Value) -> Result<bool, ParsingError> {
    Ok(matches!(outcome::waited(Mode::Latch, answer)?, Queued::Open))
}
