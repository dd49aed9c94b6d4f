//! The settings against lost grants that are compared.

use harness::{Options, Server};
use kvlock::{Builder, Client};
use std::time::Duration;

/// For how long a primary without replicas goes on under `min-replicas-to-write`, in seconds: less
/// is often refused for nothing, because replicas report once a second.
const MAX_LAG: u64 = 2;

/// How long replicas may take to confirm.
const CONFIRM: Duration = Duration::from_millis(500);

/// How long a session that binds locks is kept of which nobody reads: shorter than Sentinels need to
/// give a server up.
pub(crate) const SESSION: Duration = Duration::from_millis(600);

/// What somebody does against lost grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Default,
    MinReplicas,
    AllReplicas,
    MinReplicasToWrite,
    Quarantine,
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
        }
    }

    /// What a server is started with, where leases are that long.
    pub(crate) fn options(self, lease: Duration) -> Options {
        self.extend(Server::options(), lease)
    }

    /// Adds what the setting needs to those options.
    pub(crate) fn extend(self, options: Options, lease: Duration) -> Options {
        let few = |options: Options| {
            options.config("min-replicas-to-write", 1).config("min-replicas-max-lag", MAX_LAG)
        };
        match self {
            Self::Default | Self::MinReplicas | Self::AllReplicas => options,
            Self::MinReplicasToWrite => few(options),
            Self::Quarantine => {
                let length = lease + Duration::from_secs(MAX_LAG + 1);
                few(options).module_config("quarantine-ms", length.as_millis())
            }
        }
    }

    /// How a client is made, where there are that many replicas.
    pub(crate) fn builder(self, replicas: u32) -> Builder {
        let builder = Client::builder().session_ttl(SESSION);
        match self {
            Self::Default | Self::MinReplicasToWrite | Self::Quarantine => builder,
            Self::MinReplicas => builder.min_replicas(1, CONFIRM),
            Self::AllReplicas => builder.all_replicas(replicas, CONFIRM),
        }
    }
}
