//! How long locks are waited for, and how long they are held: histograms, if the feature `metrics`
//! is on.

use std::time::Instant;

#[cfg(feature = "metrics")]
macro_rules! record {
    ($name:literal, $seconds:expr) => {
        metrics::histogram!($name).record($seconds)
    };
}
#[cfg(not(feature = "metrics"))]
macro_rules! record {
    ($name:literal, $seconds:expr) => {{
        let _: std::time::Duration = $seconds;
    }};
}

/// Runs from when it was made.
#[derive(Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Of who asked for a lock then, and has it now.
    pub(crate) fn acquired(&self) {
        record!("kvlock_client_wait_seconds", self.0.elapsed());
    }

    /// Of who had it since then, and no longer has.
    pub(crate) fn ended(&self) {
        record!("kvlock_client_hold_seconds", self.0.elapsed());
    }
}
