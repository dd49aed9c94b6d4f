//! Waiting for something that a server shows.
//!
//! A test that slept "long enough" for something to happen would be slow on a fast machine and wrong on a
//! slow one. So tests wait with [`until`] and [`until_is`], which sleep only between two checks. Most other
//! sleeps pace a load or are part of a scenario, such as those of [`pass`]. To show that something does *not*
//! happen, tests call [`observe::let_pass`](crate::observe::let_pass).

use std::fmt::Debug;
use std::thread::sleep;
use std::time::{Duration, Instant};

const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Calls `look` until it returns `Ok`, and returns that value. `Err` is what was seen instead; if
/// `deadline` passes, the panic shows the last one.
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

/// Calls `look` until it returns `value`. Panics if `deadline` passes first.
pub fn until_is<T: Debug + PartialEq>(
    what: &str,
    deadline: Duration,
    value: T,
    mut look: impl FnMut() -> T,
) {
    until(what, deadline, || {
        let seen = look();
        if seen == value { Ok(()) } else { Err(format!("{seen:?}")) }
    });
}

/// Sleeps for a fixed time. To wait for an effect that a server shows, use [`until`].
pub fn pass(time: Duration) {
    sleep(time);
}
