//! Semaphores: a number of permits, which clients acquire and release.

use crate::api::guard::Guard;
use crate::api::held::Held;
use crate::api::lock::Lock;
use crate::engine::context::Context;
use crate::engine::limit::Limit;
use crate::wire::error::Error;
use crate::wire::info::SemaphoreInfo;
use crate::wire::reply;
use crate::wire::request::{self, Mode};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A named semaphore: a number of permits, which clients acquire for a lease.
///
/// Created by [`Client::semaphore`](crate::Client::semaphore). A `Semaphore` is cheap to create
/// and to clone, and creating one sends nothing. Set the number of permits once, with
/// [`set`](Self::set) or [`set_once`](Self::set_once). Before that the server answers with the error
/// [code](Error::code) `UNSET`.
///
/// Permits are held for a lease, which the watchdog renews. The permits of a dead process become free when the
/// lease ends. Waiters are served in order of arrival, whatever number of permits they want, so large
/// requests do not starve.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// let pool = client.semaphore("licences");
/// pool.set_once(5).await?;
///
/// let two = pool.permits(2).acquire().await?;
/// two.run_until_lost(work()).await?;
/// two.release().await?;
/// # Ok(()) }
/// # async fn work() {}
/// ```
#[derive(Clone, Debug)]
#[must_use = "a semaphore does nothing until permits are acquired"]
pub struct Semaphore {
    lock: Lock,
    permits: u32,
}

impl Semaphore {
    pub(crate) fn new(inner: Arc<Context>, name: &[u8]) -> Self {
        Self { lock: Lock::new(inner, name), permits: 1 }
    }

    /// Sets the number of permits to acquire at once: all of them or none. Default: one.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(pool: kvlock::Semaphore) -> Result<(), kvlock::Error> {
    /// let three = pool.permits(3).acquire().await?;
    /// assert_eq!(three.count(), 3);
    /// # Ok(()) }
    /// ```
    pub fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    /// Sets the lease; see [`Lock::lease`](crate::Lock::lease).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lock = self.lock.lease(lease);
        self
    }

    /// Sets a lease that is not renewed; see [`Lock::fixed_lease`](crate::Lock::fixed_lease).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(pool: kvlock::Semaphore) -> Result<(), kvlock::Error> {
    /// # use std::time::Duration;
    /// // Limits the rate: each permit is in use for about ten seconds.
    /// let permit = pool.fixed_lease(Duration::from_secs(10)).acquire().await?;
    /// permit.lost().await; // let it end
    /// # Ok(()) }
    /// ```
    pub fn fixed_lease(mut self, lease: Duration) -> Self {
        self.lock = self.lock.fixed_lease(lease);
        self
    }

    /// Binds the permits to this client: they become free soon after the client is gone; see
    /// [`Lock::bound`](crate::Lock::bound).
    pub fn bound(mut self) -> Self {
        self.lock = self.lock.bound();
        self
    }

    /// Sets the number of permits. Held permits stay held.
    ///
    /// # Errors
    ///
    /// [`NotALock`](Error::NotALock) if the key holds something else, [`Denied`](Error::Denied),
    /// [`Invalid`](Error::Invalid) if the name is out of range, and network errors.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the command may or may not be executed. It can be repeated.
    pub async fn set(&self, permits: u32) -> Result<(), Error> {
        self.send_set(permits, false).await.map(|_| ())
    }

    /// Sets the number of permits, unless it is set already. Each process can call it when it starts. Returns
    /// whether this call set the number. If the connection breaks, the command is repeated, and may return
    /// `false` although this call set the number.
    ///
    /// # Errors
    ///
    /// The errors of [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// As for [`set`](Self::set).
    pub async fn set_once(&self, permits: u32) -> Result<bool, Error> {
        self.send_set(permits, true).await
    }

    async fn send_set(&self, permits: u32, only_if_unset: bool) -> Result<bool, Error> {
        let request = request::set_permits(self.lock.key(), permits, only_if_unset);
        self.lock.query(&request, |answer| Ok(answer != redis::Value::Nil)).await
    }

    /// Acquires the permits. Waits in the queue behind earlier waiters, without a time limit.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::acquire`](crate::Lock::acquire); [`Server`](Error::Server) with the code
    /// `UNSET` if the number of permits was never set, `TOOMANY` if it is smaller than the request.
    ///
    /// # Cancel safety
    ///
    /// As for [`Lock::acquire`](crate::Lock::acquire).
    pub async fn acquire(&self) -> Result<Permits, Error> {
        self.acquire_by(Limit::Never).await?.ok_or(Error::Timeout)
    }

    /// Acquires the permits if that is possible without waiting, else returns `None`.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(pool: kvlock::Semaphore) -> Result<(), kvlock::Error> {
    /// let Some(permit) = pool.try_acquire().await? else {
    ///     return Ok(()); // not available now
    /// };
    /// permit.release().await
    /// # }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Permits>, Error> {
        self.acquire_by(Limit::Now).await
    }

    /// Acquires the permits within `timeout`, else returns `None`.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, timeout: Duration) -> Result<Option<Permits>, Error> {
        self.acquire_by(Limit::within(timeout)).await
    }

    /// Acquires all permits that are free at this moment, in one step. [`permits`](Self::permits) has no
    /// effect; [`Permits::count`] returns the number. Returns `None` if no permits can be acquired without
    /// waiting, for example because none are free, or because there are waiters.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(pool: kvlock::Semaphore) -> Result<(), kvlock::Error> {
    /// if let Some(rest) = pool.try_drain().await? {
    ///     println!("{} were free", rest.count());
    ///     rest.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_drain(&self) -> Result<Option<Permits>, Error> {
        self.acquire_in(Mode::AllPermits, Limit::Now).await
    }

    async fn acquire_by(&self, limit: Limit) -> Result<Option<Permits>, Error> {
        if self.permits == 0 {
            return Err(Error::Invalid("permits out of range: at least 1".to_owned()));
        }
        self.acquire_in(Mode::Permits(self.permits), limit).await
    }

    async fn acquire_in(&self, mode: Mode, limit: Limit) -> Result<Option<Permits>, Error> {
        let guard = self.lock.clone().in_mode(mode).acquire_by(limit).await?;
        Ok(guard.map(|guard| Permits { guard }))
    }

    /// Returns the state of the semaphore at this moment.
    ///
    /// # Errors
    ///
    /// [`Server`](Error::Server) with the code `UNSET`; the errors of [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(pool: kvlock::Semaphore) -> Result<(), kvlock::Error> {
    /// let info = pool.info().await?;
    /// println!("{} of {} taken", info.used, info.permits);
    /// # Ok(()) }
    /// ```
    pub async fn info(&self) -> Result<SemaphoreInfo, Error> {
        self.lock.query(&request::semaphore_info(self.lock.key()), reply::read).await
    }
}

/// Held permits of a semaphore. They are held until this value is released or dropped, or until they are
/// lost.
///
/// It dereferences to [`Held`], with [`is_lost`](Held::is_lost), [`run_until_lost`](Held::run_until_lost) and
/// the other methods. Permits have no fencing token, since their holders work at the same time. Dropping the
/// value releases the permits in the background.
///
/// # Examples
///
/// ```no_run
/// # async fn example(pool: kvlock::Semaphore) -> Result<(), kvlock::Error> {
/// let permit = pool.acquire().await?;
/// if !permit.is_lost() {
///     println!("at work");
/// }
/// permit.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "dropping permits gives them back"]
pub struct Permits {
    guard: Guard,
}

impl Permits {
    /// Returns the number of permits.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.guard.lease().held_lock.mode.once()
    }

    /// Sets the lease, as [`Guard::extend`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`Guard::extend`].
    ///
    /// # Cancel safety
    ///
    /// As for [`Guard::extend`].
    pub async fn extend(&mut self, lease: Duration) -> Result<(), Error> {
        self.guard.extend(lease).await
    }

    /// Releases the permits, and waits for the server's answer, as [`Guard::release`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// As for [`Guard::release`].
    pub async fn release(self) -> Result<(), Error> {
        self.guard.release().await
    }
}

impl Deref for Permits {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.guard
    }
}
