//! The common part of guards, permits and leaderships.

use crate::api::watch::{LossWatch, Part, run_until};
use crate::engine::context::Context;
use crate::engine::lease::{Lease, ShareId};
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The common part of [`Guard`](crate::Guard), [`Permits`](crate::Permits) and
/// [`Leadership`](crate::Leadership): the owner of what is held, the rest of its lease, and whether it is
/// lost.
///
/// All three dereference to it, so a function that takes `&Held` accepts each of them. Such a function cannot
/// release what is held.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// async fn copy(held: &kvlock::Held) -> Result<u64, kvlock::Error> {
///     held.run_until_lost(async { 42 }).await
/// }
///
/// let guard = client.lock("orders:42").acquire().await?;
/// copy(&guard).await?;
/// let permits = client.semaphore("licences").acquire().await?;
/// copy(&permits).await?;
/// # Ok(()) }
/// ```
pub struct Held {
    pub(super) inner: Arc<Context>,
    pub(super) lease: Arc<Lease>,
    pub(super) share: ShareId,
}

impl Held {
    /// Returns the name of the lock or semaphore.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.lease.held_lock.key
    }

    /// Returns the owner, as the server knows it: `<client uuid>:<n>`, or the owner that was passed to
    /// [`Lock::adopt`](crate::Lock::adopt).
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.lease.held_lock.owner
    }

    /// Returns the time for which the holder may rely on the lock without another renewal; zero if it is
    /// lost.
    ///
    /// This is less than the rest of the lease at the server. The lease is counted from a moment no
    /// later than its start at the server, less 1 % for clocks that differ, 2 ms for rounding, and the
    /// [`margin`](crate::Builder::margin). If the lock is [bound](crate::Lock::bound), the session
    /// limits the time too.
    #[must_use]
    pub fn lease_left(&self) -> Duration {
        self.lease.left()
    }

    /// Returns whether the lock is lost. Once `true` it stays `true`.
    ///
    /// Cheap: it reads the clock and sends nothing. So it is correct right after the machine was suspended,
    /// before any timer has run.
    ///
    /// ```no_run
    /// # fn example(guard: kvlock::Guard) {
    /// if guard.is_lost() {
    ///     return; // another client may hold it
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lease.is_lost()
    }

    /// Returns why the lock is lost; `None` while it is not lost. Sends nothing, as
    /// [`is_lost`](Self::is_lost).
    ///
    /// ```no_run
    /// # fn example(guard: kvlock::Guard) {
    /// if let Some(why) = guard.why_lost() {
    ///     eprintln!("stopped: {why}");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn why_lost(&self) -> Option<Loss> {
        self.lease.why_lost()
    }

    /// Waits until the lock is lost, and returns the reason. If the lock is never lost, it never completes.
    ///
    /// If the lease is not renewed, it completes a [`margin`](crate::Builder::margin) before the
    /// server can free the lock. It completes at once when the server reports the loss, and within
    /// one second after a suspend in which the lock was lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: kvlock::Guard, stop: tokio::sync::oneshot::Receiver<()>) {
    /// tokio::select! {
    ///     _ = stop => {}
    ///     why = guard.lost() => eprintln!("stopping: {why}"),
    /// }
    /// # }
    /// ```
    pub async fn lost(&self) -> Loss {
        match self.part().ended().await {
            Some(why) => why,
            // Impossible while `self` is borrowed: the guard still exists.
            None => std::future::pending().await,
        }
    }

    /// Returns a handle that reports a loss. It can be cloned and moved into tasks.
    ///
    /// ```no_run
    /// # fn example(guard: &kvlock::Guard) {
    /// let watch = guard.watch();
    /// tokio::spawn(async move { watch.run_until_lost(std::future::pending::<()>()).await });
    /// # }
    /// ```
    #[must_use]
    pub fn watch(&self) -> LossWatch {
        LossWatch::of([self.part()])
    }

    pub(crate) fn part(&self) -> Part {
        let (watchdog, lease) = (self.inner.watchdog.clone(), self.lease.clone());
        Part { watchdog, lease, share: self.share }
    }

    /// Runs the work until it is done or the lock is lost. After a loss the work is dropped at its current
    /// await point.
    ///
    /// The lock is checked before each poll of the work. So after a suspend in which the lock was lost, the
    /// work is not polled again. Between two await points the work is not interrupted.
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if the lock was lost before the work was done.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the work.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: kvlock::Guard) -> Result<(), kvlock::Error> {
    /// let rows = guard.run_until_lost(copy_everything()).await?;
    /// # Ok(()) }
    /// # async fn copy_everything() -> u64 { 0 }
    /// ```
    pub async fn run_until_lost<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        run_until(self.lost(), || self.why_lost(), work).await
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("key", &format_args!("{}", self.key().escape_ascii()))
            .field("owner", &self.owner())
            .field("lease_left", &self.lease_left())
            .finish_non_exhaustive()
    }
}
