//! Elections: one of many candidates leads at a time, and observers know which.

use crate::api::leadership::Leadership;
use crate::api::lock::Lock;
use crate::api::observer::Observer;
use crate::engine::lease::Lease;
use crate::engine::limit::Limit;
use crate::engine::settings::check_value;
use crate::sync::{self, Mutex};
use crate::wire::error::Error;
use crate::wire::reply::Token;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A named election: campaign for leadership, or observe the leader.
///
/// Created by [`Client::election`](crate::Client::election). It is the lock with this name: the holder leads,
/// the token is the term, and candidates lead in order of arrival. Clones are the same candidate:
/// [`is_leader`](Self::is_leader) returns the same for all of them.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// let election = client.election("scheduler").value("10.0.0.7:80");
/// election
///     .lead(|term| async move {
///         println!("leading, term {term}");
///         schedule(term).await
///     })
///     .await?;
/// # Ok(()) }
/// # async fn schedule(_: kvlock::Token) {}
/// ```
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until a client campaigns or observes"]
pub struct Election {
    lock: Lock,
    value: Arc<[u8]>,
    /// Lease of the last leadership.
    leading: Arc<Mutex<Weak<Lease>>>,
}

impl Election {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock: lock.observed(), value: Arc::default(), leading: Arc::default() }
    }

    /// Sets the value that this candidate publishes while it leads, for example its address: up to 1,024
    /// bytes. [Observers](Self::observe) and `LOCK.INFO` return it.
    pub fn value(mut self, value: impl AsRef<[u8]>) -> Self {
        self.value = value.as_ref().into();
        self
    }

    /// Sets the lease. Default: the client's. When a leader dies, there is no leader for up to this time.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lock = self.lock.lease(lease);
        self
    }

    /// Returns the name.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.lock.key()
    }

    /// Waits in the queue behind earlier candidates until this one leads.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::acquire`]; [`Invalid`](Error::Invalid) if the value is too long, or if this
    /// candidate or a clone of it leads already. After an error this call leaves the queue, possibly in the
    /// background: see [`Client::settled`](crate::Client::settled).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped at any point, the candidate leaves the queue and does not lead. The cleanup
    /// runs in the background: see [`Client::settled`](crate::Client::settled).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let leadership = client.election("scheduler").campaign().await?;
    /// tokio::select! {
    ///     () = schedule(leadership.term()) => leadership.resign().await?,
    ///     why = leadership.lost() => eprintln!("stopping: {why}"),
    /// }
    /// # Ok(()) }
    /// # async fn schedule(_: kvlock::Token) {}
    /// ```
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        self.stand(Limit::Never).await?.ok_or(Error::Timeout)
    }

    /// Campaigns for up to `time`. Returns `None` if this candidate has not become the leader by then. With a
    /// `time` of zero it leads at once or not at all.
    ///
    /// # Errors
    ///
    /// The errors of [`campaign`](Self::campaign).
    ///
    /// # Cancel safety
    ///
    /// As for [`campaign`](Self::campaign).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// # use std::time::Duration;
    /// let election = client.election("scheduler");
    /// if let Some(leadership) = election.campaign_within(Duration::from_secs(1)).await? {
    ///     leadership.resign().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn campaign_within(&self, time: Duration) -> Result<Option<Leadership>, Error> {
        self.stand(Limit::within(time)).await
    }

    async fn stand(&self, limit: Limit) -> Result<Option<Leadership>, Error> {
        check_value(&self.value)?;
        // Otherwise this candidate would wait for itself.
        if self.is_leader() {
            return Err(Error::Invalid(
                "this candidate, or a clone of it, leads already".to_owned(),
            ));
        }
        let lock = self.lock.clone();
        let lock = if self.value.is_empty() { lock } else { lock.with_value(self.value.clone()) };
        let guard = lock.acquire_by(limit).await?;
        Ok(guard.map(|guard| {
            *sync::lock(&self.leading) = Arc::downgrade(guard.lease());
            Leadership::of(guard)
        }))
    }

    /// Campaigns, runs the work while this candidate leads, and campaigns again when the leadership is
    /// lost. When the work has ended by itself, the candidate resigns, and this returns the output of the
    /// work.
    ///
    /// The work is called with the term, each time this candidate becomes the leader. When the leadership is
    /// lost, the work is dropped at its current await point. If the loss is the end of the lease, that is a
    /// [`margin`](crate::Builder::margin) before another candidate can lead. Set the margin to the time that
    /// the destructors of the work need. **The candidate resigns only after the work has ended or was
    /// dropped**, even when this future is dropped. Tasks that the work has spawned are not dropped: stop
    /// them yourself, or let them check [`is_leader`](Self::is_leader).
    ///
    /// For work that needs an orderly stop, call [`campaign`](Self::campaign) instead, and wait for
    /// [`lost`](crate::Held::lost) beside the work.
    ///
    /// # Errors
    ///
    /// The errors of [`campaign`](Self::campaign). Temporary errors are returned only after they have lasted
    /// for the client's [`patience`](crate::Builder::patience). After an error this call leaves the queue,
    /// possibly in the background. An error of the resignation is only logged.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the work is dropped first. Then the candidate resigns in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let election = client.election("scheduler").value("10.0.0.7:80");
    /// election.lead(|term| schedule(term)).await?;
    /// # Ok(()) }
    /// # async fn schedule(_: kvlock::Token) {}
    /// ```
    pub async fn lead<W: Future>(
        &self,
        mut work: impl FnMut(Token) -> W,
    ) -> Result<W::Output, Error> {
        loop {
            let leadership = self.campaign().await?;
            // The future owns the work, so the work has been dropped when the outcome is there.
            let outcome = leadership.run_until_lost(work(leadership.term())).await;
            let Ok(done) = outcome else { continue };
            if let Err(trouble) = leadership.resign().await {
                tracing::debug!(%trouble, "the work was done, but resigning failed");
            }
            return Ok(done);
        }
    }

    /// Returns whether this candidate, or a clone of it, leads. Reads the clock and sends nothing.
    ///
    /// ```no_run
    /// # fn example(election: kvlock::Election) {
    /// if election.is_leader() {
    ///     println!("it is us");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn is_leader(&self) -> bool {
        let lease = sync::lock(&self.leading).upgrade();
        lease.is_some_and(|lease| !lease.is_lost() && lease.has_guards())
    }

    /// Observes the leader. The caller need not be a candidate.
    ///
    /// Returns when the server has reported the current leader, or that there is none.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::info`]. Temporary errors are returned only after they have lasted for the
    /// client's [`patience`](crate::Builder::patience). Errors after the first state do not end the
    /// observer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let mut observer = client.election("scheduler").observe().await?;
    /// loop {
    ///     match observer.leader() {
    ///         Some(leader) => println!("{} leads", leader.value.escape_ascii()),
    ///         None => println!("no leader"),
    ///     }
    ///     observer.changed().await;
    /// }
    /// # }
    /// ```
    pub async fn observe(&self) -> Result<Observer, Error> {
        self.lock.check()?;
        Observer::of(self.lock.inner(), self.lock.name()).await
    }
}
