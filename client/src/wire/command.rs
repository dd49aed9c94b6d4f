//! The commands as methods of a connection.

use crate::wire::info::{LockInfo, LockProfile, LockSummary};
use crate::wire::outcome;
use crate::wire::reply::{self, Grant, Token};
use crate::wire::request::{self, GiveBack, Mode};
use redis::aio::ConnectionLike;
use redis::{Cmd, ParsingError, RedisFuture, RedisResult, ToSingleRedisArg, Value};
use std::time::Duration;

/// Defines a trait whose methods each send one command. An argument without a type takes every value that
/// redis-rs can send as one argument. After the arguments: the type of the reply, the request, and optionally
/// the function that reads the reply.
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
    /// Acquires the lock if it is free, or once more if this owner holds it.
    ///
    /// Never waits: returns `None` if another owner holds the lock, if other clients wait for it, or if the
    /// server is in quarantine. A new grant lasts `lease`. A reentry returns the same token and one hold
    /// more. It never shortens the lease: the longer one of the remaining lease and `lease` applies.
    ///
    /// `lease` is 1 ms to the server's `kvlock.max-lease-ms`, 24 hours by default.
    ///
    /// # Errors
    ///
    /// `WRONGTYPE` if the key holds something else; `ERR` if an argument is invalid or the owner already
    /// holds the lock 4,294,967,295 times; `UPGRADE` if the owner shares the lock; the errors in the trait's
    /// documentation. After a timeout or a broken connection the outcome is unknown: release, or repeat with
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

    /// [`lock_acquire`](Self::lock_acquire) with [`AcquireOptions`]: for example shared, or with
    /// the resulting number of holds, which makes a repetition harmless.
    ///
    /// # Errors
    ///
    /// The errors of [`lock_acquire`](Self::lock_acquire). With `holds`, also `MISMATCH` if the owner's
    /// number of holds is neither `holds` nor one less. So with 2 or more, a reentry into a lost lock is
    /// an error, not a new grant.
    ///
    /// # Cancel safety
    ///
    /// As [`lock_acquire`](Self::lock_acquire). With `holds`, a repetition is harmless.
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
    /// Returns as soon as the lock is granted. Returns `None` when `timeout` has passed, or when the wait
    /// was cancelled with [`lock_cancel`](Self::lock_cancel). The lease starts with the grant. A
    /// `timeout` of `None` waits without limit. An owner that already holds the lock re-enters at once.
    ///
    /// An owner has one place in the queue. If it is waiting already, this call takes over the place and
    /// the older call fails with `UNBLOCKED`. In a transaction or script the command cannot wait, and
    /// answers as [`lock_acquire`](Self::lock_acquire).
    ///
    /// **Use a connection of its own whose response timeout is longer than `timeout`**, as the
    /// [trait's documentation](AsyncLockCommands#connections-for-waiting) shows. With the default
    /// settings of redis-rs, this call fails after 500 ms, and the lock is later granted although no task
    /// waits for it.
    ///
    /// `lease` has the range as for `lock_acquire`; `timeout` is 1 ms to ten years.
    ///
    /// # Errors
    ///
    /// `QUEUEFULL` if a limit on waiters is reached; `DEADLOCK` if owners would wait for each other
    /// in a circle; `UNBLOCKED` if the wait was taken over or the server became a replica;
    /// `TRYAGAIN` if the server is draining or the slot moved; otherwise the errors of
    /// `lock_acquire`.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a dropped wait remains in the queue and is granted in its turn. To remove the
    /// waiter, drop the connection with all its clones, or call [`lock_cancel`](Self::lock_cancel) on
    /// another connection. In both cases the grant may have come first, so send
    /// [`lock_release`](Self::lock_release) afterwards. The owner loses its place in the queue.
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

    /// [`lock_wait`](Self::lock_wait) with [`AcquireOptions`]. With `holds`, the command can be sent again
    /// after a broken connection. It is granted, or finds that the owner holds the lock, or waits at the end
    /// of the queue. If the older call is still in the queue, this one takes over its place.
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

    /// Releases one hold. The last one frees the lock or hands it to the first waiter.
    ///
    /// Returns the number of holds that are left, 0 if the lock is free or handed over. `None` means that
    /// this owner does not hold the lock, for example because it has released the lock, or because
    /// its lease has ended. A release that leaves holds does not change the lease. Works when the
    /// server is out of memory.
    ///
    /// # Errors
    ///
    /// `WRONGTYPE` if the key holds something else; the errors in the trait's documentation. After a
    /// timeout or a broken connection the outcome is unknown: treat the lock as released, and
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

    /// [`lock_release`](Self::lock_release) with [`ReleaseOptions`]: for example releases a share,
    /// all holds, or one hold so that a given number remains.
    ///
    /// # Errors
    ///
    /// The errors of [`lock_release`](Self::lock_release). With `holds_left`, also `MISMATCH` if the owner
    /// holds the lock, but its number of holds is neither that number nor one more.
    ///
    /// # Cancel safety
    ///
    /// A dropped release may or may not be carried out. With `all` or `holds_left`, a repetition is harmless.
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
    /// Returns the new lease, or `None` if this owner does not hold the lock: then it is lost. Token and
    /// holds do not change. Count the new lease from the moment before the call, not from the answer.
    /// Works when the server is out of memory. `lease` has the range as for
    /// [`lock_acquire`](Self::lock_acquire).
    ///
    /// # Errors
    ///
    /// `WRONGTYPE` if the key holds something else; the errors in the trait's documentation. After a
    /// timeout or a broken connection either lease may run: rely on the one that ends first.
    ///
    /// # Cancel safety
    ///
    /// A dropped renewal may or may not be carried out; a repetition is harmless. Do not release while a
    /// renewal is in flight: if another task then acquires for the same owner, the renewal may change
    /// that task's lease.
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

    /// [`lock_renew`](Self::lock_renew) that also raises the fencing token of an exclusively held lock to
    /// `token`, unless it is larger already. Later grants of the server have a larger token.
    ///
    /// It is for a lock that is held on several independent servers, as by `Quorum` of the crate
    /// `kvlock-quorum`. The largest of their tokens, written back to a majority, keeps the tokens in order.
    ///
    /// `token` counts microseconds since 1970, and is at most a day ahead of the server's clock.
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

    /// [`lock_renew`](Self::lock_renew) that also replaces the value of the exclusive owner: up to 1,024
    /// bytes. See [`AcquireOptions::value`].
    ///
    /// # Errors
    ///
    /// The errors of [`lock_renew`](Self::lock_renew), and `ERR` if the value is too long or the owner shares
    /// the lock.
    ///
    /// # Cancel safety
    ///
    /// As [`lock_renew`](Self::lock_renew).
    lock_renew_with_value(key, owner, lease: Duration, value: &[u8]) -> Option<Duration> =
        request::renew(Mode::Alone, key, owner, lease, None)
            .map(|cmd| request::with_value(cmd, Some(value)));

    /// [`lock_renew`](Self::lock_renew) that also renews the locks acquired with [`AcquireOptions::with`] and
    /// [`AcquireOptions::under`]. Returns `None` if any of the locks is not held; the others are renewed.
    ///
    /// # Errors
    ///
    /// The errors of [`lock_renew`](Self::lock_renew). In a cluster, `CROSSSLOT` if the keys are in several
    /// slots.
    ///
    /// # Cancel safety
    ///
    /// As [`lock_renew`](Self::lock_renew).
    lock_renew_set(key, owner, lease: Duration, with: &[&[u8]], under: &[&[u8]]) -> Option<Duration> =
        request::renew(Mode::Alone, key, owner, lease, None).map(|cmd| {
            request::with_keys(request::with_keys(cmd, "WITH", with), "UNDER", under)
        });

    /// Removes this owner from the queue.
    ///
    /// Returns `true` if it was in the queue: its [`lock_wait`](Self::lock_wait) returns `None`. Returns
    /// `false` if it was not. Then it may have been granted the lock, so follow with
    /// [`lock_release`](Self::lock_release) unless you want the lock. Use another connection than for
    /// the wait. Does not change the holder.
    ///
    /// # Errors
    ///
    /// The errors in the trait's documentation.
    ///
    /// # Cancel safety
    ///
    /// A dropped cancel may or may not be carried out; a repetition is harmless.
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

    /// Returns the holder of the lock, its remaining lease, and the number of waiters.
    ///
    /// The reply describes one moment at the server, and may be stale when it arrives. To take the lock if
    /// it is free, use [`lock_acquire`](Self::lock_acquire) instead. [`LockInfo::queue`] is empty.
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

    /// Lists up to `count` locks of this database with waiters, most waiters first.
    ///
    /// A lock without waiters is not listed. `count` is 1 to 1,000. The server examines every key with
    /// waiters, so do not poll it. In a cluster the connection chooses the node, and the reply has
    /// only the waiters of that node: ask each node separately.
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

    /// Lists up to `count` locks and semaphores of this database by their total waiting time, longest first.
    ///
    /// The total is of waits that ended with a grant, since the last reset or since the module was loaded. The
    /// server keeps the totals of at most 128 locks and semaphores, over all databases. `reset` resets the
    /// totals of all databases after this reply. In a cluster, ask each node separately.
    ///
    /// # Cancel safety
    ///
    /// Without `reset`, it is cancel safe. With `reset`, a dropped call may have reset the totals.
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

    /// Takes the lock from its holder, and hands it to the first waiter.
    ///
    /// Returns `true` if the lock was held. The former holder learns of the loss when it next renews or
    /// releases, or at once if it observes the lock. Until then it works without protection. This is for
    /// operators. The command has the ACL categories `@dangerous` and `@admin`.
    ///
    /// # Errors
    ///
    /// `WRONGTYPE` if the key holds something else; `NOPERM` without the permission; the errors in the
    /// trait's documentation.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be carried out. Before you repeat it, check the holder: a repetition
    /// takes the lock from the next owner.
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

/// Reads a grant. Returns `None` if nothing was granted, also if the key of `UNLESS` exists.
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
