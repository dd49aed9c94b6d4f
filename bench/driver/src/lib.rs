//! Common code of the load generators in Rust. `bench/peers/README.md` describes the protocol between
//! `compare` and load generators in all languages.
//!
//! ```text
//!   compare                       load generator
//!      │  name=value …               │   as arguments; see Args
//!      ├────────────────────────────►│   connects, warms up
//!      │◄──── ready <version> ───────┤
//!      ├── go <start> <end> ────────►│   nanoseconds of CLOCK_MONOTONIC
//!      │                             │   each task: acquire, hold, release, repeatedly
//!      │◄── <task> <wanted> <got> <releasing> <released>      one line per cycle
//!      │◄──── done ──────────────────┤   and it exits, even if tasks still wait
//! ```
//!
//! With `mode=keep` each task acquires once, and holds its lock until the process is killed:
//!
//! ```text
//!      │◄──── <first> <last> ────────┤   times at which the first and the last task had their locks
//! ```
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "it measures and prints; whatever goes wrong ends it"
)]

mod args;
pub mod observe;
mod run;

pub use args::Args;
pub use run::drive;

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the time of a clock that all processes of the machine share, in nanoseconds.
pub fn now() -> u64 {
    Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap()).as_nanos().try_into().unwrap()
}

/// The client of one task.
pub trait Session: Send + 'static {
    /// A lock that is held.
    type Held: Send;

    /// Waits until the task has the lock.
    fn acquire(&mut self, key: &str) -> impl Future<Output = Self::Held> + Send;

    /// Releases the lock, and returns when the server has replied.
    fn release(&mut self, held: Self::Held) -> impl Future<Output = ()> + Send;

    /// Abandons the lock without a release, so that its lease ends.
    fn abandon(&mut self, held: Self::Held);
}
