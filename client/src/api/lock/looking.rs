//! Queries about a lock, and its forced release.

use super::Lock;
use crate::engine::lease::Lease;
use crate::engine::owner::Owner;
use crate::wire::error::Error;
use crate::wire::info::{LockInfo, LockState};
use crate::wire::reply;
use crate::wire::request::{self, Mode};
use redis::{Cmd, ParsingError, Value};
use std::sync::Arc;
use std::time::Duration;

impl Lock {
    /// Takes the lock away from its holders, and grants it to the first waiter. Returns whether the lock was
    /// held.
    ///
    /// For operators. A holder learns of the loss at its next renewal, or at once if it
    /// [observes](Self::observed) the lock. Until then the holder works without protection. Needs the right
    /// (ACL) to `LOCK.FORCERELEASE`.
    ///
    /// # Errors
    ///
    /// [`Denied`](Error::Denied) without that right; [`NotALock`](Error::NotALock);
    /// [`Invalid`](Error::Invalid) if the name is out of range; network errors. The command is sent once:
    /// repeated, it would take the lock away from the next holder.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the command may or may not be executed.
    pub async fn force_release(&self) -> Result<bool, Error> {
        self.send_once(&request::force_release(&*self.key), reply::read).await
    }

    /// Returns the state of the lock at this moment.
    ///
    /// # Errors
    ///
    /// [`NotALock`](Error::NotALock), [`Denied`](Error::Denied), [`Invalid`](Error::Invalid) if the name is
    /// out of range, and network errors.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let info = client.lock("orders:42").info().await?;
    /// println!("{} waiting", info.waiters);
    /// # Ok(()) }
    /// ```
    pub async fn info(&self) -> Result<LockInfo, Error> {
        self.query(&request::info(&*self.key, None), reply::read).await
    }

    /// Returns the state as [`info`](Self::info) does, with the first `count` waiters in the order of the
    /// queue.
    ///
    /// # Errors
    ///
    /// The errors of [`info`](Self::info); [`Invalid`](Error::Invalid) if `count` is not 1 to 1,000.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// for waiter in client.lock("orders:42").info_with_waiters(10).await?.queue {
    ///     println!("{} for {:?}", waiter.owner.escape_ascii(), waiter.waited);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn info_with_waiters(&self, count: u32) -> Result<LockInfo, Error> {
        self.query(&request::info(&*self.key, Some(count)), reply::read).await
    }

    /// Returns whether the lock is held at this moment. To get a free lock, call
    /// [`try_acquire`](Self::try_acquire) instead.
    ///
    /// # Errors
    ///
    /// The errors of [`info`](Self::info).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.info().await?.state == LockState::Held)
    }

    /// Returns the number of holds of this owner at the server; 0 if it does not hold the lock.
    ///
    /// For an exclusive lock it may differ from the number of the owner's [guards](crate::Guard::holds) after
    /// a re-entry or a release whose answer was lost. The last guard releases all holds. But a
    /// [bound](Self::bound) lock is then lost when it has to be bound again, for example after a failover.
    /// For a shared lock the server does not report the holds of one owner. So this returns the number of
    /// guards if the server still has their token. A share that the owner has only through
    /// [`under`](Self::under) does not count.
    ///
    /// # Errors
    ///
    /// The errors of [`info`](Self::info).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let me = client.owner();
    /// let lock = client.lock("orders:42").owner(&me);
    /// let guard = lock.acquire().await?;
    /// assert_eq!(lock.hold_count(&me).await?, 1);
    /// # Ok(()) }
    /// ```
    pub async fn hold_count(&self, owner: &Owner) -> Result<u64, Error> {
        let info = self.info().await?;
        let mut leases = owner.leases();
        leases.retain(|lease| lease.held_lock.keys().any(|name| *name == *self.key));
        let is_holder = |lease: &Arc<Lease>| {
            lease.held_lock.mode == Mode::Alone
                && info.owner.as_deref() == Some(lease.held_lock.owner.as_bytes())
        };
        if leases.iter().any(is_holder) {
            return Ok(info.holds);
        }
        // The server does not report the holds of each owner that shares the lock, but all of these
        // owners have the same token. The token of a set may be larger: it is the largest of its locks.
        let shares = |lease: &&Arc<Lease>| {
            lease.held_lock.mode == Mode::Shared
                && info.token.is_some_and(|token| token <= lease.token())
        };
        let holds = leases.iter().filter(shares).map(|lease| lease.holds()).sum::<usize>();
        Ok(u64::try_from(holds).unwrap_or(u64::MAX))
    }

    /// Returns whether this owner holds the lock at this moment, according to the server.
    ///
    /// # Errors
    ///
    /// The errors of [`info`](Self::info).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let me = client.owner();
    /// assert!(!client.lock("orders:42").is_held_by(&me).await?);
    /// # Ok(()) }
    /// ```
    pub async fn is_held_by(&self, owner: &Owner) -> Result<bool, Error> {
        Ok(self.hold_count(owner).await? > 0)
    }

    /// Returns the rest of the holder's lease; for a shared lock, of the longest lease. `None` if the lock is
    /// free, or if the TTL of its key was removed.
    ///
    /// # Errors
    ///
    /// The errors of [`info`](Self::info).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// if let Some(left) = client.lock("orders:42").remaining().await? {
    ///     println!("free in {left:?} at the latest, unless it is renewed");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn remaining(&self) -> Result<Option<Duration>, Error> {
        Ok(self.info().await?.lease_left)
    }

    /// Sends an idempotent request for this name. Repeats it once if the connection was closed.
    pub(crate) async fn query<T>(
        &self,
        request: &Cmd,
        read: fn(Value) -> Result<T, ParsingError>,
    ) -> Result<T, Error> {
        self.check()?;
        self.inner.query(&self.key, request, read).await
    }

    /// Sends a request that must not be repeated.
    pub(crate) async fn send_once<T>(
        &self,
        request: &Cmd,
        read: fn(Value) -> Result<T, ParsingError>,
    ) -> Result<T, Error> {
        self.check()?;
        let patience = self.reply_timeout();
        Ok(read(self.inner.router.call(&self.key, request, patience).await?)?)
    }
}
