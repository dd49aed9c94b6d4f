//! What the command runs under: a lock, or permits of a semaphore.

use kvlock::{Error, Guard, Loss, Permits, Token};
use std::time::Duration;

#[derive(Debug)]
pub(crate) enum Held {
    Lock(Guard),
    Permits(Permits),
}

impl Held {
    pub(crate) fn owner(&self) -> &str {
        match self {
            Self::Lock(guard) => guard.owner(),
            Self::Permits(permits) => permits.owner(),
        }
    }

    /// Permits have none: those who hold them work at the same time.
    pub(crate) fn token(&self) -> Option<Token> {
        match self {
            Self::Lock(guard) => Some(guard.token()),
            Self::Permits(_) => None,
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Lock(guard) => guard.is_lost(),
            Self::Permits(permits) => permits.is_lost(),
        }
    }

    pub(crate) async fn lost(&self) -> Loss {
        match self {
            Self::Lock(guard) => guard.lost().await,
            Self::Permits(permits) => permits.lost().await,
        }
    }

    pub(crate) fn lease_left(&self) -> Duration {
        match self {
            Self::Lock(guard) => guard.lease_left(),
            Self::Permits(permits) => permits.lease_left(),
        }
    }

    /// Gives it back; a lock so much later.
    pub(crate) async fn release_in(self, time: Duration) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.release_in(time).await,
            Self::Permits(permits) => permits.release().await,
        }
    }
}
