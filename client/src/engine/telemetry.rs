//! Telemetry: `tracing` spans and events, and counters and histograms if the feature `metrics` is enabled.
//! The crate documentation lists names and meanings.

use crate::engine::lease::held_lock::HeldLock;
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use crate::wire::reply::Token;
use std::time::{Duration, Instant};
use tracing::Instrument;

#[cfg(feature = "metrics")]
macro_rules! count {
    ($name:literal, $by:expr) => {
        metrics::counter!($name).increment($by)
    };
}
#[cfg(feature = "metrics")]
macro_rules! record {
    ($name:literal, $time:expr) => {
        metrics::histogram!($name).record($time)
    };
}
#[cfg(not(feature = "metrics"))]
macro_rules! count {
    ($name:literal, $what:expr) => {
        let _ = $what;
    };
}
#[cfg(not(feature = "metrics"))]
use count as record;

fn readable(key: &[u8]) -> impl std::fmt::Display + '_ {
    key.escape_ascii()
}

pub(crate) fn acquire_span(key: &[u8]) -> tracing::Span {
    let token = tracing::field::Empty;
    tracing::debug_span!("kvlock.acquire", key = %readable(key), token)
}

/// Records the token of a successful acquire in its span.
pub(crate) fn granted(span: &tracing::Span, token: Token) {
    span.record("token", token.value());
}

pub(crate) fn release_span(held_lock: &HeldLock) -> tracing::Span {
    let token = held_lock.token.value();
    tracing::debug_span!("kvlock.release", key = %readable(&held_lock.key), token)
}

/// Runs the work in the span. A disabled span costs nothing.
pub(crate) async fn inside<F: Future + Unpin>(span: &tracing::Span, work: F) -> F::Output {
    if span.is_disabled() { work.await } else { work.instrument(span.clone()).await }
}

pub(crate) fn acquired(held_lock: &HeldLock) {
    count!("kvlock_client_acquired_total", 1);
    tracing::debug!(owner = %held_lock.owner, token = %held_lock.token, "acquired");
}

pub(crate) fn reentered(held_lock: &HeldLock) {
    count!("kvlock_client_reentered_total", 1);
    tracing::debug!(owner = %held_lock.owner, token = %held_lock.token, "re-entered");
}

pub(crate) fn refused() {
    count!("kvlock_client_refused_total", 1);
    tracing::debug!("refused");
}

pub(crate) fn waiting() {
    count!("kvlock_client_waits_total", 1);
    tracing::debug!("queued");
}

pub(crate) fn trouble(trouble: &Error, pause: Duration) {
    count!("kvlock_client_troubles_total", 1);
    tracing::warn!(%trouble, ?pause, "trouble: trying again");
}

pub(crate) fn withdrawn(key: &[u8], owner: &str) {
    count!("kvlock_client_withdrawn_total", 1);
    tracing::debug!(key = %readable(key), owner, "an acquire was dropped: cancelling and releasing what it may have left");
}

pub(crate) fn released(held_lock: &HeldLock) {
    count!("kvlock_client_released_total", 1);
    tracing::debug!(key = %readable(&held_lock.key), owner = %held_lock.owner, "released");
}

pub(crate) fn not_released(held_lock: &HeldLock, trouble: &Error) {
    tracing::warn!(key = %readable(&held_lock.key), owner = %held_lock.owner, %trouble, "not released");
}

pub(crate) fn renewed(held_lock: &HeldLock) {
    count!("kvlock_client_renewed_total", 1);
    tracing::trace!(key = %readable(&held_lock.key), owner = %held_lock.owner, "renewed");
}

pub(crate) fn renewals_failed(many: usize, trouble: &Error) {
    count!("kvlock_client_renewals_failed_total", u64::try_from(many).unwrap_or(u64::MAX));
    tracing::warn!(many, %trouble, "not renewed: trying again");
}

pub(crate) fn lost(held_lock: &HeldLock, why: Loss) {
    count!("kvlock_client_lost_total", 1);
    tracing::warn!(
        key = %readable(&held_lock.key), owner = %held_lock.owner, token = %held_lock.token, %why, "lost"
    );
}

/// Measures the time since its creation.
#[derive(Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Records the time from the request to the grant.
    pub(crate) fn acquired(&self) {
        record!("kvlock_client_wait_seconds", self.0.elapsed());
    }

    /// Records the time from the grant to the loss, or to the release of the last hold.
    pub(crate) fn ended(&self) {
        record!("kvlock_client_hold_seconds", self.0.elapsed());
    }
}
