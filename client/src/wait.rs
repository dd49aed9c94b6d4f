//! How a wait is carried: on a blocked connection of its own.
//!
//! This is the only place that knows. It goes on in the background when the caller drops it, since
//! the server has to be told; what that may have granted meanwhile is given back by the [`Claim`],
//! which travels with the wait.

use crate::claim::Claim;
use crate::client::Inner;
use crate::error::Error;
use crate::link::{after, runtime_is_gone};
use crate::node::Node;
use crate::pool::Seat;
use crate::reply::{self, Grant};
use crate::router::{HOPS, Route};
use crate::{observe, request};
use redis::{Cmd, RedisError, Value};
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

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
    let runtime = Handle::try_current().map_err(|_| runtime_is_gone())?;
    let (caller, here) = oneshot::channel();
    let wait = Wait { inner: inner.clone(), seat, claim, offer, ends: limit.map(after) };
    wait.request()?;
    let wait = Box::pin(wait.carry(caller));
    let mut attended =
        Attended { wait, over: false, here: Some(here), inner: inner.clone(), runtime };
    let outcome = attended.wait.as_mut().await;
    attended.over = true;
    Ok(outcome)
}

/// Whose caller is there is known by a channel that nothing goes through.
type Caller = oneshot::Sender<Infallible>;

/// A wait while its caller waits for it. Dropped, it goes on without him, to tell the server.
struct Attended {
    wait: Pin<Box<dyn Future<Output = Outcome> + Send>>,
    over: bool,
    here: Option<oneshot::Receiver<Infallible>>,
    inner: Arc<Inner>,
    /// Its timers cannot go on elsewhere.
    runtime: Handle,
}

impl Drop for Attended {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.here = None;
        let wait = std::mem::replace(&mut self.wait, Box::pin(std::future::pending()));
        // Nobody is there to take the outcome: the claim is dropped and does what is needed.
        self.inner.spawn_on(&self.runtime, async move { drop(wait.await) });
    }
}

struct Wait {
    inner: Arc<Inner>,
    seat: Seat,
    claim: Claim,
    offer: Duration,
    ends: Option<Instant>,
}

impl Wait {
    async fn carry(mut self, mut caller: Caller) -> Outcome {
        let outcome = self.try_everywhere(&mut caller).await;
        (self.claim, outcome)
    }

    async fn try_everywhere(&mut self, caller: &mut Caller) -> Result<Option<Grant>, Error> {
        let mut route = {
            let key = self.claim.key.clone();
            tokio::select! {
                route = self.inner.router.route(&key) => route?,
                () = caller.closed() => return Ok(None),
            }
        };
        for _ in 0..=HOPS {
            let outcome = self.try_at(&route, caller).await;
            let Err(trouble) = outcome else { return outcome };
            match self.inner.router.learn(&route.node, &trouble) {
                Some(next) => route = next,
                None => return Err(trouble),
            }
        }
        Err(Error::Timeout)
    }

    /// Waits at one server.
    async fn try_at(&mut self, to: &Route, caller: &mut Caller) -> Result<Option<Grant>, Error> {
        let live = tokio::select! {
            live = self.seat.connection(&to.node) => live?,
            () = caller.closed() => return Ok(None),
        };
        let request = self.request()?;
        observe::waiting();
        self.claim.sending(None);
        let outcome = {
            let reply = live.call_unlimited(&request, to.asking);
            let mut reply = pin!(self.inner.router.looking(reply));
            let outcome = tokio::select! {
                reply = &mut reply => Some(reply),
                () = caller.closed() => None,
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
        outcome
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
}

/// Takes the waiter out of the queue, at the server where it waits, and returns what the wait was answered.
async fn withdraw(
    inner: &Inner,
    claim: &Claim,
    node: &Node,
    mut reply: Pin<&mut impl Future<Output = Result<Value, Error>>>,
) -> Result<Value, Error> {
    let cancel = request::cancel(claim.mode, &*claim.key, &*claim.owner)?;
    for _ in 0..WITHDRAWALS {
        tokio::select! {
            reply = &mut reply => return reply,
            cancelled = node.commands().call_after(&cancel, inner.settings.reply_timeout) => {
                // Others need the seat.
                if matches!(cancelled, Err(Error::Timeout)) {
                    break;
                }
            }
        }
        if let Ok(reply) = timeout(PATIENCE, &mut reply).await {
            return reply;
        }
    }
    Err(Error::Timeout)
}
