//! Renewals and releases.

use crate::engine::clock::Moment;
use crate::engine::context::Context;
use crate::engine::lease::held_lock::HeldLock;
use crate::engine::lease::late::RenewalId;
use crate::engine::lease::{Lease, ReleaseAction, ShareId, Turn};
use crate::engine::limit::{Limit, Trouble};
use crate::engine::settings::{FIRST_LEASE, check_lease};
use crate::engine::telemetry;
use crate::engine::undo;
use crate::net::deadline::{after, left};
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use crate::wire::reply;
use crate::wire::request::{self, GiveBack};
use redis::{Cmd, RedisResult};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Renews a lease, and records the outcome. `request` returns the length and the command, when the renewal is
/// about to be sent. Returns the moment of sending.
///
/// Temporary errors without an effect at the server are retried for the client's patience, while the lease
/// lasts. If the command is `repeatable`, a repetition has the same effect. Then it is also retried once
/// after a broken connection.
pub(crate) async fn renew(
    inner: &Arc<Context>,
    lease: &Arc<Lease>,
    repeatable: bool,
    mut request: impl FnMut(Moment) -> RedisResult<(Duration, Cmd)>,
) -> Result<Moment, Error> {
    let (mut trouble, mut again) = (Trouble::new(Limit::Never), repeatable);
    loop {
        if lease.is_lost() || !lease.is_alive() {
            return Err(lease.lost_error());
        }
        let outcome = renew_once(inner, lease, &mut request).await;
        inner.watchdog.watch(lease);
        match outcome {
            Ok(sent) => return Ok(sent),
            Err(error) if !error.leaves_outcome_unknown() && !error.is_lost() => {
                inner.wait_to_retry(&mut trouble, error).await?;
            }
            Err(Error::Connection(_)) if std::mem::take(&mut again) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends one renewal. The watchdog may send another one at the same time. The wait for the answer leaves
/// time for another attempt before the lease ends.
async fn renew_once(
    inner: &Arc<Context>,
    lease: &Arc<Lease>,
    request: &mut impl FnMut(Moment) -> RedisResult<(Duration, Cmd)>,
) -> Result<Moment, Error> {
    let end = after(inner.settings.reply_timeout.min(lease.left() / 2));
    let route = inner.renewals.route_of(&lease.held_lock.key);
    let to = timeout(left(end), route).await.map_err(|_| Error::Timeout)??;
    let sent = inner.now();
    let (length, request) = request(sent)?;
    let mut renewal = InFlight { lease, renewal: None };
    let sending = |via, redirected| {
        if let Some(refused) = renewal.renewal.filter(|_| redirected) {
            lease.refused(refused);
        }
        renewal.renewal = Some(lease.renewing(sent, length, via));
        // `renewing` may have shortened the lease. The agenda is updated at once, since this future may be
        // dropped.
        inner.watchdog.watch(lease);
    };
    let answer = inner.renewals.send_one(to, &request, left(end), sending).await;
    match renewal.renewal {
        Some(renewal) => lease.answered(renewal, sent, length, answer, inner.now())?,
        None => drop(answer.map_err(|failed| failed.error)?),
    }
    if lease.is_lost() { Err(lease.lost_error()) } else { Ok(sent) }
}

/// A renewal in flight. If it is dropped before the answer, the renewal is given up.
struct InFlight<'a> {
    lease: &'a Lease,
    renewal: Option<RenewalId>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(renewal) = self.renewal {
            self.lease.give_up(renewal);
        }
    }
}

/// Sets the owner's value at the server, with a renewal.
pub(crate) async fn proclaim(
    inner: &Arc<Context>,
    lease: &Arc<Lease>,
    value: &[u8],
) -> Result<(), Error> {
    let with_value = |sent| {
        let length = lease.longest(sent).unwrap_or_default();
        Ok((length, request::with_value(lease.renewal(length, None)?, Some(value))))
    };
    renew(inner, lease, true, with_value).await.map(drop)
}

/// Sets the rest of a lease whose only guard is ending, so nobody relies on the lease. The caller has the turn,
/// and no renewal is in flight. If the lease lasts at first, only the server's answer shows a loss: the rest may
/// be over before the answer arrives.
///
/// Temporary errors without an effect at the server are retried, as [`renew`] does.
pub(crate) async fn set_rest(
    inner: &Arc<Context>,
    lease: &Arc<Lease>,
    share: ShareId,
    rest: Duration,
) -> Result<(), Error> {
    check_lease(rest)?;
    if lease.is_lost() {
        return Err(lease.lost_error());
    }
    // If the caller's future is dropped, the release is repeated until a lease of this length has ended.
    let rest = lease.changing(share, inner.now(), rest);
    let request = lease.renewal(rest, None)?;
    let (mut trouble, mut in_doubt) = (Trouble::new(Limit::within(lease.left())), None);
    loop {
        let sent = inner.now();
        match send_rest(inner, lease, &request).await {
            Ok(Some(_)) => return Ok(()),
            // Probably the first command was executed, and the rest that it set is over.
            Ok(None) if in_doubt.is_some_and(|sent: Moment| inner.now() >= sent.after(rest)) => {
                return Ok(());
            }
            Ok(None) => lease.mark_not_held(),
            Err(Error::NotALock) => lease.lose(true, Loss::Deleted),
            // A renewal sets the length of the lease and adds nothing, so it can be repeated.
            Err(Error::Connection(_)) if in_doubt.is_none() => {
                in_doubt = Some(sent);
                continue;
            }
            Err(error) if error.leaves_outcome_unknown() => return Err(error),
            Err(error) => {
                inner.wait_to_retry(&mut trouble, error).await?;
                continue;
            }
        }
        return Err(lease.lost_error());
    }
}

/// Sends one renewal that the record of the lease does not count.
async fn send_rest(
    inner: &Context,
    lease: &Lease,
    request: &Cmd,
) -> Result<Option<Duration>, Error> {
    let end = after(inner.settings.reply_timeout);
    let route = inner.renewals.route_of(&lease.held_lock.key);
    let to = timeout(left(end), route).await.map_err(|_| Error::Timeout)??;
    let answer = inner.renewals.send_one(to, request, left(end), |_, _| {}).await;
    answer.map_err(|failed| failed.error)
}

/// Removes one guard's share from a lease, and sends the release that [`Lease::leave`] returns, if any.
pub(crate) async fn give_back(
    inner: &Arc<Context>,
    lease: &Arc<Lease>,
    share: ShareId,
) -> Result<(), Error> {
    let turn = lease.turn().await;
    give_back_in(inner, lease, &turn, share, HeldLock::release).await
}

/// [`give_back`] for a caller that has the turn. `release` builds the command.
pub(crate) async fn give_back_in(
    inner: &Arc<Context>,
    lease: &Arc<Lease>,
    turn: &Turn,
    share: ShareId,
    release: impl FnOnce(&HeldLock, GiveBack) -> Cmd,
) -> Result<(), Error> {
    let held_so_far = !lease.is_lost();
    // Upper limit of the lease at the server.
    let lasts = lease.longest_ever().max(FIRST_LEASE);
    let action = lease.leave(turn, share);
    inner.watchdog.watch(lease);
    let ReleaseAction::Release { give_back, strays } = action else {
        return Err(lease.lost_error());
    };
    let held_lock = &lease.held_lock;
    let request = release(held_lock, give_back);
    let outcome = send(inner, lease, &request, held_so_far).await;
    match &outcome {
        Ok(()) => telemetry::released(held_lock),
        // A partial release that does not fit: a stray command may have changed the number of holds. The last
        // guard releases all holds.
        Err(trouble) if trouble.code() == Some("MISMATCH") => return Ok(()),
        Err(_) => {}
    }
    let unknown = outcome.as_ref().is_err_and(|trouble| !trouble.is_lost());
    if !matches!(give_back, GiveBack::All) {
        // If the release were repeated later, it could remove a newer hold.
        if unknown {
            lease.strayed();
        }
    } else if unknown || strays {
        release_again(inner, lease, request, lasts);
    }
    outcome
}

/// Repeats a release in the background: the first release may have had no effect, or an earlier command may
/// arrive after it.
fn release_again(inner: &Arc<Context>, lease: &Lease, release: Cmd, lasts: Duration) {
    let (context, key) = (inner.clone(), lease.held_lock.key.clone());
    inner.spawn(move || {
        let (context, key, release) = (context.clone(), key.clone(), release.clone());
        async move { undo::free(&context, &key, &[release], None, true, lasts, None).await }
    });
}

/// Removes the share of the only guard, after a release that stored a result.
pub(crate) fn gave_back(inner: &Arc<Context>, lease: &Arc<Lease>, turn: &Turn, share: ShareId) {
    let lasts = lease.longest_ever().max(FIRST_LEASE);
    let release = lease.leave(turn, share);
    inner.watchdog.watch(lease);
    telemetry::released(&lease.held_lock);
    if let ReleaseAction::Release { give_back, strays: true } = release {
        release_again(inner, lease, lease.held_lock.release(give_back), lasts);
    }
}

/// Sends a release, and repeats it once if the connection breaks. The release is of all holds, or
/// names the number of holds to leave, so a repetition does no harm.
async fn send(
    inner: &Context,
    lease: &Lease,
    request: &Cmd,
    held_so_far: bool,
) -> Result<(), Error> {
    let (key, mut again) = (&lease.held_lock.key, true);
    loop {
        let answer = inner.router.call(key, request, inner.settings.reply_timeout).await;
        match answer.and_then(|value| Ok(reply::read::<Option<u64>>(value)?)) {
            Ok(Some(_)) => return Ok(()),
            // Probably released by the first command, whose answer did not arrive.
            Ok(None) if !again && held_so_far => return Ok(()),
            Ok(None) | Err(Error::NotALock) => {
                lease.mark_not_held();
                return Err(lease.lost_error());
            }
            Err(Error::Connection(_)) if again => again = false,
            Err(trouble) => return Err(trouble),
        }
    }
}
