//! The commands of semaphores and latches, as methods of a connection.

use super::send;
use crate::wire::info::{LatchInfo, SemaphoreInfo};
use crate::wire::outcome::{self, Queued};
use crate::wire::reply;
use crate::wire::request::{self, GiveBack, Mode};
use redis::aio::ConnectionLike;
use redis::{ParsingError, RedisFuture, ToSingleRedisArg, Value};
use std::time::Duration;

commands! {
/// The `SEM.*` commands, as methods of every async connection of redis-rs.
///
/// The documentation of [`AsyncLockCommands`](crate::AsyncLockCommands) about owners, leases, connections
/// for waiting, errors and cancellation applies here too. An owner that asks again for the number of permits
/// that it holds gets no more, so these commands can be repeated. The exception is
/// [`sem_acquire_all`](Self::sem_acquire_all): a repetition also acquires permits that have become free.
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
pub trait AsyncSemaphoreCommands {
    /// Sets the number of permits.
    sem_set(key, permits: u32) -> () =
        Ok(request::set_permits(key, permits, false)), |_| Ok(());

    /// Sets the number of permits, unless it is set already. Returns `true` if this call set it.
    sem_set_once(key, permits: u32) -> bool =
        Ok(request::set_permits(key, permits, true)), |said| Ok(said != Value::Nil);

    /// Acquires `permits` permits if they are free and no other client waits. Returns the number that the
    /// owner holds then, or `None`.
    sem_acquire(key, owner, permits: u32, lease: Duration) -> Option<u64> =
        request::acquire(Mode::Permits(permits), key, owner, lease, Some(permits));

    /// Acquires all permits that are free, if no other client waits. Returns the number that the owner holds
    /// then, or `None` if it acquired none.
    sem_acquire_all(key, owner, lease: Duration) -> Option<u64> =
        request::acquire(Mode::AllPermits, key, owner, lease, None);

    /// Acquires `permits` permits, or waits in the queue behind earlier waiters. Returns the number that the
    /// owner holds then, or `None` when `timeout` has passed or the wait was cancelled.
    sem_wait(key, owner, permits: u32, lease: Duration, timeout: Option<Duration>) -> Option<u64> =
        request::wait(Mode::Permits(permits), key, owner, lease, timeout, Some(permits), None);

    /// Releases all permits of this owner, and returns 0. Returns `None` if it holds none.
    sem_release(key, owner) -> Option<u64> =
        Ok(request::release(Mode::Permits(1), key, owner, GiveBack::All));

    /// Sets the lease, which runs from now, and returns it. Returns `None` if this owner holds nothing.
    sem_renew(key, owner, lease: Duration) -> Option<Duration> =
        request::renew(Mode::Permits(1), key, owner, lease, None);

    /// Removes this owner from the queue. Returns `false` if it was not in the queue.
    sem_cancel(key, owner) -> bool =
        Ok(request::cancel(Mode::Permits(1), key, owner));

    /// Returns the numbers of permits, of held permits, of holders and of waiters.
    sem_info(key) -> SemaphoreInfo =
        Ok(request::semaphore_info(key));
}
}

commands! {
/// The `LATCH.*` commands, as methods of every async connection of redis-rs.
///
/// The documentation of [`AsyncLockCommands`](crate::AsyncLockCommands) about connections for waiting, errors
/// and cancellation applies here too.
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
pub trait AsyncLatchCommands {
    /// Sets a latch to `count`, for at most `lifetime`. Returns `false`, and changes nothing, if the latch is
    /// already counting.
    latch_set(key, count: u32, lifetime: Option<Duration>) -> bool =
        request::set_latch(key, count, lifetime), |set| Ok(set != Value::Nil);

    /// Counts down by one. A named participant counts only once. Returns the count that is left, 0 if this
    /// call opened the latch. Returns `None` if the latch was open already.
    latch_count_down(key, participant: Option<&[u8]>) -> Option<u64> =
        Ok(request::count_down(key, participant));

    /// Waits until the latch is open. Returns `false` if `timeout` has passed before that, or if the wait was
    /// cancelled.
    latch_wait(key, waiter, timeout: Option<Duration>) -> bool =
        request::wait(Mode::Latch, key, waiter, Duration::ZERO, timeout, None, None), is_open;

    /// Cancels the wait of this waiter. Returns `false` if it was not waiting.
    latch_cancel(key, waiter) -> bool =
        Ok(request::cancel(Mode::Latch, key, waiter));

    /// Returns the count that is left, and the numbers of participants and waiters.
    latch_info(key) -> LatchInfo =
        Ok(request::latch_info(key));
}
}

fn is_open(answer: Value) -> Result<bool, ParsingError> {
    Ok(matches!(outcome::waited(Mode::Latch, answer)?, Queued::Open))
}
