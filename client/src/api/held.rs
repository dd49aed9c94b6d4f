//! What everything that is held has in common.

use crate::api::watch::{LossWatch, Part, run_until};
use crate::engine::context::Context;
use crate::engine::lease::{Lease, ShareId};
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A lock, permits or a leadership that is held: whose it is, how long its lease lasts, and whether it is lost.
///
/// [`Guard`](crate::Guard), [`Permits`](crate::Permits) and [`Leadership`](crate::Leadership) dereference to it, so a
/// function that takes `&Held` takes each of them. It cannot release what is held: they do.
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
    /// The name of the lock.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.lease.held_lock.key
    }

    /// The owner, as the server knows it: `<client uuid>:<n>`.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.lease.held_lock.owner
    }

    /// Time for which the lock is surely held without a renewal; zero if it is lost.
    ///
    /// This is less than what the server knows, by the time that the last renewal may have been
    /// under way, 1 % for clocks that differ, and the [`margin`](crate::Builder::margin).
    #[must_use]
    pub fn lease_left(&self) -> Duration {
        self.lease.left()
    }

    /// Returns whether the lock is lost. Once `true` it stays `true`.
    ///
    /// Cheap: it reads the clock and sends nothing. So it is correct even after the machine was
    /// suspended, before any timer has run.
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

    /// Returns why the lock is lost, if it is. Sends nothing, as [`is_lost`](Self::is_lost).
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

    /// Waits until the lock is lost, and says why; for ever if it never is.
    ///
    /// It ends a [`margin`](crate::Builder::margin) before the server can free the lock, or at once
    /// when the server says that it is gone; after a suspend within a second of waking up.
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
            // Not while this is borrowed.
            None => std::future::pending().await,
        }
    }

    /// Returns a handle that tells of a loss, and can be cloned and moved into tasks.
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

    /// Does the work, but stops as soon as the lock is lost: then the work is dropped where it is.
    ///
    /// The lock is looked at before each time the work goes on, so after a suspend no line of it
    /// runs. Between two points at which it waits the work is not interrupted.
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
