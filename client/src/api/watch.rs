//! A handle that reports a loss, independent of the guard.

use crate::engine::lease::watchdog::Watchdog;
use crate::engine::lease::{Lease, ShareId};
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use futures_util::future::select_all;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Interval at which the lease of a bound lock is checked: its session may end at any time.
const LOOK: Duration = Duration::from_millis(500);

/// Reports whether and when a lock is lost, without borrowing its guard. Give it to spawned tasks that must
/// stop when the lock is lost.
///
/// Created by [`Held::watch`](crate::Held::watch) or
/// [`MultiGuard::watch`](crate::MultiGuard::watch). It does not keep the lock held: when the guard is
/// released or dropped, the watch has [ended](Self::ended).
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// let guard = client.lock("orders:42").acquire().await?;
/// let watch = guard.watch();
/// let copies = tokio::spawn(async move { watch.run_until_lost(copy_everything()).await });
/// copies.await.expect("it does not panic")?;
/// guard.release().await
/// # }
/// # async fn copy_everything() {}
/// ```
#[derive(Clone)]
pub struct LossWatch {
    parts: Arc<[Part]>,
}

/// The hold of one guard that is watched.
pub(crate) struct Part {
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) share: ShareId,
}

impl Part {
    /// Waits until the lock is lost, and returns the reason; `None` when its guard is gone.
    pub(crate) async fn ended(&self) -> Option<Loss> {
        let mut ended = std::pin::pin!(self.lease.ended(self.share));
        loop {
            // The renewals may continue on this runtime if the one that they run on ends.
            self.watchdog.keep_running();
            let pause = if self.lease.was_bound() { LOOK } else { Duration::MAX };
            // Whichever task notices the loss notifies this one. If no task does, for example because the
            // watchdog's runtime is not driven, this timer notices it.
            match tokio::time::timeout(self.lease.left().min(pause), &mut ended).await {
                Ok(end) => return end,
                Err(_) => {
                    if let Some(why) = self.lease.why_lost() {
                        return Some(why);
                    }
                }
            }
        }
    }
}

impl LossWatch {
    pub(crate) fn of(parts: impl IntoIterator<Item = Part>) -> Self {
        Self { parts: parts.into_iter().collect() }
    }

    /// Returns whether the lock, or one of several, is lost. Reads the clock and sends nothing; see
    /// [`Held::is_lost`](crate::Held::is_lost).
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.parts.iter().any(|part| part.lease.is_lost())
    }

    /// Returns why the lock is lost; `None` while it is not lost. Sends nothing.
    #[must_use]
    pub fn why_lost(&self) -> Option<Loss> {
        self.parts.iter().find_map(|part| part.lease.why_lost())
    }

    /// Waits until the lock is lost, and returns the reason; `None` when the guard has been released or
    /// dropped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(guard: &kvlock::Guard, job: tokio::task::AbortHandle) {
    /// let watch = guard.watch();
    /// tokio::spawn(async move {
    ///     if let Some(why) = watch.ended().await {
    ///         eprintln!("stopping: {why}");
    ///         job.abort();
    ///     }
    /// });
    /// # }
    /// ```
    pub async fn ended(&self) -> Option<Loss> {
        if self.parts.is_empty() {
            return None;
        }
        select_all(self.parts.iter().map(|part| Box::pin(part.ended()))).await.0
    }

    /// Waits until the lock is lost, and returns the reason. If the lock is never lost, it never completes.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) -> Loss {
        match self.ended().await {
            Some(why) => why,
            None => std::future::pending().await,
        }
    }

    /// Runs the work until it is done or the lock is lost; see
    /// [`Held::run_until_lost`](crate::Held::run_until_lost). The end of the guard does not stop the work.
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if the lock was lost before the work was done.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the work.
    pub async fn run_until_lost<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        run_until(self.lost(), || self.why_lost(), work).await
    }
}

impl fmt::Debug for LossWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossWatch").field("why_lost", &self.why_lost()).finish_non_exhaustive()
    }
}

/// Polls `work` until it is done or the lock is lost. The loss is checked before each poll.
pub(crate) async fn run_until<F: Future>(
    lost: impl Future<Output = Loss>,
    why_lost: impl Fn() -> Option<Loss>,
    work: F,
) -> Result<F::Output, Error> {
    let mut lost = pin!(lost);
    let mut work = pin!(work);
    poll_fn(|context| {
        if let Poll::Ready(why) = lost.as_mut().poll(context) {
            return Poll::Ready(Err(Error::Lost(why)));
        }
        if let Some(why) = why_lost() {
            return Poll::Ready(Err(Error::Lost(why)));
        }
        work.as_mut().poll(context).map(Ok)
    })
    .await
}
