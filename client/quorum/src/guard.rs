//! The guard of a held lock of a quorum.

use crate::Servers;
use crate::held::Held;
use futures_util::future::join_all;
use kvlock::{Error, Loss, Token};
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::timeout;

/// A guard of a held lock of a [`Quorum`](crate::Quorum). The lock is held until the guard is released or
/// dropped, or until the servers that grant the lock are no longer a majority.
///
/// While the guard exists, the watchdog of each client renews the lease at its server. Servers that do not
/// grant the lock are asked again, with a pause of a tenth of the lease, at most one second, between
/// attempts, while the runtime exists on which the lock was acquired. With a
/// [fixed lease](crate::QuorumLock::fixed_lease), nothing is renewed and no server is asked again.
///
/// If a server has forgotten the lock and grants it again, this grant counts only if the other servers are
/// still a majority without it. Otherwise the lock is lost, since another client may have held it in
/// between.
///
/// A guard does not prove that the lock is held: see [`Guard`](kvlock::Guard). Dropping it releases the lock at all
/// servers in the background.
///
/// # Examples
///
/// ```no_run
/// # async fn example(quorum: kvlock_quorum::Quorum) -> Result<(), kvlock_quorum::Error> {
/// let guard = quorum.lock("orders:42").acquire().await?;
/// guard.run_until_lost(async { /* … */ }).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "dropping a guard releases the lock"]
pub struct QuorumGuard {
    servers: Arc<Servers>,
    held: Arc<Held>,
}

impl QuorumGuard {
    pub(crate) fn new(servers: Arc<Servers>, held: Arc<Held>) -> Self {
        Self { servers, held }
    }

    /// Returns the fencing token: the largest token of the first majority, which was written back to a
    /// majority. It is larger than the token of every earlier guard of this lock, while the servers keep
    /// their data.
    #[must_use]
    pub fn token(&self) -> Token {
        self.held.token
    }

    /// Returns the name of the lock.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.held.key
    }

    /// Returns the number of servers that grant the lock to this guard, as far as this client knows.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.held.count()
    }

    /// Returns the time for which the lock is held without further renewals: as long as its leases
    /// at a majority of the servers last, see [`Quorum`](crate::Quorum#validity). Zero if it is
    /// lost.
    #[must_use]
    pub fn lease_left(&self) -> Duration {
        self.held.left()
    }

    /// Returns whether the lock is lost: the servers that grant it are no longer a majority. Once `true` it
    /// stays `true`. Reads the clock, and waits for no server.
    ///
    /// ```no_run
    /// # fn example(guard: kvlock_quorum::QuorumGuard) {
    /// if guard.is_lost() {
    ///     return; // another client may hold it
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.held.is_lost()
    }

    /// Returns why one of the servers no longer grants the lock, if the lock is lost. Waits for no
    /// server.
    #[must_use]
    pub fn why_lost(&self) -> Option<Loss> {
        self.held.why_lost()
    }

    /// Waits until the lock is lost, and returns why one of the servers no longer grants it. Never
    /// completes if the lock is never lost. See [`Held::lost`](kvlock::Held::lost).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) -> Loss {
        self.held.lost().await
    }

    /// Runs the work until it is done or the lock is lost; see
    /// [`Held::run_until_lost`](kvlock::Held::run_until_lost).
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if the lock was lost before the work was done.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the work.
    pub async fn run_until_lost<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        let (mut lost, mut work) = (pin!(self.lost()), pin!(work));
        poll_fn(|context| {
            let lost = match lost.as_mut().poll(context) {
                Poll::Ready(why) => Some(why),
                Poll::Pending => self.why_lost(),
            };
            if let Some(why) = lost {
                return Poll::Ready(Err(Error::Lost(why)));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// Releases the lock at all servers. Waits for each server for at most the
    /// [`server_timeout`](crate::Quorum::server_timeout). Releases that take longer continue in the
    /// background.
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if the lock was lost: the servers that still granted it were no majority.
    /// [`NoMajority`](Error::NoMajority) if too many servers fail or do not answer. Other clients may then not
    /// get the lock until the leases end or the releases in the background arrive.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released in the background.
    pub async fn release(self) -> Result<(), Error> {
        let (lost, guards) = self.held.take();
        let patience = self.servers.patience;
        let releases = guards.into_iter().map(|guard| timeout(patience, guard.release()));
        let (mut released, mut unknown, mut trouble, mut why) = (0, 0, Error::Timeout, None);
        for outcome in join_all(releases).await {
            match outcome.unwrap_or(Err(Error::Timeout)) {
                Ok(()) => released += 1,
                Err(Error::Lost(of_one)) => why = Some(of_one),
                Err(other) => {
                    unknown += 1;
                    trouble = other;
                }
            }
        }
        let (servers, wanted) = (self.servers.members.len(), self.servers.majority());
        if lost.is_some() || released + unknown < wanted {
            return Err(Error::Lost(lost.or(why).unwrap_or(Loss::Forgotten)));
        }
        // At a majority, this client no longer holds the lock, so other clients can get it.
        if unknown <= servers - wanted {
            return Ok(());
        }
        Err(Error::NoMajority { failed: unknown, servers, trouble: Box::new(trouble) })
    }
}

impl Drop for QuorumGuard {
    fn drop(&mut self) {
        let (_, guards) = self.held.take();
        drop(guards);
    }
}

impl fmt::Debug for QuorumGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumGuard")
            .field("key", &format_args!("{}", self.key().escape_ascii()))
            .field("token", &self.token())
            .field("servers", &self.servers())
            .field("lease_left", &self.lease_left())
            .finish_non_exhaustive()
    }
}
