//! Staggered attempts, of which the first to succeed wins.

use futures_util::stream::{FuturesUnordered, StreamExt};
use std::time::Duration;
use tokio::time::sleep;

/// Head start of each attempt over the next one. The value is the one that RFC 8305 recommends for
/// connections.
pub(crate) const HEAD_START: Duration = Duration::from_millis(250);

/// Runs attempts until one succeeds, and drops the others. The next attempt begins as soon as any attempt
/// fails, or after the head start of the last one. Returns the last error if all fail, and `None` without
/// attempts.
pub(crate) async fn first_ok<T, E, F>(attempts: impl IntoIterator<Item = F>) -> Option<Result<T, E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut attempts = attempts.into_iter().fuse();
    let (mut in_flight, mut last) = (FuturesUnordered::new(), None);
    loop {
        let next = attempts.next();
        let more = next.is_some();
        in_flight.extend(next);
        tokio::select! {
            biased;
            Some(outcome) = in_flight.next() => match outcome {
                Ok(done) => return Some(Ok(done)),
                Err(error) => last = Some(Err(error)),
            },
            () = sleep(HEAD_START), if more => {}
            else => return last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::future::pending;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_hanging_attempt_delays_the_next_by_its_head_start() {
        let begun = Instant::now();
        let attempts = [true, true, false]
            .map(|hangs| async move { if hangs { pending().await } else { Ok::<_, ()>(7) } });
        assert_eq!(first_ok(attempts).await, Some(Ok(7)));
        assert!(begun.elapsed() >= 2 * HEAD_START && begun.elapsed() < 3 * HEAD_START);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_attempt_starts_the_next_and_the_last_error_is_returned() {
        let (begun, runs) = (Instant::now(), Cell::new(0));
        let attempts = (0..4).map(|number| {
            let runs = &runs;
            async move {
                runs.set(runs.get() + 1);
                Err::<(), _>(number)
            }
        });
        assert_eq!(first_ok(attempts).await, Some(Err(3)));
        assert_eq!((begun.elapsed(), runs.get()), (Duration::ZERO, 4));
        assert_eq!(first_ok(Vec::<std::future::Pending<Result<(), ()>>>::new()).await, None);
    }
}
