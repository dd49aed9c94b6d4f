//! Time: one true time, in microseconds, and clocks that run a little faster or slower.

use crate::redis::here;
use kvlock_core::{MonoMillis, Now};
use std::cell::Cell;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
pub(crate) use tokio::time::Instant;

pub(crate) const MS: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000 * MS;

/// Start of the servers' wall clocks: about three years after 1970.
const EPOCH_US: u64 = 100_000_000_000_000;

/// The true time, which no process in the simulation can read.
#[derive(Debug, Default)]
pub(crate) struct Truth(Cell<u64>);

impl Truth {
    pub(crate) fn now(&self) -> u64 {
        self.0.get()
    }

    pub(crate) fn set(&self, now: u64) {
        self.0.set(now);
    }
}

/// Deviation of a clock's speed in parts per million; positive is fast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate(pub(crate) i64);

impl Rate {
    /// Time by which the clock advances in the given true time.
    pub(crate) fn counts(self, time: u64) -> u64 {
        let more = i128::from(time) * i128::from(self.0) / 1_000_000;
        time.saturating_add_signed(i64::try_from(more).unwrap_or_default())
    }

    /// Shortest true time in which the clock advances by `count`.
    pub(crate) fn takes(self, count: u64) -> u64 {
        let parts = u128::try_from(1_000_000 + self.0).unwrap_or(1);
        u64::try_from((u128::from(count) * 1_000_000).div_ceil(parts)).unwrap_or(u64::MAX)
    }
}

/// The clock of a client. It advances while the client is stopped too. Without the safeguard `FromSending`, it
/// stands still while the client awaits a lease.
#[derive(Debug)]
pub(crate) struct ClientClock {
    begin: Instant,
    rate: Rate,
    still: Mutex<Still>,
}

#[derive(Debug, Default)]
struct Still {
    since: Option<Instant>,
    before: Duration,
}

impl ClientClock {
    pub(crate) fn new(begin: Instant, rate: Rate) -> Self {
        Self { begin, rate, still: Mutex::default() }
    }

    pub(crate) fn stand_still(&self, stands: bool) {
        let mut still = self.still.lock().unwrap_or_else(PoisonError::into_inner);
        if stands {
            still.since.get_or_insert_with(Instant::now);
        } else if let Some(since) = still.since.take() {
            still.before += since.elapsed();
        }
    }
}

impl kvlock::Clock for ClientClock {
    fn now(&self) -> Duration {
        let still = self.still.lock().unwrap_or_else(PoisonError::into_inner);
        let now = still.since.unwrap_or_else(Instant::now);
        let counted = now.saturating_duration_since(self.begin + still.before);
        // A monotonic clock can start at any value.
        Duration::from_secs(1_000) + Duration::from_micros(self.rate.counts(micros(counted)))
    }
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Both clocks of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerClock {
    pub(crate) rate: Rate,
    /// Time by which the wall clock is ahead of a clock that was set right. Negative if it is behind.
    pub(crate) ahead_us: i64,
}

impl ServerClock {
    pub(crate) fn at(self, truth: u64) -> Now {
        let counted = self.rate.counts(truth);
        let unix_us = (EPOCH_US + counted).saturating_add_signed(self.ahead_us);
        Now { unix_us, mono: MonoMillis(counted / MS) }
    }
}

/// The time that the module reads.
pub(crate) fn now() -> Now {
    here(|host| host.now)
}

/// The processor time that the module has used: none, in virtual time.
pub(crate) fn processor_time() -> Duration {
    Duration::ZERO
}
