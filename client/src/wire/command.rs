//! The commands as methods of a connection.

use crate::wire::info::{LockInfo, LockProfile, LockSummary};
use crate::wire::outcome;
use crate::wire::reply::{self, Grant, Token};
use crate::wire::request::{self, GiveBack, Mode};
use redis::aio::ConnectionLike;
use redis::{Cmd, ParsingError, RedisFuture, RedisResult, ToSingleRedisArg, Value};
use std::time::Duration;

/// Defines traits whose methods each send a command. An argument without a type is anything that can be sent as one
/// argument. Then follow the type of the reply, the request, and optionally how the reply is read.
macro_rules! commands {
    ($(#[$about:meta])* pub trait $trait:ident { $(
        $(#[$doc:meta])*
        $name:ident($($argument:ident $(: $of:ty)?),*) -> $reply:ty = $request:expr $(, $read:expr)?;
    )* }) => {
        $(#[$about])*
        pub trait $trait: ConnectionLike + Send + Sized { $(
            $(#[$doc])*
            fn $name<'a>(
                &'a mut self,
                $($argument: argument!($($of)?)),*
            ) -> RedisFuture<'a, $reply> {
                send(self, $request, reader!($($read)?))
            }
        )* }

        impl<C: ConnectionLike + Send> $trait for C {}
    };
}
macro_rules! reader {
    () => {
        reply::read
    };
    ($read:expr) => {
        $read
    };
}
macro_rules! argument {
    () => { impl ToSingleRedisArg };
    ($of:ty) => { $of };
}

commands! {
#[doc = include_str!("command/commands.md")]
pub trait AsyncLockCommands {
    /// Takes the lock if it is free, or once more if this owner holds it.
    ///
    /// Never waits: answers `None` if another owner holds the lock, or if other clients wait for
    /// it. A new grant lasts `lease`. A reentry answers the same token and one hold more; its lease
    /// becomes the longer of what is left and `lease`.
    ///
    /// `lease` is 1 ms to the server's `kvlock.max-lease-ms`, 24 hours unless configured.
    ///
    /// # Errors
    ///
    /// `WRONGTYPE` if the key holds something else; `ERR` if an argument is invalid or the owner
    /// already holds the lock 4,294,967,295 times; the errors in the trait's documentation. After a
    /// timeout or a broken connection the outcome is unknown: release, or repeat with
    /// [`lock_acquire_options`](Self::lock_acquire_options).
    ///
    /// # Cancel safety
    ///
    /// A dropped acquire may still be granted, and then holds the lock until its lease ends. Follow
    /// it with [`lock_release`](Self::lock_release) on the same connection.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kvlock::AsyncLockCommands;
    /// use std::time::Duration;
    ///
    /// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// let lease = Duration::from_secs(10);
    /// if let Some(grant) = con.lock_acquire("orders:42", "alice:1", lease).await? {
    ///     println!("granted, token {}, {} hold(s)", grant.token, grant.holds);
    /// }
    /// # Ok(()) }
    /// ```
    lock_acquire(key, owner, lease: Duration) -> Option<Grant> =
        request::acquire(Mode::Alone, key, owner, lease, None);

    /// [`lock_acquire`](Self::lock_acquire) with options: shared, or with the resulting number of holds, which
    /// makes a repetition harmless. See [`AcquireOptions`].
    ///
    /// # Errors
    ///
    /// The errors of [`lock_acquire`](Self::lock_acquire); with `holds` `MISMATCH` if the owner holds the
    /// lock more or fewer times than fits. With 2 and more that includes no hold: a reentry onto a
    /// lost lock is an error, not a new grant.
    ///
    /// # Cancel safety
    ///
    /// As [`lock_acquire`](Self::lock_acquire); with `holds` repeating is harmless.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kvlock::{AcquireOptions, AsyncLockCommands};
    /// use std::time::Duration;
    ///
    /// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// let (lease, once) = (Duration::from_secs(10), AcquireOptions::default().holds(1));
    /// let mut answer = con.lock_acquire_options("orders:42", "alice:1", lease, once).await;
    /// if answer.as_ref().is_err_and(redis::RedisError::is_timeout) {
    ///     answer = con.lock_acquire_options("orders:42", "alice:1", lease, once).await;
    /// }
    /// let granted = answer?.is_some(); // and if so, held once
    /// # let _ = granted;
    /// # Ok(()) }
    /// ```
    lock_acquire_options(key, owner, lease: Duration, options: AcquireOptions<'_>) -> Option<Grant> =
        request::acquire(options.mode, key, owner, lease, options.holds).map(|cmd| options.add_to(cmd)),
        granted;

    /// Acquires the lock, or waits in the queue behind earlier waiters.
    ///
    /// Answers as soon as the lock is granted, or `None` when `timeout` has passed or the wait was
    /// cancelled with [`lock_cancel`](Self::lock_cancel). The lease starts with the grant. A
    /// `timeout` of `None` waits without limit. The owner that holds the lock re-enters at once.
    ///
    /// An owner has one place in the queue. If it is waiting already, this call takes over the place and
    /// the older call fails with `UNBLOCKED`. Within a transaction or script nothing can wait, and
    /// this answers like [`lock_acquire`](Self::lock_acquire).
    ///
    /// **Use a connection of its own whose response timeout is longer than `timeout`**, as the
    /// [trait's documentation](AsyncLockCommands#connections-for-waiting) shows. On a connection as redis-rs
    /// makes it by default, the caller gives up after 500 ms, and the lock is later granted
    /// although no task waits for it.
    ///
    /// `lease` as for `lock_acquire`; `timeout` is 1 ms to ten years.
    ///
    /// # Errors
    ///
    /// `QUEUEFULL` if a limit on waiters is reached; `UNBLOCKED` if the wait was taken over or the
    /// server became a replica; `TRYAGAIN` if the server is draining or the slot moved; otherwise
    /// the errors of `lock_acquire`.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe by itself: a dropped wait stays in the queue and is granted in its turn. Drop the
    /// connection and all its clones too, and the server removes the waiter; or call
    /// [`lock_cancel`](Self::lock_cancel) on another connection. Either way the grant may have come
    /// first, so send [`lock_release`](Self::lock_release) after it. You lose your place in the queue.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kvlock::AsyncLockCommands;
    /// use std::time::Duration;
    ///
    /// # async fn example(client: redis::Client) -> redis::RedisResult<()> {
    /// let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    /// let mut waiting = client
    ///     .get_multiplexed_async_connection_with_config(&config)
    ///     .await?;
    ///
    /// let (lease, timeout) = (Duration::from_secs(10), Duration::from_secs(30));
    /// match waiting.lock_wait("orders:42", "bob:1", lease, Some(timeout)).await? {
    ///     Some(grant) => println!("granted, token {}", grant.token),
    ///     None => println!("not within 30 seconds"),
    /// }
    /// # Ok(()) }
    /// ```
    lock_wait(key, owner, lease: Duration, timeout: Option<Duration>) -> Option<Grant> =
        request::wait(Mode::Alone, key, owner, lease, timeout, None, None);

    /// [`lock_wait`](Self::lock_wait) with [`AcquireOptions`]. With `holds`, the command can be sent again after a
    /// broken connection: it is granted, or finds that the owner holds the lock, or waits at the end of the line.
    /// If the older call is still in the queue, this one takes over its place.
    ///
    /// # Errors
    ///
    /// The errors of [`lock_wait`](Self::lock_wait) and [`lock_acquire_options`](Self::lock_acquire_options).
    ///
    /// # Cancel safety
    ///
    /// As [`lock_wait`](Self::lock_wait).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kvlock::{AcquireOptions, AsyncLockCommands};
    /// use std::time::Duration;
    ///
    /// # async fn example(mut waiting: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// let (lease, reading) = (Duration::from_secs(10), AcquireOptions::default().shared());
    /// let grant = waiting.lock_wait_options("catalogue", "bob:1", lease, None, reading).await?;
    /// # let _ = grant;
    /// # Ok(()) }
    /// ```
    lock_wait_options(key, owner, lease: Duration, timeout: Option<Duration>, options: AcquireOptions<'_>) -> Option<Grant> =
        request::wait(options.mode, key, owner, lease, timeout, options.holds, None)
            .map(|cmd| options.add_to(cmd)),
        granted;

    /// Gives back one hold; the last one frees the lock or hands it to the first waiter.
    ///
    /// Returns the number of holds that are left, 0 if the lock is free or handed over. `None` means that this owner
    /// does not hold it: it never did, has released it, or the lease has ended. A partial release
    /// does not change the lease. Works when the server is out of memory.
    ///
    /// # Errors
    ///
    /// `WRONGTYPE` if the key holds something else; the errors in the trait's documentation. After a
    /// timeout or a broken connection the outcome is unknown: treat the lock as given up, and
    /// repeat with [`lock_release_options`](Self::lock_release_options).
    ///
    /// # Cancel safety
    ///
    /// A dropped release may or may not be carried out.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kvlock::AsyncLockCommands;
    ///
    /// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// match con.lock_release("orders:42", "alice:1").await? {
    ///     Some(0) => println!("released"),
    ///     Some(left) => println!("still held {left} time(s)"),
    ///     None => println!("was not held: the lease had ended"),
    /// }
    /// # Ok(()) }
    /// ```
    lock_release(key, owner) -> Option<u64> =
        Ok(request::release(Mode::Alone, key, owner, GiveBack::One));

    /// Gives back every hold, or all but a number of them, exclusive or shared: see
    /// [`ReleaseOptions`]. Harmless to repeat.
    ///
    /// # Errors
    ///
    /// The errors of [`lock_release`](Self::lock_release), and `MISMATCH` if the owner holds the lock a
    /// number of times that does not fit.
    ///
    /// # Cancel safety
    ///
    /// A dropped release may or may not be carried out; repeating is harmless.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kvlock::{AsyncLockCommands, ReleaseOptions};
    ///
    /// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// // Held twice; leave one. Sent again after a lost reply, it does no harm.
    /// let leave_one = ReleaseOptions::default().holds_left(1);
    /// con.lock_release_options("orders:42", "alice:1", leave_one).await?;
    /// con.lock_release_options("orders:42", "alice:1", ReleaseOptions::default().all()).await?;
    /// # Ok(()) }
    /// ```
    lock_release_options(key, owner, options: ReleaseOptions<'_>) -> Option<u64> =
        options.add_to(request::release(options.mode, key, owner, options.give_back));

    /// Sets the lease to `lease` from now, longer or shorter than before.
    ///
    /// Returns the lease that now runs, or `None` if this owner does not hold the lock: then it is
    /// lost. Token and holds stay. Count the new lease from before the call, not
    /// from the answer. Works when the server is out of memory. `lease` as for
    /// [`lock_acquire`](Self::lock_acquire).
    ///
    /// # Errors
    ///
    /// `WRONGTYPE` if the key holds something else; the errors in the trait's documentation. After a
    /// timeout or a broken connection count on the shorter of both leases, the older one from when it was set.
    ///
    /// # Cancel safety
    ///
    /// A dropped renewal may or may not be carried out; repeating is harmless. Do not let one trail
    /// a release: should another task acquire for the same owner in between, it would change that
    /// lease.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kvlock::AsyncLockCommands;
    /// use std::time::{Duration, Instant};
    ///
    /// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// let before = Instant::now();
    /// match con.lock_renew("orders:42", "alice:1", Duration::from_secs(10)).await? {
    ///     Some(lease) => println!("good until {:?}", before + lease),
    ///     None => println!("lost: stop"),
    /// }
    /// # Ok(()) }
    /// ```
    lock_renew(key, owner, lease: Duration) -> Option<Duration> =
        request::renew(Mode::Alone, key, owner, lease, None);

    /// The same, and raises the fencing token of a lock that is held alone to `token`, unless it is
    /// larger already.
    ///
    /// For a lock that is held on several independent servers, as by `Quorum` of the crate `kvlock-quorum`:
    /// the largest of their tokens, written back to a majority, keeps tokens in order. Later grants of
    /// the server have a larger token.
    ///
    /// `token` is up to a day ahead of the server's clock, in microseconds since 1970.
    ///
    /// # Errors
    ///
    /// The errors of [`lock_renew`](Self::lock_renew), and `ERR invalid TOKEN` if the token is too far
    /// ahead or the owner shares the lock. Then the lease is not set either.
    ///
    /// # Cancel safety
    ///
    /// As [`lock_renew`](Self::lock_renew).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kvlock::AsyncLockCommands;
    /// use std::time::Duration;
    ///
    /// # async fn example(mut con: redis::aio::MultiplexedConnection, largest: kvlock::Token) -> redis::RedisResult<()> {
    /// let lease = Duration::from_secs(10);
    /// let held = con.lock_renew_with_token("orders:42", "alice:1", lease, largest).await?;
    /// # Ok(()) }
    /// ```
    lock_renew_with_token(key, owner, lease: Duration, token: Token) -> Option<Duration> =
        request::renew(Mode::Alone, key, owner, lease, Some(token.value()));

    /// [`lock_renew`](Self::lock_renew) that also replaces the value of the exclusive owner: up to 1,024 bytes. See
    /// [`AcquireOptions::value`].
    ///
    /// # Errors
    ///
    /// The errors of [`lock_renew`](Self::lock_renew), and `ERR invalid value`.
    lock_renew_with_value(key, owner, lease: Duration, value: &[u8]) -> Option<Duration> =
        request::renew(Mode::Alone, key, owner, lease, None)
            .map(|cmd| request::with_value(cmd, Some(value)));

    /// [`lock_renew`](Self::lock_renew) for several locks: also those of [`AcquireOptions::with`] and
    /// [`AcquireOptions::under`]. `None` if any of them is not held; the others are renewed.
    ///
    /// # Errors
    ///
    /// The errors of [`lock_renew`](Self::lock_renew); `CROSSSLOT` in a cluster.
    lock_renew_set(key, owner, lease: Duration, with: &[&[u8]], under: &[&[u8]]) -> Option<Duration> =
        request::renew(Mode::Alone, key, owner, lease, None).map(|cmd| {
            request::with_keys(request::with_keys(cmd, "WITH", with), "UNDER", under)
        });

    /// Takes this owner out of the queue.
    ///
    /// `true` if it was in the queue: its [`lock_wait`](Self::lock_wait) answers `None`. `false` if it
    /// was not; it may have been granted the lock, so follow with
    /// [`lock_release`](Self::lock_release) unless you want it. Must be sent on another connection
    /// than the wait. Does not change the holder.
    ///
    /// # Errors
    ///
    /// The errors in the trait's documentation.
    ///
    /// # Cancel safety
    ///
    /// A dropped cancel may or may not be carried out; repeating is harmless.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kvlock::AsyncLockCommands;
    ///
    /// # async fn example(mut other: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// if !other.lock_cancel("orders:42", "bob:1").await? {
    ///     other.lock_release("orders:42", "bob:1").await?;
    /// }
    /// # Ok(()) }
    /// ```
    lock_cancel(key, owner) -> bool =
        Ok(request::cancel(Mode::Alone, key, owner));

    /// Returns the holder of the lock, the rest of its lease, and the number of waiters.
    ///
    /// The reply describes one moment at the server, and may be stale when it arrives. To get a
    /// lock if it is free, acquire it. [`LockInfo::queue`] stays empty.
    ///
    /// # Errors
    ///
    /// `WRONGTYPE` if the key holds something else; the errors in the trait's documentation.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kvlock::AsyncLockCommands;
    ///
    /// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// let info = con.lock_info("orders:42").await?;
    /// if let Some(owner) = &info.owner {
    ///     println!("held by {} for {:?}", owner.escape_ascii(), info.lease_left);
    /// }
    /// # Ok(()) }
    /// ```
    lock_info(key) -> LockInfo =
        Ok(request::info(key, None));

    /// Like [`lock_info`](Self::lock_info), with the first `count` waiters in [`LockInfo::queue`].
    ///
    /// `count` is 1 to 1,000.
    ///
    /// # Errors
    ///
    /// `ERR` if `count` is out of range; otherwise the errors of `lock_info`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kvlock::AsyncLockCommands;
    ///
    /// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// let info = con.lock_info_waiters("orders:42", 5).await?;
    /// for (position, waiter) in (1..).zip(&info.queue) {
    ///     let owner = waiter.owner.escape_ascii();
    ///     println!("{position}: {owner} for {:?}", waiter.waited);
    /// }
    /// # Ok(()) }
    /// ```
    lock_info_waiters(key, count: u32) -> LockInfo =
        Ok(request::info(key, Some(count)));

    /// Lists the `count` locks of this database that most clients wait for, most waiters first.
    ///
    /// A lock without waiters is not listed. `count` is 1 to 1,000. The server looks at every key
    /// with waiters, so do not poll it. In a cluster it asks one node, chosen by
    /// the connection: ask each node separately.
    ///
    /// # Errors
    ///
    /// `ERR` if `count` is out of range; the errors in the trait's documentation.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kvlock::AsyncLockCommands;
    ///
    /// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// for lock in con.lock_list(10).await? {
    ///     println!("{}: {} waiting", lock.key.escape_ascii(), lock.waiters);
    /// }
    /// # Ok(()) }
    /// ```
    lock_list(count: u32) -> Vec<LockSummary> =
        Ok(request::list(count));

    /// Lists the locks and semaphores with the most time waited since the counters were reset, most
    /// first. With `reset` the counters start anew.
    ///
    /// As for [`lock_list`](Self::lock_list): do not poll it, and it asks one node.
    ///
    /// # Errors
    ///
    /// `ERR` if `count` is not 1 to 1,000; the errors in the trait's documentation.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kvlock::AsyncLockCommands;
    ///
    /// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// for lock in con.lock_profile(10, false).await? {
    ///     println!("{}: {:?} waited", lock.key.escape_ascii(), lock.waited);
    /// }
    /// # Ok(()) }
    /// ```
    lock_profile(count: u32, reset: bool) -> Vec<LockProfile> =
        Ok(request::profile(count, reset));

    /// Takes the lock away from its holder, and hands it to the first waiter.
    ///
    /// `true` if it was held. The former holder is not notified: it finds out when it renews or
    /// releases, and works without protection until then. For operators; the command has the ACL
    /// categories `@dangerous` and `@admin`.
    ///
    /// # Errors
    ///
    /// `WRONGTYPE` if the key holds something else; `NOPERM` without the permission; the errors in the
    /// crate documentation.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be carried out. Do not repeat it blindly: it would take the
    /// lock from the next owner.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kvlock::AsyncLockCommands;
    ///
    /// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    /// let was_held = con.lock_force_release("orders:42").await?;
    /// # let _ = was_held;
    /// # Ok(()) }
    /// ```
    lock_force_release(key) -> bool =
        Ok(request::force_release(key));
}
}

/// A grant; `None` also if the result exists.
fn granted(value: Value) -> Result<Option<Grant>, ParsingError> {
    if outcome::is_ready(&value) { Ok(None) } else { reply::read(value) }
}

fn send<'a, C: ConnectionLike + Send, T: Send + 'a>(
    connection: &'a mut C,
    request: RedisResult<Cmd>,
    read: fn(Value) -> Result<T, ParsingError>,
) -> RedisFuture<'a, T> {
    Box::pin(async move {
        let reply = connection.req_packed_command(&request?).await?;
        Ok(read(reply.extract_error()?)?)
    })
}

mod family;
mod options;
pub use family::{AsyncLatchCommands, AsyncSemaphoreCommands};
pub use options::{AcquireOptions, ReleaseOptions};

#[cfg(test)]
mod tests;
