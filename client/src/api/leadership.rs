//! The leadership of a candidate.

use crate::api::guard::Guard;
use crate::api::held::Held;
use crate::engine::hold;
use crate::engine::settings::check_value;
use crate::wire::error::Error;
use crate::wire::reply::Token;
use std::ops::Deref;

/// The leadership of a candidate. It ends when it is resigned, dropped or lost.
///
/// It dereferences to [`Held`], with [`lost`](Held::lost), [`run_until_lost`](Held::run_until_lost) and the
/// other methods. When the lock is taken away or deleted, the server reports that at once, and the
/// loss is known within a round trip.
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

    /// Returns the term, which is larger than the terms of all earlier leaders. Send it with each write of
    /// the leader, and let the receiver refuse a smaller one; see [`Token`].
    #[must_use]
    pub fn term(&self) -> Token {
        self.guard.token()
    }

    /// Replaces the leader's value, up to 1,024 bytes. Observers are notified; the term does not change.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if the value is longer; [`Lost`](Error::Lost) if the candidate no longer
    /// leads; network errors, after which observers may see the old or the new value.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the value may or may not have been replaced.
    pub async fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), Error> {
        check_value(value.as_ref())?;
        hold::proclaim(self.guard.inner(), self.guard.lease(), value.as_ref()).await
    }

    /// Resigns. The first waiting candidate leads at once. Returns when the server has answered, or after
    /// the client's [`reply_timeout`](crate::Builder::reply_timeout).
    ///
    /// # Errors
    ///
    /// The errors of [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the candidate resigns in the background.
    pub async fn resign(self) -> Result<(), Error> {
        self.guard.release().await
    }
}

impl Deref for Leadership {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.guard
    }
}
