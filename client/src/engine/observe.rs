//! What the crate tells about itself: events of `tracing`, and counters if the feature `metrics` is
//! on. Names and meanings stand in the crate's documentation.

use crate::engine::loss::Loss;
use crate::engine::tenure::Tenure;
use crate::wire::error::Error;
use std::time::Duration;

#[cfg(feature = "metrics")]
macro_rules! count {
    ($name:literal, $by:expr) => {
        metrics::counter!($name).increment($by)
    };
}
#[cfg(not(feature = "metrics"))]
macro_rules! count {
    ($name:literal, $by:expr) => {{
        let _: u64 = $by;
    }};
}

fn readable(key: &[u8]) -> impl std::fmt::Display + '_ {
    key.escape_ascii()
}

pub(crate) fn acquire_span(key: &[u8]) -> tracing::Span {
    tracing::debug_span!("kvlock.acquire", key = %readable(key))
}

pub(crate) fn acquired(tenure: &Tenure) {
    count!("kvlock_acquired_total", 1);
    tracing::debug!(owner = %tenure.owner, token = %tenure.token, "acquired");
}

pub(crate) fn reentered(tenure: &Tenure) {
    count!("kvlock_reentered_total", 1);
    tracing::debug!(owner = %tenure.owner, token = %tenure.token, "re-entered");
}

pub(crate) fn refused() {
    count!("kvlock_refused_total", 1);
    tracing::debug!("refused");
}

pub(crate) fn waiting() {
    count!("kvlock_waits_total", 1);
    tracing::debug!("in line");
}

pub(crate) fn trouble(trouble: &Error, pause: Duration) {
    count!("kvlock_troubles_total", 1);
    tracing::warn!(%trouble, ?pause, "trouble: trying again");
}

pub(crate) fn withdrawn(key: &[u8], owner: &str) {
    count!("kvlock_withdrawn_total", 1);
    tracing::debug!(key = %readable(key), owner, "an acquire was dropped: making sure that nothing is left");
}

pub(crate) fn released(tenure: &Tenure) {
    count!("kvlock_released_total", 1);
    tracing::debug!(key = %readable(&tenure.key), owner = %tenure.owner, "released");
}

pub(crate) fn not_released(tenure: &Tenure, trouble: &Error) {
    tracing::warn!(key = %readable(&tenure.key), owner = %tenure.owner, %trouble, "not released");
}

pub(crate) fn renewed(tenure: &Tenure) {
    count!("kvlock_renewed_total", 1);
    tracing::trace!(key = %readable(&tenure.key), owner = %tenure.owner, "renewed");
}

pub(crate) fn renewals_failed(many: usize, trouble: &Error) {
    count!("kvlock_renewals_failed_total", u64::try_from(many).unwrap_or(u64::MAX));
    tracing::warn!(many, %trouble, "not renewed: trying again");
}

pub(crate) fn lost(tenure: &Tenure, why: Loss) {
    count!("kvlock_lost_total", 1);
    tracing::warn!(
        key = %readable(&tenure.key), owner = %tenure.owner, token = %tenure.token, %why, "lost"
    );
}
