//! The options of the module, `kvlock.*`.

use kvlock_core::Millis;
use kvlock_core::arguments::TEN_YEARS_MS;

use crate::clock;
use crate::redis::{ConfigKind, ConfigSpec};
use crate::replies::DRAINING;

/// A day in milliseconds. The longest quarantine: no grant is possible during one.
const DAY_MS: i64 = 86_400_000;

/// The most waiters, and bound locks: some gigabytes of them.
const MANY: i64 = 10_000_000;

/// How to announce a free lock to waiters of Redisson.
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
    /// How to announce a free lock to waiters of Redisson.
    pub(crate) redisson_channel: RedissonChannel,
    /// Whether to tell the server that it may save without a fork while this module is loaded.
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

/// A limit of the lock table.
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

/// The options. The server has checked that each value is in its range.
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
        set: |server, value| {
            server.table.limits.draining = value != 0;
            if value != 0 {
                let blocked = server.table.dismiss_all();
                server.answer_all(blocked, &DRAINING);
                server.table.wake_readers();
                server.tell_readers(clock::now());
            }
        },
    },
    ConfigSpec {
        name: c"quarantine-ms",
        kind: ConfigKind::Number(0, DAY_MS),
        default: 0,
        get: |server| server.table.quarantine().0.cast_signed(),
        // Waiters that can be served because of this are served in the server's next round.
        set: |server, value| {
            server.table.set_quarantine(Millis(value.unsigned_abs()), clock::now());
        },
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
