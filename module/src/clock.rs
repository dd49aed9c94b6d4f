//! The wall clock and the monotonic clock.

use std::sync::OnceLock;
/// Exported from here, so that a simulation can replace all clocks outside `redis/` in one place.
pub(crate) use std::time::Instant;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kvlock_core::{MonoMillis, Now};
use nix::time::{ClockId, clock_gettime};

use crate::redis::Ctx;

/// Returns the current time of both clocks. The wall clock is the server's own, if the server has a function
/// for it. The monotonic clock counts from the first call.
pub(crate) fn now() -> Now {
    static START: OnceLock<Instant> = OnceLock::new();
    let running = START.get_or_init(Instant::now).elapsed().as_millis();
    Now {
        unix_us: Ctx::date_us().unwrap_or_else(machine_us),
        mono: MonoMillis(u64::try_from(running).unwrap_or(u64::MAX)),
    }
}

/// Returns the time of the machine's wall clock, in microseconds since 1970.
fn machine_us() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    u64::try_from(unix).unwrap_or(u64::MAX)
}

/// Returns the processor time that this thread has used. Excludes time in which the kernel runs other
/// threads.
pub(crate) fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
