//! Acquiring a lock.
//!
//! ```text
//!   LOCK.ACQUIRE, at most 30 s ──► granted ──┬── enough is left of it ───────────────► guard
//!        │ nil                               │                                            ▲
//!        ▼                                   └── else LOCK.RENEW with the full lease ─────┘
//!   LOCK.WAIT … SESSION,                     ▲
//!   2 s at most (the offer) ───► granted ────┘
//! ```
//!
//! A guard with less than the full lease counts on the shorter lease. The watchdog sets the full lease when a
//! third of the shorter one is over, so a lock that is released earlier needs no renewal.
//!
//! If the last acquire of a lock found it taken, the next one that may wait sends `LOCK.WAIT` at once. If the
//! server refuses that, the acquire sends `LOCK.ACQUIRE`, since the lock may be free.
//!
//! Each command of an acquire that may be granted belongs to a [`Claim`], so an acquire can be
//! dropped at any point. The command names the resulting number of holds (`HOLDS`), so it can be
//! sent again after a lost answer.

pub(crate) mod claim;
pub(crate) mod wait;

use crate::engine::acquire::claim::Claim;
use crate::engine::acquire::wait::{Waited, wait};
use crate::engine::context::Context;
use crate::engine::lease::{Granted, Held, LeaseSpec};
use crate::engine::limit::{Limit, Trouble, pause_before_asking};
use crate::engine::owner::OwnerSlot;
use crate::engine::settings::FIRST_LEASE;
use crate::engine::telemetry::{self, Stopwatch};
use crate::net::live::Live;
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use crate::wire::outcome;
use crate::wire::reply::{self, Token};
use crate::wire::request::{self, Further, Mode};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Longest lease that a waiter requests. If the waiter has died before the grant, the next waiter waits up to
/// this much longer.
pub(crate) const OFFER: Duration = Duration::from_secs(2);

/// Shortest wait for an answer, however short the caller's limit is. A shorter reply timeout still applies.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

/// One acquisition, for a fresh owner or for one that holds the lock already.
pub(crate) struct Acquisition<'a> {
    pub(crate) inner: &'a Arc<Context>,
    pub(crate) mode: Mode,
    pub(crate) key: &'a Arc<[u8]>,
    /// Further locks that are acquired by the same command.
    pub(crate) further: Option<&'a Arc<Further>>,
    pub(crate) term: LeaseSpec,
    pub(crate) limit: Limit,
    /// The shared owner, if several acquisitions share one.
    pub(crate) slot: Option<&'a OwnerSlot>,
    /// Value of the owner.
    pub(crate) value: Option<&'a Arc<[u8]>>,
    /// Key of a result that makes the lock unnecessary: the ready-key.
    pub(crate) unless: Option<&'a Arc<[u8]>>,
    /// `true` if the lock is bound right after the grant. The binding sets the full lease.
    pub(crate) bound: bool,
}

/// Outcome of one command of an acquisition.
enum Step {
    Held(Held),
    /// The result exists, so the lock is not needed.
    Ready,
    /// Not granted. The acquire asks again, unless the limit has passed.
    Refused,
    /// The grant ended before it was confirmed; of a set, the owner may still hold some locks. The acquire releases
    /// them, and asks again for another owner.
    Ended,
}

impl From<Option<Held>> for Step {
    fn from(held: Option<Held>) -> Self {
        held.map_or(Self::Ended, Self::Held)
    }
}

impl Acquisition<'_> {
    /// Acquires the lock. `None` if the limit has passed or the result exists.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped at any point, the wait is cancelled and a grant is released, both in the
    /// background.
    pub(crate) async fn run(&self) -> Result<Option<Held>, Error> {
        let asked = Stopwatch::start();
        let mut claim = self.claim();
        let mut trouble = Trouble::new(self.limit);
        let may_wait = !matches!(self.limit, Limit::Now);
        // With a ready-key, another client may be computing the result already, so wait at once.
        let mut waits = may_wait && (self.unless.is_some() || self.inner.contended.has(self.key));
        // No answer has shown yet that the lock is taken.
        let mut may_be_free = self.unless.is_none();
        let (mut waiting, mut polls) = (None, 0);
        loop {
            let step = if waits {
                waiting = waiting.or_else(|| self.slot.map(OwnerSlot::waiting));
                self.wait(&mut claim, &mut trouble, &mut polls).await
            } else {
                self.ask_and_accept(&mut claim).await
            };
            match step {
                Ok(Step::Held(held)) => {
                    claim.finish();
                    asked.acquired();
                    telemetry::acquired(&held.0.held_lock);
                    return Ok(Some(held));
                }
                Ok(Step::Ready) => return Ok(None),
                Ok(Step::Refused | Step::Ended) if self.limit.is_over() => {
                    telemetry::refused();
                    return Ok(None);
                }
                Ok(Step::Refused) => {
                    trouble.reset();
                    may_be_free = false;
                }
                Ok(Step::Ended) => {
                    trouble.reset();
                    claim = self.claim();
                }
                Err(error @ Error::NotReplicated { .. }) => {
                    // If the server cannot be reached, the release continues in the background.
                    let _released = timeout(self.inner.settings.patience, claim.undo()).await;
                    return Err(error);
                }
                // The server refuses the wait, but may grant the lock.
                Err(error)
                    if waits
                        && !error.leaves_outcome_unknown()
                        && !claim.is_accepted()
                        && std::mem::take(&mut may_be_free) =>
                {
                    self.inner.contended.set(self.key, false);
                    waits = false;
                    continue;
                }
                Err(error) => self.inner.wait_to_retry(&mut trouble, error).await?,
            }
            waits = may_wait;
        }
    }

    /// Makes a claim for a fresh owner.
    fn claim(&self) -> Claim {
        let mut claim = Claim::new(self.inner, self.mode, self.key);
        claim.further = self.further.cloned();
        claim.value = self.value.cloned();
        claim.unless = self.unless.cloned();
        claim
    }

    /// Takes over the lock that the claim's owner holds with this token, perhaps through another process.
    /// The command makes no grant, so after an error there is nothing to undo.
    pub(crate) async fn adopt(&self, mut claim: Claim, token: Token) -> Result<Held, Error> {
        let lease = self.term.length;
        let mut request =
            request::acquire(self.mode, &**self.key, &*claim.owner, lease, Some(self.mode.once()))?;
        request.arg("HELD");
        let request = request::with_further(request, self.further.map(|further| &**further));
        let mut sent = self.inner.now();
        let mut ask = async || {
            let via = |_: &Arc<Live>| sent = self.inner.now();
            let patience = self.inner.settings.reply_timeout;
            self.inner.router.call_via(self.key, &request, patience, via).await
        };
        let answer = match ask().await {
            // The connection may have been closed while it was idle.
            Err(Error::Connection(_)) => ask().await,
            answer => answer,
        };
        let grant = reply::granted(self.mode, answer?)?.filter(|grant| grant.token == token);
        let Some(grant) = grant else { return Err(Error::Lost(Loss::Forgotten)) };
        let granted = Granted { grant, since: sent, runs: lease };
        self.accept(&mut claim, granted).await?.ok_or(Error::Lost(Loss::Forgotten))
    }

    /// Requests the lock that the claim's owner holds already, in another mode.
    pub(crate) async fn regain(&self, claim: &mut Claim) -> Result<Granted, Error> {
        let granted = match self.ask(claim).await {
            // The connection may have been closed while it was idle.
            Err(Error::Connection(_)) => self.ask(claim).await,
            outcome => outcome,
        };
        let granted = granted?;
        if granted.is_none() {
            // Of a set, the owner may still hold some locks.
            claim.record_accepted();
        }
        granted.ok_or(Error::Lost(Loss::Forgotten))
    }

    /// Turns a grant of [`regain`](Self::regain) into a lease, and ends the claim.
    pub(crate) async fn keep(&self, mut claim: Claim, granted: Granted) -> Result<Held, Error> {
        let held = self.accept(&mut claim, granted).await?.ok_or(Error::Lost(Loss::Forgotten))?;
        claim.finish();
        Ok(held)
    }

    async fn ask_and_accept(&self, claim: &mut Claim) -> Result<Step, Error> {
        match self.ask(claim).await? {
            Some(granted) => self.accept(claim, granted).await.map(Step::from),
            None => Ok(Step::Refused),
        }
    }

    /// Sends `LOCK.ACQUIRE` or `SEM.ACQUIRE`.
    async fn ask(&self, claim: &mut Claim) -> Result<Option<Granted>, Error> {
        let lease = self.term.length.min(FIRST_LEASE);
        let request =
            request::acquire(self.mode, &**self.key, &*claim.owner, lease, Some(self.mode.once()))?;
        let request = claim.with_options(request);
        let full = self.inner.settings.reply_timeout;
        let patience = match self.limit {
            Limit::Now | Limit::Never => full,
            Limit::Until(_) => self.limit.left().unwrap_or(full).max(LEAST_PATIENCE).min(full),
        };
        let mut sent = self.inner.now();
        let answer = {
            let mut sending = claim.sending_via();
            let via = |live: &Arc<Live>| {
                sending(live);
                sent = self.inner.now();
            };
            self.inner.router.call_via(self.key, &request, patience, via).await
        };
        // If the result exists there is no grant, and the caller reads the result.
        let granted = |value| match outcome::is_ready(&value) {
            true => Ok(None),
            false => reply::granted(self.mode, value),
        };
        match answer.and_then(|value| Ok(granted(value)?)) {
            Ok(Some(grant)) => {
                claim.record_accepted();
                Ok(Some(Granted { grant, since: sent, runs: lease }))
            }
            Ok(None) => {
                claim.refused();
                self.inner.contended.set(self.key, true);
                Ok(None)
            }
            Err(trouble) => {
                claim.failed(&trouble);
                Err(trouble)
            }
        }
    }

    /// Sends `LOCK.WAIT` or `SEM.WAIT`, and waits for the outcome.
    async fn wait(
        &self,
        claim: &mut Claim,
        trouble: &mut Trouble,
        polls: &mut u32,
    ) -> Result<Step, Error> {
        let offer = self.term.length.min(OFFER);
        match wait(claim, offer, self.limit, trouble).await? {
            Waited::Granted(granted) => self.accept(claim, granted).await.map(Step::from),
            Waited::Ready => Ok(Step::Ready),
            Waited::Over | Waited::Open => Ok(Step::Refused),
            Waited::Sent => {
                pause_before_asking(self.limit, polls).await;
                Ok(Step::Refused)
            }
        }
    }

    /// Turns a grant into a lease. If the full lease must be set before there is a guard, renews the grant
    /// first. `None` if the renewal finds that the grant has ended. Of a set, the owner may still hold some locks, so
    /// the claim remains.
    async fn accept(&self, claim: &mut Claim, granted: Granted) -> Result<Option<Held>, Error> {
        if !self.is_confirmed_first(&granted) {
            return claim.hold(granted, self.term).map(Some);
        }
        // After an error the claim remains, because the owner may hold the lock at the server until the grant
        // ends.
        let Some((since, runs)) = claim.confirm(self.term.length).await? else { return Ok(None) };
        let confirmed = Granted { grant: granted.grant, since, runs };
        claim.hold(confirmed, LeaseSpec { length: runs, ..self.term }).map(Some)
    }

    /// Returns whether the full lease is set before there is a guard.
    fn is_confirmed_first(&self, granted: &Granted) -> bool {
        let Context { settings, policy, .. } = &**self.inner;
        let Granted { since, runs, .. } = *granted;
        // `true` if the watchdog sets the full lease in time. After a grant of `FIRST_LEASE`, a longer lease
        // is set here, so that the caller gets the error if the server refuses it. If the lock is bound next,
        // the binding sets the lease.
        let by_watchdog = self.term.watched
            && policy.safety.margin <= runs / 4
            && (runs < FIRST_LEASE || self.bound);
        let is_whole = runs >= self.term.length;
        let left = policy.safety.until(since, runs).left_at(self.inner.now());
        settings.replicas.is_some()
            || !(is_whole || by_watchdog && !settings.confirm)
            || left < runs / 2
    }
}
