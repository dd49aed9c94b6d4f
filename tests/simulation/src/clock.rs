//! Time: one true time, in microseconds, and the clocks that run a little faster or slower.

use kvlock_core::{MonoMillis, Now};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) const MS: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000 * MS;

/// Where the servers' wall clocks begin: about three years after 1970.
const EPOCH_US: u64 = 100_000_000_000_000;

/// The true time, which nobody in the simulation knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth(Arc<AtomicU64>);

impl Truth {
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }
}

/// How fast a clock runs, in parts per million more than it should.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate(pub(crate) i64);

impl Rate {
    /// What the clock counts in so long a time.
    fn counts(self, time: u64) -> u64 {
        let more = i128::from(time) * i128::from(self.0) / 1_000_000;
        time.saturating_add_signed(i64::try_from(more).unwrap_or_default())
    }

    /// How long it takes until the clock has counted so much, and not less.
    pub(crate) fn takes(self, count: u64) -> u64 {
        let parts = u128::try_from(1_000_000 + self.0).unwrap_or(1);
        u64::try_from((u128::from(count) * 1_000_000).div_ceil(parts)).unwrap_or(u64::MAX)
    }
}

/// The clock of a client, which counts on while the client is stopped.
#[derive(Debug)]
pub(crate) struct ClientClock {
    pub(crate) truth: Truth,
    pub(crate) rate: Rate,
    pub(crate) begin: Duration,
}

impl kvlock::Clock for ClientClock {
    fn now(&self) -> Duration {
        self.begin + Duration::from_micros(self.rate.counts(self.truth.now()))
    }
}

/// Both clocks of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerClock {
    pub(crate) rate: Rate,
    /// How far the wall clock is ahead.
    pub(crate) ahead_us: i64,
}

impl ServerClock {
    pub(crate) fn at(self, truth: u64) -> Now {
        let counted = self.rate.counts(truth);
        let unix_us = (EPOCH_US + counted).saturating_add_signed(self.ahead_us);
        Now { unix_us, mono: MonoMillis(counted / MS) }
    }
}
