//! What the load generators in Rust have in common. `bench/peers/README.md` tells the protocol that
//! these and those in other languages speak with `compare`.
//!
//! ```text
//!   compare                       load generator
//!      │  name=value …               │   as arguments; see Args
//!      ├────────────────────────────►│   connects, warms up
//!      │◄──── ready <version> ───────┤
//!      ├── go <start> <end> ────────►│   nanoseconds of CLOCK_MONOTONIC
//!      │                             │   each task: acquire, hold, release, again and again
//!      │◄── <task> <wanted> <got> <releasing> <released>      one line per cycle
//!      │◄──── done ──────────────────┤   and it exits, whatever is still waiting
//! ```
//!
//! With `mode=keep` each task acquires once, and keeps what it has until the process is killed:
//!
//! ```text
//!      │◄──── <first> <last> ────────┤   when the first task had its lock, and the last
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

/// The clock that all processes of the machine share, in nanoseconds.
pub fn now() -> u64 {
    Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap()).as_nanos().try_into().unwrap()
}

/// What one task does its cycles with.
pub trait Session: Send + 'static {
    /// A lock that is held.
    type Held: Send;

    /// Waits until it has the lock.
    fn acquire(&mut self, key: &str) -> impl Future<Output = Self::Held> + Send;

    /// Gives it back, and returns when the server has said so.
    fn release(&mut self, held: Self::Held) -> impl Future<Output = ()> + Send;

    /// Never gives it back: the lease is to end by itself.
    fn abandon(&mut self, held: Self::Held);
}
