//! How a wait is carried: by a task of its own, on a blocked connection of its own.
//!
//! This is the only place that knows. The task outlives the caller who drops the wait, since the
//! server has to be told; what it may have granted meanwhile is given back by the [`Claim`], which
//! travels with the wait.

use crate::claim::Claim;
use crate::client::Inner;
use crate::error::Error;
use crate::node::Node;
use crate::pool::Seat;
use crate::reply::{self, Grant};
use crate::router::{HOPS, Route};
use crate::{observe, request};
use redis::{Cmd, RedisError, Value};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

/// What came of a wait; the claim says whether anything may be held.
pub(crate) type Outcome = (Claim, Result<Option<Grant>, Error>);

/// How often a waiter is withdrawn before its connection is closed instead.
const WITHDRAWALS: u32 = 10;

/// How long the answer to a withdrawn wait may take before it is withdrawn again: a wait may arrive
/// after the command that cancels it, since they travel over different connections.
const PATIENCE: Duration = Duration::from_millis(100);

/// Waits in line at the server, on that seat, for up to `limit`, for an offer of that length.
///
/// # Cancel safety
///
/// Dropped, the waiter is withdrawn in the background, and what it was granted is released.
pub(crate) async fn wait(
    inner: &Arc<Inner>,
    seat: Seat,
    claim: Claim,
    offer: Duration,
    limit: Option<Duration>,
) -> Result<Outcome, Error> {
    let (answer, answered) = oneshot::channel();
    let ends = limit.map(|limit| Instant::now() + limit);
    let wait = Wait { inner: inner.clone(), seat, claim, offer, ends };
    wait.request()?;
    inner.spawn(wait.carry(answer));
    answered.await.map_err(|_| Error::Connection(runtime_is_gone()))
}

struct Wait {
    inner: Arc<Inner>,
    seat: Seat,
    claim: Claim,
    offer: Duration,
    ends: Option<Instant>,
}

impl Wait {
    async fn carry(mut self, mut answer: oneshot::Sender<Outcome>) {
        let mut route = {
            let key = self.claim.key.clone();
            tokio::select! {
                route = self.inner.router.route(&key) => route,
                () = answer.closed() => return,
            }
        };
        for _ in 0..=HOPS {
            let to = match route {
                Ok(to) => to,
                // Nothing was sent.
                Err(trouble) => return self.conclude(answer, Err(trouble)),
            };
            let Some(outcome) = self.try_at(&to, &mut answer).await else { return };
            let next = outcome.as_ref().err();
            match next.and_then(|trouble| self.inner.router.learn(&to.node, trouble)) {
                Some(next) => route = Ok(next),
                None => return self.conclude(answer, outcome),
            }
        }
        self.conclude(answer, Err(Error::Timeout));
    }

    /// Waits at one server. `None` if nobody waits for it any more, and nothing was sent.
    async fn try_at(
        &mut self,
        to: &Route,
        answer: &mut oneshot::Sender<Outcome>,
    ) -> Option<Result<Option<Grant>, Error>> {
        let live = tokio::select! {
            live = self.seat.connection(&to.node) => live,
            () = answer.closed() => return None,
        };
        let (live, request) = match live.and_then(|live| Ok((live, self.request()?))) {
            Ok(both) => both,
            Err(trouble) => return Some(Err(trouble)),
        };
        observe::waiting();
        self.claim.sending(None);
        // The server ends the wait; this is for a server that does not.
        let overdue = self.ends.map(|ends| ends + self.inner.settings.reply_timeout);
        let outcome = {
            let reply = live.call_unlimited(&request, to.asking);
            let mut reply = pin!(self.inner.router.looking(reply));
            let outcome = tokio::select! {
                reply = &mut reply => Some(reply),
                () = sleep_until_or_never(overdue) => None,
                () = answer.closed() => None,
            };
            match outcome {
                Some(reply) => reply,
                None => withdraw(&self.inner, &self.claim, &to.node, reply).await,
            }
        };
        let outcome = self.take_in(outcome);
        if outcome.as_ref().is_err_and(Error::leaves_outcome_unknown) {
            live.condemn();
        }
        // Closing the connection removes the waiter, if there still is one.
        self.seat.put_back(to.node.clone(), live);
        Some(outcome)
    }

    fn request(&self) -> Result<Cmd, Error> {
        let claim = &self.claim;
        // A timeout of zero would be none at all.
        let left = |ends: Instant| ends.saturating_duration_since(Instant::now());
        let limit = self.ends.map(|ends| left(ends).max(Duration::from_millis(1)));
        let (mode, holds) = (claim.mode, Some(claim.mode.once()));
        Ok(request::wait(mode, &*claim.key, &*claim.owner, self.offer, limit, holds)?)
    }

    fn take_in(&mut self, reply: Result<Value, Error>) -> Result<Option<Grant>, Error> {
        let outcome = reply.and_then(|value| {
            Ok(reply::granted(self.claim.mode, value).map_err(RedisError::from)?)
        });
        match &outcome {
            Ok(Some(_)) => self.claim.granted(),
            Ok(None) => self.claim.refused(),
            Err(trouble) => self.claim.failed(trouble),
        }
        outcome
    }

    fn conclude(self, answer: oneshot::Sender<Outcome>, outcome: Result<Option<Grant>, Error>) {
        // If nobody is there to take it, the claim is dropped here and does what is needed.
        drop(answer.send((self.claim, outcome)));
    }
}

/// Takes the waiter out of the queue, at the server where it waits, and returns what the wait was answered.
async fn withdraw(
    inner: &Inner,
    claim: &Claim,
    node: &Node,
    mut reply: std::pin::Pin<&mut impl Future<Output = Result<Value, Error>>>,
) -> Result<Value, Error> {
    let cancel = request::cancel(claim.mode, &*claim.key, &*claim.owner)?;
    for _ in 0..WITHDRAWALS {
        tokio::select! {
            reply = &mut reply => return reply,
            _ = node.commands().call_after(&cancel, inner.settings.reply_timeout) => {}
        }
        if let Ok(reply) = timeout(PATIENCE, &mut reply).await {
            return reply;
        }
    }
    Err(Error::Timeout)
}

async fn sleep_until_or_never(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

fn runtime_is_gone() -> RedisError {
    RedisError::from(std::io::Error::other("the runtime is shutting down"))
}
