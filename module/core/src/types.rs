//! Times and counts, as types that cannot be confused.

/// The most times that an owner may hold a lock.
pub const HOLDS_MAX: u64 = u32::MAX as u64;

/// A length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

/// The shorter of two, of which there may be none. For every command: an iterator over them costs
/// three times that.
pub(crate) fn sooner(one: Option<Millis>, other: Option<Millis>) -> Option<Millis> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, None) => one,
        (None, other) => other,
    }
}

/// A moment on the server's wall clock, in milliseconds since 1970: what a TTL counts in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub u64);

/// A moment on a clock that only goes forward, in milliseconds: what waits are measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoMillis(pub u64);

/// The time of one event, read once from both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall clock, in microseconds since 1970.
    pub unix_us: u64,
    /// The clock that only goes forward.
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
