//! What happens to the servers.

use crate::seen::Seen;
use crate::setting::Setting;
use crate::{clocks, load, lost, split};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use tokio::runtime::Runtime;

/// What is done to the servers in a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    LostLink,
    Stale,
    Paused,
    Partition,
    Coordinated,
    Rolling,
    Clocks,
}

impl ValueEnum for Scenario {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

impl Scenario {
    pub(crate) const ALL: [Self; 7] = [
        Self::LostLink,
        Self::Stale,
        Self::Paused,
        Self::Partition,
        Self::Coordinated,
        Self::Rolling,
        Self::Clocks,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LostLink => "lost-link",
            Self::Stale => "stale",
            Self::Paused => "paused",
            Self::Partition => "partition",
            Self::Coordinated => "coordinated",
            Self::Rolling => "rolling",
            Self::Clocks => "clocks",
        }
    }

    /// Whether it is made so that a grant dies with its primary.
    pub(crate) fn loses(self) -> bool {
        matches!(self, Self::LostLink | Self::Stale)
    }

    /// Whether it says something of that setting.
    pub(crate) fn is_for(self, setting: Setting) -> bool {
        self != Self::Clocks || matches!(setting, Setting::Default | Setting::Quarantine)
    }

    pub(crate) fn run(self, setting: Setting, number: u64, runtime: &Runtime) -> Seen {
        match self {
            Self::LostLink => lost::link(setting, runtime),
            Self::Stale => lost::stale(setting, runtime),
            Self::Paused => split::paused(setting, runtime),
            Self::Partition => split::partition(setting, runtime),
            Self::Coordinated => load::coordinated(setting, runtime),
            Self::Rolling => load::rolling(setting, runtime),
            Self::Clocks => clocks::apart(setting, number, runtime),
        }
    }
}
