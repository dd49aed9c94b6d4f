//! Spaces the attempts to connect to one node, or to refresh a slot map.

use crate::sync::{Mutex, lock};
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Pause after the first failed attempt. Each further pause is [`FACTOR`] times as long, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(20);
const FACTOR: f32 = 1.5;

/// Longest pause without jitter. Jitter adds up to 100 % of a pause.
const LONGEST: Duration = Duration::from_millis(500);

/// Backoff between attempts to connect to one node, or to refresh a slot map. All tasks that need
/// the connection or the map share it.
///
/// An attempt that begins sets the earliest time of the next one, as if it were certain to fail. Its success
/// removes this delay.
#[derive(Debug)]
pub(crate) struct Pace {
    state: Mutex<State>,
    succeeded: Notify,
}

#[derive(Debug)]
struct State {
    pauses: ExponentialBackoff,
    /// Earliest time of the next attempt.
    next: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        let state = Mutex::new(State { pauses: pauses(), next: None });
        Self { state, succeeded: Notify::new() }
    }
}

impl Pace {
    /// Waits until an attempt may begin.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call counts as no attempt.
    pub(crate) async fn turn(&self) {
        loop {
            let succeeded = self.succeeded.notified();
            let next = {
                let mut state = lock(&self.state);
                let now = Instant::now();
                match state.next.filter(|next| *next > now) {
                    Some(next) => next,
                    None => {
                        state.next = Some(now + state.pauses.next().unwrap_or(LONGEST));
                        return;
                    }
                }
            };
            tokio::select! {
                biased;
                () = sleep_until(next) => {}
                () = succeeded => {}
            }
        }
    }

    /// Records that the node answers: the next attempt may begin at once, and the backoff starts anew.
    pub(crate) fn succeeded(&self) {
        *lock(&self.state) = State { pauses: pauses(), next: None };
        self.succeeded.notify_waiters();
    }
}

fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(FIRST)
        .with_max_delay(LONGEST)
        .with_factor(FACTOR)
        .with_jitter()
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::sleep;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn attempts_are_rare_during_an_outage_and_soon_after_a_short_one() {
        let (pace, begun, mut attempts) = (Pace::default(), Instant::now(), 0);
        while begun.elapsed() < MINUTE {
            let before = begun.elapsed();
            pace.turn().await;
            let pause = begun.elapsed() - before;
            // Jitter can double a pause, and the pause before it may have had none.
            assert!(
                pause <= (before + 2 * FIRST).min(2 * LONGEST) + FIRST,
                "{pause:?} after {before:?}"
            );
            attempts += 1;
        }
        assert!((60..140).contains(&attempts), "{attempts} in {MINUTE:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn many_callers_make_no_more_attempts_than_one() {
        let (pace, attempts) = (Arc::new(Pace::default()), Arc::<AtomicUsize>::default());
        for _ in 0..100 {
            let (pace, attempts) = (pace.clone(), attempts.clone());
            tokio::spawn(async move {
                loop {
                    pace.turn().await;
                    attempts.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        sleep(MINUTE).await;
        let attempts = attempts.load(Ordering::Relaxed);
        assert!((60..140).contains(&attempts), "{attempts} in {MINUTE:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn success_ends_the_pause() {
        let pace = Arc::new(Pace::default());
        for _ in 0..20 {
            pace.turn().await;
        }
        let (waits, begun) = (pace.clone(), Instant::now());
        let waiting = tokio::spawn(async move { waits.turn().await });
        tokio::task::yield_now().await;
        pace.succeeded();
        waiting.await.unwrap();
        assert!(begun.elapsed() < FIRST / 2, "{:?}", begun.elapsed());
    }
}
