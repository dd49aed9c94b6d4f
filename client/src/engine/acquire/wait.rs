//! Waiting in the queue for a lock, permits or a latch, until the server sends the outcome.

use crate::engine::acquire::claim::Claim;
use crate::engine::lease::Granted;
use crate::engine::limit::{Limit, Trouble};
use crate::engine::telemetry;
use crate::net::router::Route;
use crate::wire::error::Error;
use crate::wire::outcome::{self, Queued, WaitEnd};
use crate::wire::request;
use std::time::Duration;
use tokio::time::Instant;

/// Outcome of a wait.
pub(crate) enum Waited {
    /// Granted, with a lease as long as the offer.
    Granted(Granted),
    /// The latch is open.
    Open,
    /// The result exists. The lock is not held, and the owner is not in the queue.
    Ready,
    /// The time limit has passed.
    Over,
    /// The wait ended without a result: it was cancelled, or the server refused it at once. The caller asks
    /// again.
    Sent,
}

/// Sends the request, and waits in the queue if it is not granted at once. If the wait fails in the queue,
/// records in `trouble` when the server last answered.
///
/// # Cancel safety
///
/// If the future is dropped, the drop of the claim cancels the wait and releases a grant.
pub(crate) async fn wait(
    claim: &mut Claim,
    offer: Duration,
    limit: Limit,
    trouble: &mut Trouble,
) -> Result<Waited, Error> {
    let (inner, key) = (claim.inner().clone(), claim.key.clone());
    let mut route = inner.router.route(&key).await?;
    loop {
        match try_at(claim, &route, offer, limit, trouble).await {
            Err(error) if inner.router.follow_redirect(&mut route, &error) => {}
            outcome => return outcome,
        }
    }
}

/// Waits at one server.
async fn try_at(
    claim: &mut Claim,
    to: &Route,
    offer: Duration,
    limit: Limit,
    trouble: &mut Trouble,
) -> Result<Waited, Error> {
    let inner = claim.inner().clone();
    let session = inner.sessions.at(&to.node)?;
    let id = session.id().await?;
    let mut ticket = session.expect(&claim.owner)?;
    // On the wire, a timeout of zero means no timeout.
    let left = limit.left().map(|left| left.max(Duration::from_millis(1)));
    let (mode, holds) = (claim.mode, Some(claim.mode.once()));
    let request = request::wait(mode, &*claim.key, &*claim.owner, offer, left, holds, Some(&id))?;
    let request = claim.with_options(request);
    let live = to.node.commands().live_by(inner.router.overdue()).await?;
    claim.sending(live.clone());
    claim.mark_queued(&session);
    let sent = inner.now();
    let answer = session.ask(&live, &request, to.asking).await;
    let answer = answer.and_then(|value| Ok(outcome::waited(mode, value)?));
    let queued = match answer {
        Ok(Queued::Not(None)) => {
            claim.refused();
            return Ok(if limit.is_over() { Waited::Over } else { Waited::Sent });
        }
        Ok(Queued::Not(Some(grant))) => {
            claim.record_accepted();
            inner.contended.set(&claim.key, false);
            return Ok(Waited::Granted(Granted { grant, since: sent, runs: offer }));
        }
        Ok(Queued::Open) => {
            claim.refused();
            return Ok(Waited::Open);
        }
        Ok(Queued::Ready) => {
            claim.refused();
            return Ok(Waited::Ready);
        }
        Ok(Queued::At(queued)) => queued,
        Err(error) => {
            claim.failed(&error);
            return Err(error);
        }
    };
    // The connection is not kept during the wait, so that it can be closed when it is replaced.
    drop(live);
    telemetry::waiting();
    claim.record_accepted();
    let in_line = Instant::now();
    inner.contended.set(&claim.key, true);
    // If the session ends, the server may still keep the owner's place in the queue. The caller asks again.
    let told = ticket.outcome().await;
    if matches!(told, Err(_) | Ok(WaitEnd::Replaced | WaitEnd::Error(_))) {
        trouble.record_failed_wait(in_line, session.heard());
    }
    let told = told?;
    // After `Replaced` the owner may still be queued through another session, or even have a grant.
    if !matches!(told, WaitEnd::Granted { .. } | WaitEnd::Replaced) {
        claim.refused();
    }
    match told {
        WaitEnd::Granted { grant, at } => {
            // A grant from before the reply `queued` is the outcome of an earlier wait, which this client has
            // given up.
            let Some(waited) = at.checked_sub(queued) else { return Err(Error::Timeout) };
            claim.left_queue();
            let since = inner.policy.safety.granted(sent, waited);
            Ok(Waited::Granted(Granted { grant, since, runs: offer }))
        }
        WaitEnd::Open => Ok(Waited::Open),
        WaitEnd::Ready => Ok(Waited::Ready),
        WaitEnd::Timeout => Ok(Waited::Over),
        WaitEnd::Cancelled => Ok(Waited::Sent),
        WaitEnd::Replaced => {
            Err(outcome::server_error(b"UNBLOCKED another session has the place").into())
        }
        WaitEnd::Error(error) => Err(error.into()),
    }
}
