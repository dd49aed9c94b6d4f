//! Stores the result of work under a lock, with the command that releases the lock.
//!
//! The server executes `LOCK.RELEASE … STORE` only for the holder, so a result is never stored for a lease
//! that is over. If an answer is lost, the same command is sent again. It stores the result, or it finds
//! that the owner no longer holds the lock. Then the stored value shows whether the first command has stored
//! the result.
//!
//! A wait is granted a short lease, an offer, and a large result may need longer to arrive. So the full lease is
//! requested just before the result, without waiting for the answer.

use crate::engine::context::Context;
use crate::engine::hold::{gave_back, give_back_in};
use crate::engine::lease::held_lock::HeldLock;
use crate::engine::lease::{Lease, ShareId};
use crate::engine::limit::{Limit, Trouble};
use crate::wire::error::Error;
use crate::wire::reply;
use crate::wire::request::{self, GiveBack, ToStore};
use futures_util::future::join;
use std::sync::Arc;
use std::time::Duration;

/// Releases a lock that has one guard, and stores a result with the same command. After an error, releases the
/// guard's hold without the result. If the error leaves the outcome unknown, the result may have been stored.
pub(crate) async fn give_back_storing(
    inner: &Arc<Context>,
    lease: &Arc<Lease>,
    share: ShareId,
    result: ToStore<'_>,
) -> Result<(), Error> {
    let turn = lease.turn().await;
    let full = lease.longest(inner.now()).unwrap_or_default();
    // A renewal that arrives after the release would report the lock as lost.
    lease.abandon(share);
    lease.quiet().await;
    // The record does not count the full lease, so it may end before the result has arrived. That is no loss: the
    // answer decides.
    inner.watchdog.forget(lease);
    let stored = store(inner, lease, full, result).await;
    if stored.is_ok() {
        gave_back(inner, lease, &turn, share);
    } else if let Err(trouble) = give_back_in(inner, lease, &turn, share, HeldLock::release).await {
        // The caller gets the reason why the result was not stored, not this error.
        tracing::debug!(%trouble, "released without the result");
    }
    stored
}

/// Stores the result and releases the lock. Temporary errors are retried for the client's patience, while the
/// lease lasts, which is `full` after a renewal.
async fn store(
    inner: &Context,
    lease: &Lease,
    full: Duration,
    result: ToStore<'_>,
) -> Result<(), Error> {
    let held_lock = &lease.held_lock;
    let call = |request| inner.router.call(&held_lock.key, request, inner.settings.reply_timeout);
    let renewal = if lease.left() < full / 2 { Some(held_lock.renew(full, None)?) } else { None };
    let request = request::with_store(held_lock.release(GiveBack::DownTo(0)), result)?;
    let left = if renewal.is_some() { full } else { lease.left() };
    let mut trouble = Trouble::new(Limit::within(left));
    // The error after which the result may have been stored.
    let mut doubt: Option<Error> = None;
    loop {
        let answer = match &renewal {
            // If the lock is lost, the answer to the release says so too.
            Some(renewal) => join(call(renewal), call(&request)).await.1,
            None => call(&request).await,
        };
        let error = match answer.and_then(|value| Ok(reply::read::<Option<u64>>(value)?)) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) | Err(Error::NotALock) => {
                let stored =
                    if doubt.is_some() { is_stored(inner, result).await } else { Ok(false) };
                match stored {
                    Ok(true) => return Ok(()),
                    Ok(false) => {
                        lease.mark_not_held();
                        return Err(lease.lost_error());
                    }
                    Err(error) => error,
                }
            }
            // Release at once: the next waiter need not wait until memory is free.
            Err(refused) if refused.code() == Some("OOM") => return Err(doubt.unwrap_or(refused)),
            Err(error) => {
                if error.leaves_outcome_unknown() {
                    doubt = Some(error.clone());
                }
                error
            }
        };
        if let Err(error) = inner.wait_to_retry(&mut trouble, error).await {
            return Err(doubt.unwrap_or(error));
        }
    }
}

/// Returns whether the key holds this result.
async fn is_stored(inner: &Context, result: ToStore<'_>) -> Result<bool, Error> {
    let get = request::get(result.key);
    let stored = inner.query(result.key, &get, reply::read::<Option<Vec<u8>>>).await?;
    Ok(stored.as_deref() == Some(result.value))
}
