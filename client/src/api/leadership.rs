//! The time in which one candidate leads.

use crate::api::guard::Guard;
use crate::engine::hold;
use crate::engine::loss::Loss;
use crate::engine::settings::check_value;
use crate::wire::error::Error;
use crate::wire::reply::Token;
use std::time::Duration;

/// The time in which a candidate leads: from its election until this is resigned or dropped, or it is
/// lost. Only who leads, or did until just now, has one.
///
/// It is a [`Guard`] of the lock of that name, which the server tells when it is lost: all that is
/// said there of leases, losses and tokens holds here.
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
    ///
    /// ```no_run
    /// # fn example(leadership: &kvlock::Leadership) {
    /// println!("term {}", leadership.term());
    /// # }
    /// ```
    #[must_use]
    pub fn term(&self) -> Token {
        self.guard.token()
    }

    /// Who leads, as the server knows it; see [`Guard::owner`].
    ///
    /// ```no_run
    /// # fn example(leadership: &kvlock::Leadership) {
    /// println!("LOCK.INFO will show {}", leadership.owner());
    /// # }
    /// ```
    #[must_use]
    pub fn owner(&self) -> &str {
        self.guard.owner()
    }

    /// How long it surely leads if the lease is not renewed; see [`Guard::lease_left`].
    ///
    /// ```no_run
    /// # fn example(leadership: &kvlock::Leadership) {
    /// println!("{:?} to go", leadership.lease_left());
    /// # }
    /// ```
    #[must_use]
    pub fn lease_left(&self) -> Duration {
        self.guard.lease_left()
    }

    /// Whether it leads no more. Once `true` it stays so. Reads the clock, and asks nobody.
    ///
    /// ```no_run
    /// # fn example(leadership: &kvlock::Leadership) {
    /// if leadership.is_lost() {
    ///     return;
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// Waits until it leads no more, and says why: a [`margin`](crate::Builder::margin) before
    /// another one can lead, or within a round trip after it was taken away.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(leadership: kvlock::Leadership) {
    /// println!("stopping: {}", leadership.lost().await);
    /// # }
    /// ```
    pub async fn lost(&self) -> Loss {
        self.guard.lost().await
    }

    /// Does the work, but drops it as soon as it leads no more; see [`Guard::run_until_lost`].
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if that was before the work was done.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the work.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(leadership: kvlock::Leadership) -> Result<(), kvlock::Error> {
    /// leadership.run_until_lost(async { /* … */ }).await?;
    /// # Ok(()) }
    /// ```
    pub async fn run_until_lost<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        self.guard.run_until_lost(work).await
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
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(leadership: kvlock::Leadership) -> Result<(), kvlock::Error> {
    /// leadership.proclaim("10.0.0.7:80, ready").await?;
    /// # Ok(()) }
    /// ```
    pub async fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), Error> {
        check_value(value.as_ref())?;
        hold::proclaim(self.guard.inner(), self.guard.lease(), value.as_ref()).await
    }

    /// Leads no more: the first in line does, at once. Returns when the server has said so, and in
    /// any case when it does not answer for the client's
    /// [`reply_timeout`](crate::Builder::reply_timeout).
    ///
    /// # Errors
    ///
    /// Those of [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// Dropped, it resigns in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(leadership: kvlock::Leadership) -> Result<(), kvlock::Error> {
    /// leadership.resign().await?;
    /// # Ok(()) }
    /// ```
    pub async fn resign(self) -> Result<(), Error> {
        self.guard.release().await
    }
}
