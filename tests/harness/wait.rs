//! Waiting for something that a server shows.
//!
//! This is the only place that sleeps, and only between two looks. A test that slept "long enough"
//! instead would be slow on a fast machine and wrong on a slow one.

use std::thread::sleep;
use std::time::{Duration, Instant};

const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Looks until `look` returns `Ok`, and returns that value. `Err` is what was seen instead; the
/// last of them is in the panic when `deadline` passes.
pub fn until<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(value) => return value,
            Err(seen) if start.elapsed() >= deadline => {
                panic!("waited {deadline:?} until {what}; last seen: {seen}")
            }
            Err(_) => sleep(BETWEEN_LOOKS),
        }
    }
}
