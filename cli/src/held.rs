//! The lock, the permits or the leadership that a command runs under.

use kvlock::{Error, Guard, Leadership, Loss, Permits, Token};
use std::time::Duration;

#[derive(Debug)]
pub(crate) enum Held<'a> {
    Lock(Guard),
    /// The lock of `kvlock once`. [`kvlock::OnceKey`] releases it, not this program.
    Result(&'a Guard),
    Permits(Permits),
    Leadership(Leadership),
}

impl Held<'_> {
    /// Returns the noun that messages use for what is held.
    pub(crate) fn noun(&self) -> &'static str {
        match self {
            Self::Lock(_) | Self::Result(_) | Self::Permits(_) => "the lock",
            Self::Leadership(_) => "the leadership",
        }
    }

    fn held(&self) -> &kvlock::Held {
        match self {
            Self::Lock(guard) => guard,
            Self::Result(guard) => guard,
            Self::Permits(permits) => permits,
            Self::Leadership(leadership) => leadership,
        }
    }

    pub(crate) fn owner(&self) -> &str {
        self.held().owner()
    }

    /// Returns the fencing token. `None` for permits, which have no token.
    pub(crate) fn token(&self) -> Option<Token> {
        match self {
            Self::Lock(guard) => Some(guard.token()),
            Self::Result(guard) => Some(guard.token()),
            Self::Permits(_) => None,
            Self::Leadership(leadership) => Some(leadership.term()),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.held().is_lost()
    }

    pub(crate) async fn lost(&self) -> Loss {
        self.held().lost().await
    }

    pub(crate) fn lease_left(&self) -> Duration {
        self.held().lease_left()
    }

    /// Releases a `Lock` after `time`, and permits or the leadership at once. Does nothing for a `Result`.
    pub(crate) async fn release_in(self, time: Duration) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.release_in(time).await,
            Self::Result(_) => Ok(()),
            Self::Permits(permits) => permits.release().await,
            Self::Leadership(leadership) => leadership.resign().await,
        }
    }
}
