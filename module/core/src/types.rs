//! Types for durations and for the times of the two clocks, and the largest number of holds.

/// Largest number of holds that kvlock grants an owner. A script of another library may write more.
pub const HOLDS_MAX: u64 = u32::MAX as u64;

/// A length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

/// Returns the shorter of two optional times. This runs for every command, and an iterator over
/// both takes three times as long.
pub(crate) fn sooner(one: Option<Millis>, other: Option<Millis>) -> Option<Millis> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, None) => one,
        (None, other) => other,
    }
}

/// Time on the server's wall clock, in milliseconds since 1970. TTLs use this clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub u64);

/// Time on the monotonic clock, in milliseconds. Waits are measured with this clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoMillis(pub u64);

/// The time of one event, read once from both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall clock, in microseconds since 1970.
    pub unix_us: u64,
    /// Monotonic clock.
    pub mono: MonoMillis,
}

impl Now {
    /// The wall clock in milliseconds.
    #[must_use]
    pub fn unix(self) -> UnixMillis {
        UnixMillis(self.unix_us / 1000)
    }
}

impl UnixMillis {
    /// The moment `length` later, at most the largest one that the type can represent.
    #[must_use]
    pub fn plus(self, length: Millis) -> Self {
        Self(self.0.saturating_add(length.0))
    }

    /// Time from `earlier` to this; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl MonoMillis {
    /// The moment `length` later, at most the largest one that the type can represent.
    #[must_use]
    pub fn plus(self, length: Millis) -> Self {
        Self(self.0.saturating_add(length.0))
    }

    /// Time from `earlier` to this; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

/// The first moment at which the server treats a key with this deadline as expired.
pub(crate) fn after(until: UnixMillis) -> UnixMillis {
    until.plus(Millis(1))
}
