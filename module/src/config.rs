//! The options of the module, `kvlock.*`.

use kvlock_core::arguments::TEN_YEARS_MS;

use crate::redis::{ConfigKind, ConfigSpec};

/// A day in milliseconds: the longest quarantine. Longer than that nobody should hold up all locks.
const DAY_MS: i64 = 86_400_000;

/// The most waiters, and bound locks: some gigabytes of them.
const MANY: i64 = 10_000_000;

/// When to tell those who wait with Redisson that a lock is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedissonChannel {
    /// By `PUBLISH`; in a cluster by `SPUBLISH`, because there `PUBLISH` goes to every node.
    Auto,
    /// By both.
    Both,
    /// Never.
    No,
}

/// The options that are not limits of the lock table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// The longest lease that a client may ask for, in milliseconds.
    pub(crate) max_lease_ms: u64,
    /// When to tell those who wait with Redisson that a lock is free.
    pub(crate) redisson_channel: RedissonChannel,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_lease_ms: 86_400_000, redisson_channel: RedissonChannel::Auto }
    }
}

/// Which option: its position in [`SPECS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    MaxLeaseMs,
    MaxWaiters,
    MaxWaitersPerKey,
    RedissonChannel,
    Drain,
    QuarantineMs,
    MaxBlocked,
    MaxSessions,
    RedissonTurnMs,
    MaxBound,
}

impl Setting {
    const ALL: [Self; 10] = [
        Self::MaxLeaseMs,
        Self::MaxWaiters,
        Self::MaxWaitersPerKey,
        Self::RedissonChannel,
        Self::Drain,
        Self::QuarantineMs,
        Self::MaxBlocked,
        Self::MaxSessions,
        Self::RedissonTurnMs,
        Self::MaxBound,
    ];

    /// The option at a position of [`SPECS`].
    pub(crate) fn at(index: usize) -> Option<Self> {
        Self::ALL.get(index).copied()
    }
}

/// The options as the server knows them.
pub(crate) const SPECS: &[ConfigSpec] = &[
    ConfigSpec {
        name: c"max-lease-ms",
        kind: ConfigKind::Number(1, TEN_YEARS_MS.cast_signed()),
        default: 86_400_000,
    },
    ConfigSpec { name: c"max-waiters", kind: ConfigKind::Number(1, MANY), default: 1_000_000 },
    ConfigSpec {
        name: c"max-waiters-per-key",
        kind: ConfigKind::Number(1, MANY),
        default: 1_000_000,
    },
    ConfigSpec {
        name: c"redisson-channel",
        kind: ConfigKind::Word(&[c"auto", c"both", c"no"]),
        default: 0,
    },
    ConfigSpec { name: c"drain", kind: ConfigKind::Switch, default: 0 },
    ConfigSpec { name: c"quarantine-ms", kind: ConfigKind::Number(0, DAY_MS), default: 0 },
    ConfigSpec { name: c"max-blocked", kind: ConfigKind::Number(1, 1_000_000), default: 10_000 },
    ConfigSpec { name: c"max-sessions", kind: ConfigKind::Number(1, 1_000_000), default: 10_000 },
    ConfigSpec { name: c"redisson-turn-ms", kind: ConfigKind::Number(0, DAY_MS), default: 250 },
    ConfigSpec { name: c"max-bound", kind: ConfigKind::Number(1, MANY), default: 1_000_000 },
];

impl RedissonChannel {
    const ALL: [Self; 3] = [Self::Auto, Self::Both, Self::No];

    /// The word at a position of its option.
    pub(crate) fn at(index: i64) -> Option<Self> {
        Self::ALL.get(usize::try_from(index).ok()?).copied()
    }

    /// The position of its word.
    pub(crate) fn index(self) -> i64 {
        match self {
            Self::Auto => 0,
            Self::Both => 1,
            Self::No => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_has_its_position() {
        assert_eq!(SPECS.len(), Setting::ALL.len());
        let names: Vec<_> = SPECS.iter().map(|spec| spec.name.to_bytes()).collect();
        for (setting, name) in [
            (Setting::MaxLeaseMs, &b"max-lease-ms"[..]),
            (Setting::MaxWaiters, b"max-waiters"),
            (Setting::MaxWaitersPerKey, b"max-waiters-per-key"),
            (Setting::RedissonChannel, b"redisson-channel"),
            (Setting::Drain, b"drain"),
            (Setting::QuarantineMs, b"quarantine-ms"),
            (Setting::MaxBlocked, b"max-blocked"),
            (Setting::MaxSessions, b"max-sessions"),
            (Setting::RedissonTurnMs, b"redisson-turn-ms"),
            (Setting::MaxBound, b"max-bound"),
        ] {
            assert_eq!(names[setting as usize], name);
            assert_eq!(Setting::at(setting as usize), Some(setting));
        }
        for (index, word) in RedissonChannel::ALL.iter().enumerate() {
            assert_eq!(word.index(), i64::try_from(index).unwrap());
        }
    }
}
