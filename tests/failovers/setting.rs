//! The settings that are compared, and what is promised of each.

use crate::scenario::Scenario;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use harness::{Kind, Options, Server};
use kvlock::{Builder, Client};
use std::time::Duration;

/// For how long a primary without replicas goes on under `min-replicas-to-write`, in seconds: less
/// is often refused for nothing, because replicas report once a second.
const MAX_LAG: u64 = 2;

/// How long replicas may take to confirm.
const CONFIRM: Duration = Duration::from_millis(500);

/// What somebody does against lost grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Default,
    MinReplicas,
    AllReplicas,
    MinReplicasToWrite,
    Quarantine,
}

/// How many tries may see two clients that both believe that they hold a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// None: that is promised.
    None,
    /// Each: the scenario is made for it. It needs failovers that are over before a lease is.
    Each,
    /// That is not said.
    Any,
}

impl ValueEnum for Setting {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
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
        }
    }

    /// What a server is started with, where leases are that long.
    pub(crate) fn options(self, lease: Duration) -> Options {
        let options = Server::options().kind(&Kind::chosen());
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

    /// How a client is made, where there are so many replicas.
    pub(crate) fn builder(self, replicas: u32) -> Builder {
        let builder = Client::builder().patience(Duration::from_secs(60));
        match self {
            Self::Default | Self::MinReplicasToWrite | Self::Quarantine => builder,
            Self::MinReplicas => builder.min_replicas(1, CONFIRM),
            Self::AllReplicas => builder.all_replicas(replicas, CONFIRM),
        }
    }

    pub(crate) fn expected(self, scenario: Scenario) -> Expected {
        match (scenario, self) {
            (Scenario::Coordinated, _) | (Scenario::Clocks, Self::Quarantine) => Expected::None,
            (Scenario::Clocks, _) => Expected::Any,
            (Scenario::LostLink | Scenario::Stale, Self::Default | Self::MinReplicasToWrite)
            | (Scenario::Stale, Self::MinReplicas)
            | (Scenario::Paused | Scenario::Partition, Self::Default)
            | (Scenario::Partition, Self::MinReplicasToWrite) => Expected::Each,
            (Scenario::LostLink, Self::MinReplicas)
            | (Scenario::LostLink | Scenario::Stale | Scenario::Partition, Self::Quarantine)
            | (_, Self::AllReplicas) => Expected::None,
            (Scenario::Paused | Scenario::Partition | Scenario::Rolling, _) => Expected::Any,
        }
    }
}
