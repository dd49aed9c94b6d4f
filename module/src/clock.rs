//! The two clocks, read once per event.

use std::sync::OnceLock;
/// Named here, as all time is: a simulation has another one.
pub(crate) use std::time::Instant;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kvlock_core::{MonoMillis, Now};
use rustix::time::{ClockId, clock_gettime};

use crate::redis::Ctx;

/// What time it is.
pub(crate) fn now() -> Now {
    static START: OnceLock<Instant> = OnceLock::new();
    let running = START.get_or_init(Instant::now).elapsed().as_millis();
    Now {
        unix_us: Ctx::date_us().unwrap_or_else(machine_us),
        mono: MonoMillis(u64::try_from(running).unwrap_or(u64::MAX)),
    }
}

/// The machine's date, in microseconds since 1970.
fn machine_us() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    u64::try_from(unix).unwrap_or(u64::MAX)
}

/// The processor time that this thread has used. The time that the kernel gives to others does not count.
pub(crate) fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
