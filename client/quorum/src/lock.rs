//! A named lock of a quorum, and its acquisition.

use crate::Servers;
use crate::attempt::{Attempt, Outcome};
use crate::guard::QuorumGuard;
use crate::keeper::keep;
use crate::member::Term;
use kvlock::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

/// Shortest wait for an answer, however short the caller's limit is. A shorter
/// [`server_timeout`](crate::Quorum::server_timeout) still applies.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

/// Longest pause after the first attempt. Doubled after each attempt, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(300);

/// A named lock of a [`Quorum`](crate::Quorum).
///
/// Made by [`Quorum::lock`](crate::Quorum::lock). Cheap to make and to clone; making one sends
/// nothing. It is exclusive, and each acquisition uses a new owner.
///
/// # Examples
///
/// ```no_run
/// # async fn example(quorum: kvlock_quorum::Quorum) -> Result<(), kvlock_quorum::Error> {
/// use std::time::Duration;
///
/// let lock = quorum.lock("orders:42").lease(Duration::from_secs(10));
/// if let Some(guard) = lock.acquire_within(Duration::from_secs(5)).await? {
///     guard.release().await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct QuorumLock {
    servers: Arc<Servers>,
    key: Arc<[u8]>,
    term: Term,
}

impl QuorumLock {
    pub(crate) fn new(servers: Arc<Servers>, name: &[u8]) -> Self {
        let lease = servers.members.first().map(|first| first.client.lease());
        let term = Term { length: lease.unwrap_or_default(), renewed: true };
        Self { servers, key: name.into(), term }
    }

    /// Sets the lease, which is renewed. Default: the lease of the first client. The range is 10 ms to ten
    /// years, and no more than the servers' `kvlock.max-lease-ms`. When the holder dies, other clients wait
    /// for up to this time. When a majority cannot be reached, the holder loses the lock within
    /// this time.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.term = Term { length: lease, renewed: true };
        self
    }

    /// Sets a lease that is not renewed. The lock is free when the lease ends, or earlier when it is
    /// released.
    pub fn fixed_lease(mut self, lease: Duration) -> Self {
        self.term = Term { length: lease, renewed: false };
        self
    }

    /// Returns the name.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Acquires the lock, without a time limit. Asks all servers at once. If no majority grants the lock,
    /// releases the grants of the minority and asks again after a random pause of up to 300 ms. Clients are
    /// not served in order.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if the name or lease is out of range, or too many servers refuse the lease
    /// or the token; [`NoMajority`](Error::NoMajority) if so many servers fail or do not answer that
    /// the others are no majority. Temporary errors are retried for the
    /// [`patience`](kvlock::Builder::patience) of the first client.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. If the future is dropped at any point, possible grants are released in the background.
    /// At a server that cannot be reached a grant lasts for the rest of its lease. At first that is 2 s, or
    /// four times the [`server_timeout`](crate::Quorum::server_timeout) if that is more, but not more than
    /// the lease of the lock.
    pub async fn acquire(&self) -> Result<QuorumGuard, Error> {
        match self.acquire_by(None).await? {
            Some(guard) => Ok(guard),
            None => Err(Error::Timeout),
        }
    }

    /// Asks all servers once. `None` if too many of them refuse the lock, for example because other clients
    /// hold it, wait for it or try to acquire it there.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire), without retries.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(quorum: kvlock_quorum::Quorum) -> Result<(), kvlock_quorum::Error> {
    /// match quorum.lock("orders:42").try_acquire().await? {
    ///     Some(guard) => guard.release().await?,
    ///     None => println!("another client has it"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<QuorumGuard>, Error> {
        self.acquire_by(Some(Instant::now())).await
    }

    /// Tries repeatedly for up to `timeout`, then returns `None`. With a `timeout` of zero it tries once.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire). If the time is over while too few servers answer,
    /// [`NoMajority`](Error::NoMajority).
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, timeout: Duration) -> Result<Option<QuorumGuard>, Error> {
        self.acquire_by(Instant::now().checked_add(timeout)).await
    }

    async fn acquire_by(&self, end: Option<Instant>) -> Result<Option<QuorumGuard>, Error> {
        kvlock::check_lease(self.term.length)?;
        let key = self.key.escape_ascii();
        let span = tracing::debug_span!("kvlock.quorum.acquire", key = %key);
        self.try_until(end).instrument(span).await
    }

    /// Tries until the lock is held or `end` has passed, but at least once.
    async fn try_until(&self, end: Option<Instant>) -> Result<Option<QuorumGuard>, Error> {
        let bearable = self.servers.members.first().map(|first| first.client.patience());
        let (mut troubled, mut pause) = (None, PAUSE_MIN);
        let left =
            || end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        let once = left().is_zero();
        loop {
            let begun = Instant::now();
            let full = self.servers.patience;
            let patience = if once { full } else { full.min(left().max(LEAST_PATIENCE)) };
            match Attempt::new(&self.servers, &self.key, self.term, patience).run().await {
                Outcome::Held(held) => {
                    if self.term.renewed {
                        keep(&self.servers, &held);
                    }
                    return Ok(Some(QuorumGuard::new(self.servers.clone(), held)));
                }
                Outcome::Refused if left().is_zero() => return Ok(None),
                Outcome::Refused => troubled = None,
                Outcome::Trouble(trouble) => {
                    let lasts = troubled.get_or_insert(begun).elapsed();
                    if left().is_zero()
                        || !trouble.is_retryable()
                        || bearable.is_none_or(|bearable| lasts >= bearable)
                    {
                        return Err(trouble);
                    }
                    tracing::warn!(%trouble, "trouble: trying again");
                }
            }
            // Random, so that clients that began together do not always try again together.
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0).min(left())).await;
            pause = PAUSE_MAX.min(2 * pause);
        }
    }
}

impl fmt::Debug for QuorumLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumLock")
            .field("key", &format_args!("{}", self.key.escape_ascii()))
            .field("servers", &self.servers.members.len())
            .finish_non_exhaustive()
    }
}
