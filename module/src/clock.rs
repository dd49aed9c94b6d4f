//! The two clocks, read once per event.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use kvlock_core::{MonoMillis, Now};

/// What time it is.
pub(crate) fn now() -> Now {
    static START: OnceLock<Instant> = OnceLock::new();
    let running = START.get_or_init(Instant::now).elapsed().as_millis();
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    Now {
        unix_us: u64::try_from(unix).unwrap_or(u64::MAX),
        mono: MonoMillis(u64::try_from(running).unwrap_or(u64::MAX)),
    }
}
