//! The settings against lost grants that are compared.

use harness::{Options, Server};
use kvlock::{Builder, Client, Clock};
use std::time::{Duration, Instant};

/// Time in seconds for which a primary without replicas accepts writes under `min-replicas-to-write`. A shorter
/// time often refuses writes for no reason, because replicas report once a second.
const MAX_LAG: u64 = 2;

/// Longest time for replicas to confirm.
const CONFIRM: Duration = Duration::from_millis(500);

/// Time to live of sessions that bind locks: shorter than Sentinels need to give a server up.
pub(crate) const SESSION: Duration = Duration::from_millis(600);

/// Leases with a quarantine: longer than one and a half times [`MAX_LAG`] and two seconds.
const LONG_LEASES_MS: [u64; 2] = [5200, 6000];

/// The time to live of such a session with a quarantine: as long as leases have to be there.
const LONG_SESSION: Duration = Duration::from_millis(5500);

/// What is done against lost grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Default,
    MinReplicas,
    AllReplicas,
    MinReplicasToWrite,
    Quarantine,
    /// Nothing, and the clocks of clients run at half their speed: each believes in its lease too long.
    SlowClock,
    /// Nothing, and servers read and write with several threads.
    IoThreads,
}

/// A clock that runs at half the speed of time.
#[derive(Debug)]
struct Slow(Instant);

impl Clock for Slow {
    fn now(&self) -> Duration {
        // Far from the start, where a client may take a moment for long ago.
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

    /// The leases that are asked for where they are usually these, in milliseconds.
    pub(crate) fn leases_ms(self, usual: &'static [u64]) -> &'static [u64] {
        if self == Self::Quarantine { &LONG_LEASES_MS } else { usual }
    }

    /// Time to live of sessions that bind locks, where there are replicas.
    pub(crate) fn session(self) -> Duration {
        if self == Self::Quarantine { LONG_SESSION } else { SESSION }
    }

    /// What a server is started with, where leases are at most that long and a primary has that
    /// many replicas.
    pub(crate) fn options(self, lease: Duration, replicas: u32) -> Options {
        self.extend(Server::options(), lease, replicas)
    }

    /// Adds what the setting needs to those options.
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
            // As docs/guarantees.md demands: all replicas, and the longest lease, the lag and two seconds.
            Self::Quarantine => {
                let length = lease + Duration::from_secs(MAX_LAG + 2);
                few(options, replicas).module_config("quarantine-ms", length.as_millis())
            }
        }
    }

    /// How a client is made, where there are that many replicas.
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
