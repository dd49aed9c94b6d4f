//! How a wait is carried: by a task of its own, on a blocked connection of its own.
//!
//! This is the only place that knows. The task outlives the caller who drops the wait, since the
//! server has to be told; what it may have granted meanwhile is given back by the [`Claim`], which
//! travels with the wait.

use crate::claim::Claim;
use crate::client::Inner;
use crate::error::Error;
use crate::link::Live;
use crate::pool::Seat;
use crate::reply::{self, Grant};
use crate::{observe, request};
use redis::{Cmd, RedisError, Value};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

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
    let (mode, holds) = (claim.mode, Some(claim.mode.once()));
    let request = request::wait(mode, &*claim.key, &*claim.owner, offer, limit, holds)?;
    let (answer, answered) = oneshot::channel();
    let wait = Wait { inner: inner.clone(), seat, claim, request, limit };
    inner.spawn(wait.carry(answer));
    answered.await.map_err(|_| Error::Connection(runtime_is_gone()))
}

struct Wait {
    inner: Arc<Inner>,
    seat: Seat,
    claim: Claim,
    request: Cmd,
    limit: Option<Duration>,
}

impl Wait {
    async fn carry(mut self, mut answer: oneshot::Sender<Outcome>) {
        let live = tokio::select! {
            live = self.seat.connection() => live,
            () = answer.closed() => return,
        };
        let live = match live {
            Ok(live) => live,
            // Nothing was sent.
            Err(trouble) => return self.conclude(answer, Err(trouble)),
        };
        observe::waiting();
        self.claim.sending(None);
        // The server ends the wait; this is for a server that does not.
        let overdue = self.limit.map(|limit| limit + self.inner.settings.reply_timeout);
        let outcome = {
            let mut reply = pin!(live.call_unlimited(&self.request));
            let outcome = tokio::select! {
                reply = &mut reply => Some(reply),
                () = sleep_or_never(overdue) => None,
                () = answer.closed() => None,
            };
            match outcome {
                Some(reply) => reply,
                None => withdraw(&self.inner, &self.claim, reply).await,
            }
        };
        let outcome = self.take_in(outcome);
        self.conclude_on(live, answer, outcome);
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

    fn conclude_on(
        self,
        live: Live,
        answer: oneshot::Sender<Outcome>,
        outcome: Result<Option<Grant>, Error>,
    ) {
        let Self { seat, claim, .. } = self;
        if outcome.as_ref().is_err_and(Error::leaves_outcome_unknown) {
            live.condemn();
        }
        // Closing the connection removes the waiter, if there still is one.
        seat.keep(live);
        // If nobody is there to take it, the claim is dropped here and does what is needed.
        drop(answer.send((claim, outcome)));
    }

    fn conclude(self, answer: oneshot::Sender<Outcome>, outcome: Result<Option<Grant>, Error>) {
        drop(answer.send((self.claim, outcome)));
    }
}

/// Takes the waiter out of the queue, and returns what the wait was answered.
async fn withdraw(
    inner: &Inner,
    claim: &Claim,
    mut reply: std::pin::Pin<&mut impl Future<Output = Result<Value, Error>>>,
) -> Result<Value, Error> {
    let cancel = request::cancel(claim.mode, &*claim.key, &*claim.owner)?;
    for _ in 0..WITHDRAWALS {
        let mut cancelled = pin!(inner.link().call(&cancel, inner.settings.reply_timeout));
        tokio::select! {
            reply = &mut reply => return reply,
            _ = &mut cancelled => {}
        }
        if let Ok(reply) = timeout(PATIENCE, &mut reply).await {
            return reply;
        }
    }
    Err(Error::Timeout)
}

async fn sleep_or_never(pause: Option<Duration>) {
    match pause {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}

fn runtime_is_gone() -> RedisError {
    RedisError::from(std::io::Error::other("the runtime is shutting down"))
}
