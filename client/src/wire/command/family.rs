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
/// The documentation of [`AsyncLockCommands`](crate::AsyncLockCommands) about owners, leases, connections for
/// waiting, errors and cancellation applies here too. An owner that asks again for the number of permits that it
/// holds keeps them, so every command can be repeated.
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

    /// The same, unless it was said before: `true` if it was not.
    sem_set_once(key, permits: u32) -> bool =
        Ok(request::set_permits(key, permits, true)), |said| Ok(said != Value::Nil);

    /// Takes `permits` permits if they are free. Returns the number that the owner holds then.
    sem_acquire(key, owner, permits: u32, lease: Duration) -> Option<u64> =
        request::acquire(Mode::Permits(permits), key, owner, lease, Some(permits));

    /// Takes all permits that are free. Returns their number, if there are any.
    sem_acquire_all(key, owner, lease: Duration) -> Option<u64> =
        request::acquire(Mode::AllPermits, key, owner, lease, None);

    /// Acquires `permits` permits, or waits in the queue behind earlier waiters. `None` when `timeout` has passed
    /// or the wait was cancelled.
    sem_wait(key, owner, permits: u32, lease: Duration, timeout: Option<Duration>) -> Option<u64> =
        request::wait(Mode::Permits(permits), key, owner, lease, timeout, Some(permits), None);

    /// Gives back all permits of this owner; `None` if it holds none.
    sem_release(key, owner) -> Option<u64> =
        Ok(request::release(Mode::Permits(1), key, owner, GiveBack::All));

    /// Sets the lease, which runs from now; `None` if this owner holds nothing.
    sem_renew(key, owner, lease: Duration) -> Option<Duration> =
        request::renew(Mode::Permits(1), key, owner, lease, None);

    /// Takes this owner out of the queue; `false` if it was in none.
    sem_cancel(key, owner) -> bool =
        Ok(request::cancel(Mode::Permits(1), key, owner));

    /// Returns the number of permits, and the number that is taken.
    sem_info(key) -> SemaphoreInfo =
        Ok(request::semaphore_info(key));
}
}

commands! {
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
pub trait AsyncLatchCommands {
    /// Closes a latch with that count, for that time at most; `false` if it is closed already.
    latch_set(key, count: u32, lifetime: Option<Duration>) -> bool =
        request::set_latch(key, count, lifetime), |set| Ok(set != Value::Nil);

    /// Counts down by one, once for each named participant. Returns the count that is left, `None` if the
    /// latch is open.
    latch_count_down(key, participant: Option<&[u8]>) -> Option<u64> =
        Ok(request::count_down(key, participant));

    /// Waits until the latch is open; `false` if `timeout` has passed before.
    latch_wait(key, waiter, timeout: Option<Duration>) -> bool =
        request::wait(Mode::Latch, key, waiter, Duration::ZERO, timeout, None, None), is_open;

    /// Cancels the wait of this waiter; `false` if it was not waiting.
    latch_cancel(key, waiter) -> bool =
        Ok(request::cancel(Mode::Latch, key, waiter));

    /// Returns the count that is left.
    latch_info(key) -> LatchInfo =
        Ok(request::latch_info(key));
}
}

fn is_open(answer: Value) -> Result<bool, ParsingError> {
    Ok(matches!(outcome::waited(Mode::Latch, answer)?, Queued::Open))
}
