//! What the command runs under: a lock, permits of a semaphore, or the leadership.

use kvlock::{Error, Guard, Leadership, Loss, Permits, Token};
use std::time::Duration;

#[derive(Debug)]
pub(crate) enum Held {
    Lock(Guard),
    Permits(Permits),
    Leads(Leadership),
}

impl Held {
    /// What it is called when it is lost.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Self::Lock(_) | Self::Permits(_) => "the lock",
            Self::Leads(_) => "the leadership",
        }
    }

    pub(crate) fn owner(&self) -> &str {
        match self {
            Self::Lock(guard) => guard.owner(),
            Self::Permits(permits) => permits.owner(),
            Self::Leads(leads) => leads.owner(),
        }
    }

    /// Permits have none: those who hold them work at the same time.
    pub(crate) fn token(&self) -> Option<Token> {
        match self {
            Self::Lock(guard) => Some(guard.token()),
            Self::Permits(_) => None,
            Self::Leads(leads) => Some(leads.term()),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Lock(guard) => guard.is_lost(),
            Self::Permits(permits) => permits.is_lost(),
            Self::Leads(leads) => leads.is_lost(),
        }
    }

    pub(crate) async fn lost(&self) -> Loss {
        match self {
            Self::Lock(guard) => guard.lost().await,
            Self::Permits(permits) => permits.lost().await,
            Self::Leads(leads) => leads.lost().await,
        }
    }

    pub(crate) fn lease_left(&self) -> Duration {
        match self {
            Self::Lock(guard) => guard.lease_left(),
            Self::Permits(permits) => permits.lease_left(),
            Self::Leads(leads) => leads.lease_left(),
        }
    }

    /// Gives it back; a lock so much later.
    pub(crate) async fn release_in(self, time: Duration) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.release_in(time).await,
            Self::Permits(permits) => permits.release().await,
            Self::Leads(leads) => leads.resign().await,
        }
    }
}
