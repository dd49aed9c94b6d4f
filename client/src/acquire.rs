//! How a lock is acquired.
//!
//! ```text
//!   nobody of this client in line ──► LOCK.ACQUIRE ──► granted
//!        │                                 │ nil
//!        ▼                                 ▼
//!   somebody is ──────────────► the line of this client
//!                                          │ at its head
//!                          ┌───────────────┴───────────────┐
//!                 a connection is free            all are blocked in waits
//!                          ▼                               ▼
//!                  LOCK.WAIT, short lease      LOCK.ACQUIRE now and then
//!                          │ granted                       │ granted
//!                          ▼                               ▼
//!               LOCK.RENEW, full lease ────────────────► guard
//! ```
//!
//! Everything that may be granted is sent under a [`Claim`], so this can be dropped at any point.
//! All of it says `HOLDS 1`, so that after a lost answer the same can be sent again.

use crate::claim::{Claim, FIRST_LEASE};
use crate::client::Inner;
use crate::clock::Moment;
use crate::error::Error;
use crate::lease::{Lease, ShareId, Tenure, Term};
use crate::limit::{Limit, REACHED, Trouble, pause_before_asking};
use crate::line::Place;
use crate::link::Live;
use crate::owner::{Visit, Waiting};
use crate::reply::{self, Grant};
use crate::request::Mode;
use crate::{observe, request, wait};
use redis::RedisError;
use std::sync::Arc;
use std::time::Duration;

/// The lease that a waiter asks for. If it has died meanwhile, the others wait that much longer.
const OFFER: Duration = Duration::from_secs(2);

/// What an answer may take at least, however short the caller wants to wait.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

/// A lease with the share of the guard to come.
pub(crate) type Held = (Arc<Lease>, ShareId);

/// One acquisition for a fresh owner.
pub(crate) struct Acquisition<'a> {
    pub(crate) inner: &'a Arc<Inner>,
    pub(crate) mode: Mode,
    pub(crate) key: &'a Arc<[u8]>,
    pub(crate) term: Term,
    pub(crate) limit: Limit,
    /// Whose it is to be, if several acquisitions share the owner.
    pub(crate) visit: Option<&'a Visit>,
}

impl Acquisition<'_> {
    /// Acquires it, or returns `None` when the limit has passed.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any point, nothing is held and nobody waits, after a moment in the background.
    pub(crate) async fn run(&self) -> Result<Option<Held>, Error> {
        let mut claim = Claim::new(self.inner, self.mode, self.key);
        let mut place: Option<(Place, Option<Waiting<'_>>)> = None;
        let mut trouble = Trouble::new(self.limit);
        let mut polls = 0;
        let mut in_line = match self.limit {
            Limit::Now => false,
            Limit::Until(_) | Limit::Never => self.inner.lines.is_busy(self.key),
        };
        loop {
            if in_line && place.is_none() {
                let waiting = self.visit.map(Visit::waiting);
                let entered = self.limit.wait_for(self.inner.lines.enter(self.key)).await;
                let Some(Some(entered)) = entered else {
                    observe::refused();
                    return Ok(None);
                };
                place = Some((entered, waiting));
            }
            let step = if in_line {
                let (back, step) = self.wait(claim, &mut polls).await?;
                claim = back;
                step
            } else {
                self.ask(&mut claim).await
            };
            match step {
                Ok(Some(held)) => {
                    claim.keep();
                    observe::acquired(&held.0.tenure);
                    return Ok(Some(held));
                }
                Ok(None) if self.limit.is_over() => {
                    observe::refused();
                    return Ok(None);
                }
                Ok(None) => trouble.over(),
                Err(error @ Error::NotReplicated { .. }) => {
                    claim.undo().await;
                    return Err(error);
                }
                Err(error) => {
                    if claim.was_in_line() >= REACHED {
                        trouble.over();
                    }
                    let news = self.inner.router.switched();
                    trouble.bear(error, self.inner.settings.patience, news).await?;
                }
            }
            in_line = !matches!(self.limit, Limit::Now);
        }
    }

    /// `LOCK.ACQUIRE`.
    async fn ask(&self, claim: &mut Claim) -> Result<Option<Held>, Error> {
        let lease = self.term.length.min(FIRST_LEASE);
        let request =
            request::acquire(self.mode, &**self.key, &*claim.owner, lease, Some(self.mode.once()))?;
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
        let answer = answer
            .and_then(|value| Ok(reply::granted(self.mode, value).map_err(RedisError::from)?));
        match answer {
            Ok(Some(grant)) => {
                claim.granted();
                self.granted(claim, grant, sent).await
            }
            Ok(None) => {
                claim.refused();
                Ok(None)
            }
            Err(trouble) => {
                claim.failed(&trouble);
                Err(trouble)
            }
        }
    }

    /// `LOCK.WAIT`, if a connection is free for it; else a little later `LOCK.ACQUIRE`.
    async fn wait(
        &self,
        mut claim: Claim,
        polls: &mut u32,
    ) -> Result<(Claim, Result<Option<Held>, Error>), Error> {
        let Some(seat) = self.inner.pool().try_seat() else {
            observe::pool_is_full();
            pause_before_asking(self.limit, polls).await;
            let step = self.ask(&mut claim).await;
            return Ok((claim, step));
        };
        // A timeout of zero would be none at all.
        let limit = self.limit.left().map(|left| left.max(Duration::from_millis(1)));
        let offer = self.term.length.min(OFFER);
        let (mut claim, outcome) = wait::wait(self.inner, seat, claim, offer, limit).await?;
        let step = match outcome {
            Ok(Some(grant)) => self.confirm(&mut claim, grant).await,
            Ok(None) => Ok(None),
            Err(trouble) => Err(trouble),
        };
        if matches!(step, Ok(None)) {
            // Who may not block at the server, or is cancelled there, is answered at once.
            pause_before_asking(self.limit, polls).await;
        }
        Ok((claim, step))
    }

    /// A first grant has come, as long as it could be asked for.
    async fn granted(
        &self,
        claim: &mut Claim,
        grant: Grant,
        sent: Moment,
    ) -> Result<Option<Held>, Error> {
        if self.term.length > FIRST_LEASE || self.inner.settings.replicas.is_some() {
            return self.confirm(claim, grant).await;
        }
        self.hold(claim, grant, sent, self.term.length).map(Some)
    }

    /// Sets the full lease. `None`: the offer was over before we came.
    async fn confirm(&self, claim: &mut Claim, grant: Grant) -> Result<Option<Held>, Error> {
        // After trouble the claim stays: the lock is ours until the offer ends.
        let Some((sent, runs)) = claim.confirm(self.term.length).await? else {
            claim.refused();
            return Ok(None);
        };
        self.hold(claim, grant, sent, runs).map(Some)
    }

    fn hold(
        &self,
        claim: &Claim,
        grant: Grant,
        sent: Moment,
        runs: Duration,
    ) -> Result<Held, Error> {
        let tenure = Tenure {
            mode: self.mode.held(grant.holds),
            key: self.key.clone(),
            owner: claim.owner.clone(),
            token: grant.token,
            raised: false,
        };
        let term = Term { length: runs, ..self.term };
        let inner = self.inner;
        let (lease, share) = Lease::granted(
            inner.fresh_number(),
            tenure,
            &inner.terms,
            sent,
            term,
            claim.has_strays(),
        );
        lease.inherit(claim.late(), sent);
        // The answer may have taken longer than the lease.
        if lease.left().is_zero() {
            return Err(Error::Timeout);
        }
        inner.watchdog.watch(&lease);
        Ok((lease, share))
    }
}
