//! The settings of servers and clients that suites compare.

use harness::{Options, Server};
use kvlock::{Builder, Client, Clock};
use std::time::{Duration, Instant};

/// Value of `min-replicas-max-lag`, in seconds. With a smaller value, a primary often refuses writes although
/// its replicas are connected, because they report only once per second.
const MAX_LAG: u64 = 2;

/// Longest time for replicas to confirm a grant.
const CONFIRM: Duration = Duration::from_millis(500);

/// Usual time to live of the clients' sessions, to which locks may be bound. Shorter than the time after which
/// Sentinels replace a server.
pub(crate) const SESSION: Duration = Duration::from_millis(600);

/// Leases with a quarantine, where there are replicas. docs/guarantees.md demands leases longer than 1.5 times
/// the sum of [`MAX_LAG`] and two seconds, so longer than six seconds.
const LONG_LEASES_MS: [u64; 2] = [6200, 7000];

/// Time to live of the clients' sessions with a quarantine, where there are replicas. Must be longer than six
/// seconds, too.
const LONG_SESSION: Duration = Duration::from_millis(6500);

/// A setting of servers and clients. Most are safeguards against lost grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Default,
    MinReplicas,
    AllReplicas,
    MinReplicasToWrite,
    Quarantine,
    /// No safeguard, and clients whose clocks run at half speed: each believes in its lease for too long.
    SlowClock,
    /// No safeguard, and servers with several I/O threads.
    IoThreads,
}

/// A clock that runs at half speed.
#[derive(Debug)]
struct Slow(Instant);

impl Clock for Slow {
    fn now(&self) -> Duration {
        // Not near zero: a client could subtract a duration from it.
        Duration::from_secs(1000) + self.0.elapsed() / 2
    }
}

impl Setting {
    pub(crate) const ALL: [Self; 5] = [
        Self::Default,
        Self::MinReplicas,
        Self::AllReplicas,
        Self::MinReplicasToWrite,
        Self::Quarantine,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::MinReplicas => "min_replicas",
            Self::AllReplicas => "all_replicas",
            Self::MinReplicasToWrite => "min-replicas-to-write",
            Self::Quarantine => "quarantine",
            Self::SlowClock => "slow-clock",
            Self::IoThreads => "io-threads",
        }
    }

    /// Leases in milliseconds: `usual`, or longer ones with a quarantine.
    pub(crate) fn leases_ms(self, usual: &'static [u64]) -> &'static [u64] {
        if self == Self::Quarantine { &LONG_LEASES_MS } else { usual }
    }

    /// Time to live of the clients' sessions, where there are replicas.
    pub(crate) fn session(self) -> Duration {
        if self == Self::Quarantine { LONG_SESSION } else { SESSION }
    }

    /// The options of a server, for leases of at most the given duration and the given number of replicas of
    /// a primary.
    pub(crate) fn options(self, lease: Duration, replicas: u32) -> Options {
        self.extend(Server::options(), lease, replicas)
    }

    /// Adds the options of the setting.
    pub(crate) fn extend(self, options: Options, lease: Duration, replicas: u32) -> Options {
        let few = |options: Options, replicas: u32| {
            options
                .config("min-replicas-to-write", replicas)
                .config("min-replicas-max-lag", MAX_LAG)
        };
        match self {
            Self::Default | Self::MinReplicas | Self::AllReplicas | Self::SlowClock => options,
            Self::MinReplicasToWrite => few(options, 1),
            Self::IoThreads => options.io_threads(3),
            // As docs/guarantees.md demands. All replicas are required, and the quarantine is the longest
            // lease plus the lag plus two seconds.
            Self::Quarantine => {
                let length = lease + Duration::from_secs(MAX_LAG + 2);
                few(options, replicas).module_config("quarantine-ms", length.as_millis())
            }
        }
    }

    /// The builder of a client, for the given number of replicas.
    pub(crate) fn builder(self, replicas: u32) -> Builder {
        let builder = Client::builder().session_ttl(SESSION);
        match self {
            Self::Default | Self::MinReplicasToWrite | Self::IoThreads => builder,
            Self::Quarantine if replicas > 0 => builder.confirm(true).session_ttl(LONG_SESSION),
            Self::Quarantine => builder,
            Self::SlowClock => builder.clock(Slow(Instant::now())),
            Self::MinReplicas => builder.min_replicas(1, CONFIRM),
            Self::AllReplicas => builder.all_replicas(replicas, CONFIRM),
        }
    }
}
