//! The commands of those who share a lock, as methods of a connection.

use super::send;
use crate::wire::reply::{self, Grant};
use crate::wire::request::{self, GiveBack, Mode};
use redis::aio::ConnectionLike;
use redis::{RedisFuture, ToSingleRedisArg};
use std::time::Duration;

/// The commands with `SHARED`, as methods of every async connection of redis-rs: the read lock of a
/// read-write lock.
///
/// All that [`LockCommands`](crate::LockCommands) says holds here too; renewing and cancelling are
/// the same commands for both. `holds` is `HOLDS n` if it is given: how many times the owner means
/// to share the lock after this, so that the command can be sent again.
///
/// # Examples
///
/// ```no_run
/// use kvlock::SharedLockCommands;
/// use std::time::Duration;
///
/// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
/// let (reader, lease) = ("285475da-9152-4c83-822a-67ee2f116a79:1", Duration::from_secs(10));
/// if con.lock_acquire_shared("catalogue", reader, lease, None).await?.is_some() {
///     con.lock_release_shared("catalogue", reader, None).await?;
/// }
/// # Ok(()) }
/// ```
pub trait SharedLockCommands: ConnectionLike + Send + Sized {
    /// Shares the lock if that can be had at once; `None` if it cannot.
    ///
    /// # Errors
    ///
    /// Those of [`lock_acquire`](crate::LockCommands::lock_acquire).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the lock may be shared without anybody knowing, until the lease ends.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use kvlock::SharedLockCommands;
    /// # use std::time::Duration;
    /// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// let lease = Duration::from_secs(10);
    /// let grant = con.lock_acquire_shared("catalogue", "reader:1", lease, Some(1)).await?;
    /// # let _ = grant;
    /// # Ok(()) }
    /// ```
    fn lock_acquire_shared<'a>(
        &'a mut self,
        key: impl ToSingleRedisArg,
        owner: impl ToSingleRedisArg,
        lease: Duration,
        holds: Option<u32>,
    ) -> RedisFuture<'a, Option<Grant>> {
        send(self, request::acquire(Mode::Shared, key, owner, lease, holds), reply::grant)
    }

    /// Shares the lock, after those who came earlier; `None` when `timeout` has passed, which
    /// without one never happens.
    ///
    /// # Errors
    ///
    /// Those of [`lock_wait`](crate::LockCommands::lock_wait), which also says what kind of
    /// connection it takes.
    ///
    /// # Cancel safety
    ///
    /// As that of [`lock_wait`](crate::LockCommands::lock_wait).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use kvlock::SharedLockCommands;
    /// # use std::time::Duration;
    /// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// let lease = Duration::from_secs(10);
    /// let grant = con.lock_wait_shared("catalogue", "reader:1", lease, None, Some(1)).await?;
    /// # let _ = grant;
    /// # Ok(()) }
    /// ```
    fn lock_wait_shared<'a>(
        &'a mut self,
        key: impl ToSingleRedisArg,
        owner: impl ToSingleRedisArg,
        lease: Duration,
        timeout: Option<Duration>,
        holds: Option<u32>,
    ) -> RedisFuture<'a, Option<Grant>> {
        send(
            self,
            request::wait(Mode::Shared, key, owner, lease, timeout, holds, None),
            reply::grant,
        )
    }

    /// Gives back one shared hold, or with `holds` as many as leave so many. `None` if the owner
    /// does not share the lock.
    ///
    /// # Errors
    ///
    /// Those of [`lock_release`](crate::LockCommands::lock_release).
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be carried out.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use kvlock::SharedLockCommands;
    /// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// let left = con.lock_release_shared("catalogue", "reader:1", Some(0)).await?;
    /// # let _ = left;
    /// # Ok(()) }
    /// ```
    fn lock_release_shared<'a>(
        &'a mut self,
        key: impl ToSingleRedisArg,
        owner: impl ToSingleRedisArg,
        holds: Option<u32>,
    ) -> RedisFuture<'a, Option<u64>> {
        let give_back = holds.map_or(GiveBack::One, GiveBack::DownTo);
        send(self, request::release(Mode::Shared, key, owner, give_back), reply::holds_left)
    }
}

impl<C: ConnectionLike + Send> SharedLockCommands for C {}
