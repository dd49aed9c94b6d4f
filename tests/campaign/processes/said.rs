//! What a client process says of itself, a line for each event.
//!
//! Times are nanoseconds of `CLOCK_MONOTONIC`, which all processes of a machine share: the order of
//! events in real time is exact.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Now, on the clock that all processes share.
pub(super) fn now() -> u64 {
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    let now = nix::time::clock_gettime(clock).expect("every Linux has it");
    u64::try_from(Duration::from(now).as_nanos()).expect("584 years after the start")
}

/// A grant: a token is never given twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(super) struct Grant {
    pub(super) key: String,
    pub(super) token: u64,
}

/// One event.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) enum Said {
    /// It is connected. Its owners are called so, with a colon and a number after it.
    Ready { client: String },
    /// From now on it believes that it holds the lock.
    Holds { grant: Grant, owner: String, from: u64, until: u64, date_ms: u64 },
    /// Now it believes in it until then.
    Until { grant: Grant, until: u64 },
    /// It stops believing. It last looked at its guard, and was told that it holds the lock, at
    /// `looked`; what it did next it did in that belief.
    Ends { grant: Grant, at: u64, looked: u64, why: End },
    /// It had lost the lock, and then asked the server, which said that it still has it.
    FalseLoss { grant: Grant },
    /// A write of a holder that believed was refused by the store that looks at tokens.
    Refused { grant: Grant, looked: u64 },
    /// After a loss it went on writing without asking the guard: how often, and how many of these
    /// writes the store took that looks at tokens.
    Careless { grant: Grant, tries: u64, taken: u64 },
    /// A wait for at most so long gave nothing, and took so long.
    Waited { limit_ns: u64, took_ns: u64 },
    /// An acquire or a release failed, as it may when connections are cut.
    Trouble { what: String },
}

/// Why a belief ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum End {
    /// It is about to give the lock back.
    Release,
    /// The guard of a lease that is renewed says that it is lost.
    Lost,
    /// The guard of a lease that nobody renews says so: its time is over.
    Over,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.token)
    }
}
