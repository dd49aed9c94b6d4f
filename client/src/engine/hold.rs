//! Renewing and giving back what is held.

use crate::engine::claim;
use crate::engine::clock::Moment;
use crate::engine::context::Context;
use crate::engine::lease::{Lease, ReleaseAction, ShareId, Turn};
use crate::engine::observe;
use crate::wire::error::Error;
use crate::wire::reply;
use crate::wire::request::{self, GiveBack};
use redis::Cmd;
use std::sync::Arc;
use std::time::Duration;

/// Renews it for that long, and takes in what comes of it, with what the owner says of itself from then on.
/// Says when that was sent.
pub(crate) async fn renew(
    inner: &Arc<Context>,
    lease: &Arc<Lease>,
    turn: &Turn,
    value: Option<&[u8]>,
    length: impl FnOnce(Moment) -> Duration,
) -> Result<Moment, Error> {
    let to = inner.renewals.route_of(&lease.held_lock.key).await?;
    let sent = inner.now();
    let length = length(sent);
    let request = request::with_value(lease.renewal(length)?, value);
    let sending = |via, redirected| {
        if redirected {
            lease.refused(turn);
        }
        lease.renewing(turn, sent, length, via);
        // Should this be dropped, the watchdog knows what is to be expected.
        inner.watchdog.watch(lease);
    };
    let patience = inner.settings.reply_timeout;
    let answer = inner.renewals.send_one(to, &request, patience, sending).await;
    if let Err(trouble) = lease.answered(turn, sent, length, answer, inner.now()) {
        lease.not_renewed(turn, length, inner.now());
        return Err(trouble);
    }
    if lease.is_lost() { Err(Error::Lost) } else { Ok(sent) }
}

/// Sets what the owner says of itself, and renews with it. Sent again, it says the same.
pub(crate) async fn proclaim(
    inner: &Arc<Context>,
    lease: &Arc<Lease>,
    value: &[u8],
) -> Result<(), Error> {
    let mut again = true;
    loop {
        let turn = lease.turn().await;
        if lease.is_lost() || !lease.is_alive() {
            return Err(Error::Lost);
        }
        let all_want = |sent| lease.longest(sent).unwrap_or_default();
        let outcome = renew(inner, lease, &turn, Some(value), all_want).await;
        drop(turn);
        inner.watchdog.watch(lease);
        if !(std::mem::take(&mut again) && matches!(outcome, Err(Error::Connection(_)))) {
            return outcome.map(drop);
        }
    }
}

/// Takes one guard's share out of a lease, and tells the server.
pub(crate) async fn give_back(
    inner: &Arc<Context>,
    lease: &Arc<Lease>,
    share: ShareId,
) -> Result<(), Error> {
    let turn = lease.turn().await;
    let held_so_far = !lease.is_lost();
    let release = lease.leave(&turn, share);
    inner.watchdog.watch(lease);
    let ReleaseAction::Release { give_back, strays } = release else {
        return Err(Error::Lost);
    };
    let held_lock = &lease.held_lock;
    let request = held_lock.release(give_back);
    let outcome = send(inner, &held_lock.key, &request, held_so_far).await;
    match &outcome {
        Ok(()) => observe::released(held_lock),
        Err(Error::Lost) => lease.gone(),
        // A release of some holds that does not fit: what strayed has added one, and the last guard
        // gives back all.
        Err(trouble) if trouble.code() == Some("MISMATCH") => return Ok(()),
        Err(_) => {}
    }
    let unknown = outcome.as_ref().is_err_and(|trouble| !trouble.is_lost());
    if !matches!(give_back, GiveBack::All) {
        // Sent again, it could take a later hold away.
        if unknown {
            lease.strayed();
        }
    } else if unknown || strays {
        let (inner, key) = (inner.clone(), held_lock.key.clone());
        inner.clone().spawn(async move { claim::free(&inner, &key, &[request], None, true).await });
    }
    outcome
}

/// Sends a release, twice if need be: it says how many holds are to be left, so that does no harm.
async fn send(inner: &Context, key: &[u8], request: &Cmd, held_so_far: bool) -> Result<(), Error> {
    let mut again = true;
    loop {
        let answer = inner.router.call(key, request, inner.settings.reply_timeout).await;
        match answer.and_then(|value| Ok(reply::read::<Option<u64>>(value)?)) {
            Ok(Some(_)) => return Ok(()),
            // Released by the first one, whose answer did not arrive.
            Ok(None) if !again && held_so_far => return Ok(()),
            Ok(None) | Err(Error::NotALock) => return Err(Error::Lost),
            Err(Error::Connection(_)) if again => again = false,
            Err(trouble) => return Err(trouble),
        }
    }
}
