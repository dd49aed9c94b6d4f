//! Limits of a call: the time limit of its caller, and the time for which errors are retried.

use crate::engine::telemetry;
use crate::wire::error::Error;
use crate::wire::request::LONGEST;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// If the server still answered this long after the start of a wait, the wait has reached the server. Then
/// the time for retries starts again. Otherwise a network that cuts silent connections every minute would
/// end a long wait.
const REACHED: Duration = Duration::from_secs(1);

/// Upper limit of the first pause after a wait that was refused at once or cancelled.
/// The limit doubles with each pause, up to [`POLL_MAX`]. A pause is at least half of its limit.
const POLL_MIN: Duration = Duration::from_millis(10);
const POLL_MAX: Duration = Duration::from_millis(300);

/// A pause between retries is at most the time since the first error divided by this, but that
/// limit is at least [`PAUSE_MIN`] and at most [`PAUSE_MAX`]. So an acquire that waits for a
/// failover of two seconds retries at most an eighth of a second after its end.
const PART: u32 = 16;
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Time limit of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// Does not wait.
    Now,
    Until(Instant),
    Never,
}

impl Limit {
    /// Returns the limit for a timeout. A timeout of zero does not wait.
    pub(crate) fn within(timeout: Duration) -> Self {
        if timeout.is_zero() {
            return Self::Now;
        }
        // No limit if the timeout is longer than a server accepts, or too long for the clock.
        let end = Instant::now().checked_add(timeout).filter(|_| timeout <= LONGEST);
        end.map_or(Self::Never, Self::Until)
    }

    pub(crate) fn left(self) -> Option<Duration> {
        match self {
            Self::Now => Some(Duration::ZERO),
            Self::Until(end) => Some(end.saturating_duration_since(Instant::now())),
            Self::Never => None,
        }
    }

    pub(crate) fn is_over(self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// Waits for a future, but no longer than the limit. `None` if the limit passes first.
    pub(crate) async fn wait_for<T>(self, what: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = what => Some(done),
            () = self.passes() => None,
        }
    }

    /// Runs `what`, but for at most `reply_timeout` after the limit, whatever it waits for. The caller pins
    /// `what`, since it is too large to move.
    pub(crate) async fn hold<T>(
        self,
        reply_timeout: Duration,
        what: Pin<&mut impl Future<Output = Result<T, Error>>>,
    ) -> Result<T, Error> {
        let Some(left) = self.left() else { return what.await };
        timeout(left.saturating_add(reply_timeout), what).await.unwrap_or(Err(Error::Timeout))
    }

    async fn passes(self) {
        match self {
            Self::Now => {}
            Self::Until(end) => sleep_until(end).await,
            Self::Never => std::future::pending().await,
        }
    }
}

/// Pauses before the next request, after a wait that was refused at once or cancelled.
pub(crate) async fn pause_before_asking(limit: Limit, polls: &mut u32) {
    let longest = POLL_MAX.min(POLL_MIN * 2_u32.saturating_pow(*polls));
    *polls += 1;
    limit.wait_for(sleep(between_half_and(longest))).await;
}

/// Temporary errors of a call, and how long they have lasted.
pub(crate) struct Trouble {
    limit: Limit,
    since: Option<Instant>,
    /// `true` if an attempt has failed.
    failed: bool,
}

impl Trouble {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { limit, since: None, failed: false }
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.limit);
    }

    /// Records the failure of a wait that was in the queue since `since`. The errors count from `heard`,
    /// when the server last answered. If that was right after the start of the wait, earlier errors count
    /// too.
    pub(crate) fn record_failed_wait(&mut self, since: Instant, heard: Instant) {
        if heard.saturating_duration_since(since) >= REACHED {
            self.reset();
        }
        self.since.get_or_insert_with(|| heard.max(since));
    }

    /// Returns `Ok` when the next attempt is due, or the error if no further attempt is allowed. Pauses
    /// first, except after the first failure. `news` ends the pause.
    pub(crate) async fn wait_to_retry(
        &mut self,
        error: Error,
        patience: Duration,
        news: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let first = !std::mem::replace(&mut self.failed, true);
        let lasts = self.since.get_or_insert_with(Instant::now).elapsed();
        let again = match self.limit {
            // The connection may have been closed while it was idle.
            Limit::Now => first && matches!(error, Error::Connection(_)),
            Limit::Until(_) | Limit::Never => {
                error.is_passing() && !self.limit.is_over() && lasts < patience
            }
        };
        if !again {
            return Err(error);
        }
        if !first {
            let pause = pause_after(lasts);
            telemetry::trouble(&error, pause);
            self.limit.wait_for(sleep_until_changed(pause, news)).await;
        }
        Ok(())
    }
}

/// Returns the pause before the next attempt, given the time since the first error.
pub(crate) fn pause_after(lasts: Duration) -> Duration {
    between_half_and((lasts / PART).clamp(PAUSE_MIN, PAUSE_MAX))
}

/// Sleeps for `pause`, or until `news` completes.
pub(crate) async fn sleep_until_changed(pause: Duration, news: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = sleep(pause) => {}
        () = news => {}
    }
}

/// Returns a random duration from half of `longest` to `longest`, so that tasks that began together do not
/// stay in step.
fn between_half_and(longest: Duration) -> Duration {
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn an_error_is_rechecked_soon_after_it_ends_but_not_often() {
        let (begun, mut trouble, mut tries) = (Instant::now(), Trouble::new(Limit::Never), 0);
        loop {
            let before = begun.elapsed();
            if trouble.wait_to_retry(Error::Timeout, PATIENCE, pending()).await.is_err() {
                break;
            }
            tries += 1;
            let pause = begun.elapsed() - before;
            let most = (before / PART).clamp(PAUSE_MIN, PAUSE_MAX);
            // Timers count whole milliseconds.
            assert!(pause <= most + Duration::from_millis(1), "{pause:?} after {before:?}");
        }
        assert!((60..300).contains(&tries), "{tries} in {PATIENCE:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_ends_the_pause() {
        let (begun, mut trouble) = (Instant::now(), Trouble::new(Limit::Never));
        for _ in 0..3 {
            trouble.wait_to_retry(Error::Timeout, PATIENCE, async {}).await.unwrap();
        }
        assert!(begun.elapsed() < PAUSE_MIN / 2, "{:?}", begun.elapsed());
    }
}
