//! Several locks as one.

use crate::api::guard::Guard;
use crate::api::lock::Lock;
use crate::api::watch::LossWatch;
use crate::engine::limit::Limit;
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use crate::wire::reply::Token;
use futures_util::future::{join_all, select_all};
use std::pin::pin;
use std::time::Duration;

/// Several locks as one: all are held, or none.
///
/// They may be on different servers. They are acquired one after the other in an order that is
/// the same in all processes, by name and then by the address of the server. So two clients that want some of
/// the same locks cannot wait for each other. Two conditions: a name that is on several servers needs the same
/// server addresses in all processes, and a holder of one of the locks must not wait for another one in any other
/// way.
///
/// While a later lock is waited for, the watchdog renews the earlier ones.
///
/// This is no Redlock: every one of the servers is needed, and each lock is as good as its server.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// let accounts = kvlock::MultiLock::new([client.lock("account:7"), client.lock("account:9")])?;
/// let guard = accounts.acquire().await?;
/// guard.run_until_lost(transfer()).await?;
/// guard.release().await?;
/// # Ok(()) }
/// # async fn transfer() {}
/// ```
#[derive(Clone, Debug)]
#[must_use = "locks do nothing until they are acquired"]
pub struct MultiLock {
    /// In the order in which they are acquired.
    locks: Vec<Lock>,
}

impl MultiLock {
    /// These locks, each with the lease and the owner that it was given.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if there are none, or one twice: it would wait for itself.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self, Error> {
        let mut locks: Vec<Lock> = locks.into_iter().collect();
        locks.sort_by(|a, b| a.rank().cmp(&b.rank()));
        if locks.is_empty() {
            return Err(Error::Invalid("there are no locks".to_owned()));
        }
        if locks.windows(2).any(|pair| matches!(pair, [a, b] if a.rank() == b.rank())) {
            return Err(Error::Invalid("one of the locks is there twice".to_owned()));
        }
        Ok(Self { locks })
    }

    /// Acquires all of them, however long it takes.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::acquire`], and [`Lost`](Error::Lost) if one was lost while another was
    /// waited for. The acquired ones are released by then.
    ///
    /// # Cancel safety
    ///
    /// As for [`Lock::acquire`]: dropped, all that was acquired is released in the background.
    pub async fn acquire(&self) -> Result<MultiGuard, Error> {
        match self.acquire_by(Limit::Never).await? {
            Some(guard) => Ok(guard),
            None => Err(Error::Timeout),
        }
    }

    /// Acquires all of them if all are free. `None` if one is not.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire). Cancel safe.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(both: kvlock::MultiLock) -> Result<(), kvlock::Error> {
    /// if let Some(guard) = both.try_acquire().await? {
    ///     guard.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>, Error> {
        self.acquire_by(Limit::Now).await
    }

    /// Acquires all of them within that time, counted once for all. `None` if that was too short.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire). Cancel safe.
    pub async fn acquire_within(&self, timeout: Duration) -> Result<Option<MultiGuard>, Error> {
        self.acquire_by(Limit::within(timeout)).await
    }

    async fn acquire_by(&self, limit: Limit) -> Result<Option<MultiGuard>, Error> {
        let reply_timeout = self.locks.iter().map(Lock::reply_timeout).max().unwrap_or_default();
        limit.hold(reply_timeout, pin!(self.acquire_all(limit))).await
    }

    async fn acquire_all(&self, limit: Limit) -> Result<Option<MultiGuard>, Error> {
        let mut held = MultiGuard { guards: Vec::with_capacity(self.locks.len()) };
        for lock in &self.locks {
            let next = if held.guards.is_empty() {
                lock.acquire_by(limit).await
            } else {
                held.run_until_lost(lock.acquire_by(limit)).await.and_then(|next| next)
            };
            match next {
                Ok(Some(guard)) => held.guards.push(guard),
                Ok(None) => {
                    held.give_up().await;
                    return Ok(None);
                }
                Err(trouble) => {
                    held.give_up().await;
                    return Err(trouble);
                }
            }
        }
        if let Some(why) = held.why_lost() {
            held.give_up().await;
            return Err(Error::Lost(why));
        }
        Ok(Some(held))
    }
}

/// Several locks that are held, until this is released or dropped, or one of them is lost.
///
/// Dropping it releases them all in the background, as [`Guard`] does.
///
/// # Examples
///
/// ```no_run
/// # async fn example(both: kvlock::MultiLock) -> Result<(), kvlock::Error> {
/// let guard = both.acquire().await?;
/// if !guard.is_lost() {
///     println!("{:?}", guard.tokens());
/// }
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "dropping a guard releases the locks"]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// The token of each lock, with its name, in the order in which they were acquired: each is for
    /// what that lock guards.
    ///
    /// ```no_run
    /// # fn example(guard: &kvlock::MultiGuard) {
    /// for (name, token) in guard.tokens() {
    ///     println!("{}: {token}", String::from_utf8_lossy(name));
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn tokens(&self) -> Vec<(&[u8], Token)> {
        self.guards.iter().map(|guard| (guard.key(), guard.token())).collect()
    }

    /// The guards of the locks, in the order in which they were acquired.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Whether one of them is lost. Reads the clock, asks no server.
    ///
    /// ```no_run
    /// # fn example(guard: &kvlock::MultiGuard) {
    /// if guard.is_lost() {
    ///     return;
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.guards.iter().any(Guard::is_lost)
    }

    /// Why one of them is lost, if one is. Reads the clock, asks no server.
    #[must_use]
    pub fn why_lost(&self) -> Option<Loss> {
        self.guards.iter().find_map(Guard::why_lost)
    }

    /// Waits until one of them is lost, and returns why; for ever if none is.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) -> Loss {
        if self.guards.is_empty() {
            return std::future::pending().await;
        }
        select_all(self.guards.iter().map(|guard| Box::pin(guard.lost()))).await.0
    }

    /// Returns a handle that tells when one of them is lost, and can be cloned and moved into tasks; see
    /// [`Guard::watch`].
    #[must_use]
    pub fn watch(&self) -> LossWatch {
        LossWatch::of(self.guards.iter().map(Guard::part))
    }

    /// Does the work, but stops as soon as one of the locks is lost: see
    /// [`Guard::run_until_lost`].
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if one was lost before the work was done.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the work.
    pub async fn run_until_lost<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        crate::api::watch::run_until(self.lost(), || self.why_lost(), work).await
    }

    /// Releases all of them, and waits until the servers have done so.
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if one of them was lost, else the first other error; see [`Guard::release`]. An error of
    /// one lock does not keep the others from being released.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the rest is released in the background.
    pub async fn release(self) -> Result<(), Error> {
        let outcomes = join_all(self.guards.into_iter().map(Guard::release)).await;
        let troubles = outcomes.into_iter().filter_map(Result::err);
        // A loss is what the caller has to know first.
        match troubles.min_by_key(|trouble| !trouble.is_lost()) {
            Some(trouble) => Err(trouble),
            None => Ok(()),
        }
    }

    /// Releases the acquired locks, and only logs errors.
    async fn give_up(self) {
        if let Err(trouble) = self.release().await {
            tracing::debug!(%trouble, "not all of several locks could be released");
        }
    }
}
