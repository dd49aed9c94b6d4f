//! The options of the module, `kvlock.*`.

use kvlock_core::Millis;
use kvlock_core::arguments::TEN_YEARS_MS;

use crate::redis::{ConfigKind, ConfigSpec};

/// One day in milliseconds: the default of `max-lease-ms`, and the highest value of `quarantine-ms`.
const DAY_MS: i64 = 86_400_000;

/// Highest value of `max-waiters`, `max-waiters-per-key` and `max-bound`. Ten million waiters need some
/// gigabytes of memory.
const MANY: i64 = 10_000_000;

/// Way of announcing to Redisson's waiters that a lock is free, or that it ends sooner than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedissonChannel {
    /// With `PUBLISH`, but in a cluster with `SPUBLISH`: a `PUBLISH` would be sent to every node of the
    /// cluster.
    Auto,
    /// With both `PUBLISH` and `SPUBLISH`.
    Both,
    /// Not at all.
    No,
}

/// The values of the options that the lock table does not keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// Longest lease that a client may request, in milliseconds.
    pub(crate) max_lease_ms: u64,
    /// Way of announcing a lock to Redisson's waiters.
    pub(crate) redisson_channel: RedissonChannel,
    /// `true` if the module declares to the server that saves without a fork are allowed.
    pub(crate) forkless_saves: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_lease_ms: DAY_MS.unsigned_abs(),
            redisson_channel: RedissonChannel::Auto,
            forkless_saves: false,
        }
    }
}

/// Declares an option that is a limit of the lock table.
macro_rules! limit {
    ($name:literal, $field:ident, $most:expr, $default:expr) => {
        ConfigSpec {
            name: $name,
            kind: ConfigKind::Number(1, $most),
            default: $default,
            get: |server| i64::try_from(server.table.limits.$field).unwrap_or(i64::MAX),
            set: |server, value| {
                server.table.limits.$field = usize::try_from(value).unwrap_or(usize::MAX);
            },
        }
    };
}

/// The options. Before `set` is called, the server or [`ConfigSpec`]'s parser has checked the range of the
/// value.
pub(crate) const SPECS: &[ConfigSpec] = &[
    ConfigSpec {
        name: c"max-lease-ms",
        kind: ConfigKind::Number(1, TEN_YEARS_MS.cast_signed()),
        default: DAY_MS,
        get: |server| server.config.max_lease_ms.cast_signed(),
        set: |server, value| server.config.max_lease_ms = value.unsigned_abs(),
    },
    limit!(c"max-waiters", waiters, MANY, 1_000_000),
    limit!(c"max-waiters-per-key", waiters_per_key, MANY, 1_000_000),
    limit!(c"max-blocked", blocked, 1_000_000, 10_000),
    limit!(c"max-sessions", sessions, 1_000_000, 10_000),
    limit!(c"max-bound", bound, MANY, 1_000_000),
    limit!(c"user-share", user_share, 100, 50),
    ConfigSpec {
        name: c"redisson-channel",
        kind: ConfigKind::Word(&[c"auto", c"both", c"no"]),
        default: 0,
        get: |server| server.config.redisson_channel as i64,
        set: |server, value| {
            server.config.redisson_channel = match value {
                1 => RedissonChannel::Both,
                2 => RedissonChannel::No,
                _ => RedissonChannel::Auto,
            };
        },
    },
    ConfigSpec {
        name: c"drain",
        kind: ConfigKind::Switch,
        default: 0,
        get: |server| i64::from(server.table.limits.draining),
        set: |server, value| server.table.limits.draining = value != 0,
    },
    ConfigSpec {
        name: c"quarantine-ms",
        kind: ConfigKind::Number(0, DAY_MS),
        default: 0,
        get: |server| server.table.quarantine().0.cast_signed(),
        set: |server, value| server.table.set_quarantine(Millis(value.unsigned_abs())),
    },
    ConfigSpec {
        name: c"forkless-saves",
        kind: ConfigKind::Switch,
        default: 0,
        get: |server| i64::from(server.config.forkless_saves),
        set: |server, value| server.config.forkless_saves = value != 0,
    },
    ConfigSpec {
        name: c"redisson-turn",
        kind: ConfigKind::Word(&[c"share", c"no"]),
        default: 0,
        get: |server| i64::from(!server.table.shares_with_redisson()),
        set: |server, value| server.table.share_with_redisson(value == 0),
    },
];
