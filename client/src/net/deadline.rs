//! Deadlines: instants until which something may take.

use std::time::Duration;
use tokio::time::Instant;

/// Returns the instant that is `time` from now. If it is out of range, returns an instant thirty years from
/// now.
pub(crate) fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now + Duration::from_secs(30 * 365 * 86_400))
}

/// Returns the time until `end`, or zero.
pub(crate) fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}
