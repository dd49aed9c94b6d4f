//! The time in which one candidate leads.

use crate::api::guard::Guard;
use crate::engine::hold;
use crate::engine::settings::check_value;
use crate::wire::error::Error;
use crate::wire::reply::Token;
use std::ops::Deref;

/// The time in which a candidate leads: from its election until this is resigned or dropped, or it is
/// lost. Only who leads, or did until just now, has one.
///
/// It is a [`Guard`] of the lock of that name, to which it dereferences: [`lost`](Guard::lost),
/// [`run_until_lost`](Guard::run_until_lost) and all else that can be asked there can be asked here.
/// The server tells when it is taken away, so that this is known within a round trip.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// let leadership = client.election("scheduler").campaign().await?;
/// println!("term {}", leadership.term());
/// leadership.resign().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "dropping a leadership resigns"]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    pub(crate) fn of(guard: Guard) -> Self {
        Self { guard }
    }

    /// The term: larger than that of every leader before. Send it along with what the leader does,
    /// and let who takes it refuse a smaller one; see [`Token`].
    #[must_use]
    pub fn term(&self) -> Token {
        self.guard.token()
    }

    /// Says something else of itself to those who observe, up to 1,024 bytes; the term stays.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if it is longer, [`Lost`](Error::Lost) if it leads no more; those of
    /// the network, after which the one value or the other is shown.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    pub async fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), Error> {
        check_value(value.as_ref())?;
        hold::proclaim(self.guard.inner(), self.guard.lease(), value.as_ref()).await
    }

    /// Leads no more: the first in line does, at once. Returns when the server has answered, and after the
    /// client's [`reply_timeout`](crate::Builder::reply_timeout) at the latest.
    ///
    /// # Errors
    ///
    /// The errors of [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// Dropped, it resigns in the background.
    pub async fn resign(self) -> Result<(), Error> {
        self.guard.release().await
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}
