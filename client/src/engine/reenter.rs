//! Re-entry: an owner that holds a lock acquires it once more.
//!
//! The watchdog may renew the lease during a re-entry.

use crate::engine::clock::Moment;
use crate::engine::context::Context;
use crate::engine::hold;
use crate::engine::lease::{Lease, LeaseSpec, ShareId, Turn};
use crate::engine::settings::FIRST_LEASE;
use crate::engine::telemetry;
use crate::engine::undo::{self, Followed};
use crate::net::live::Live;
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use crate::wire::reply::{self, Grant};
use crate::wire::request::GiveBack;
use std::sync::Arc;

/// Adds a hold. Its lease is at most [`FIRST_LEASE`]; a renewal sets a longer one. `None` if the last guard
/// was released, so that there is nothing to re-enter.
///
/// Tries once. After an error it can be called again: the command names the resulting number of holds, so a
/// repetition adds nothing.
///
/// # Cancel safety
///
/// If the future is dropped, a release in the background restores the number of holds.
pub(crate) async fn reenter(
    inner: &Arc<Context>,
    lease: &Arc<Lease>,
    term: LeaseSpec,
) -> Result<Option<ShareId>, Error> {
    let turn = lease.turn().await;
    if !lease.is_alive() {
        return Ok(None);
    }
    if lease.is_lost() {
        return Err(lease.lost_error());
    }
    let first = LeaseSpec { length: term.length.min(FIRST_LEASE), ..term };
    let mut addition = Addition { inner, lease, turn: Some(turn), via: None };
    let (mut sent, answer) = addition.ask(first).await;
    let same = |grant: &Grant| lease.is_ours(grant.token);
    match answer {
        Ok(Some(grant)) if same(&grant) => {}
        // The grant that the guards hold has ended: another owner holds the lock, or the key was changed.
        Ok(other) => {
            lease.lose(false, if other.is_none() { Loss::Taken } else { Loss::Deleted });
            return Err(lease.lost_error());
        }
        // A late release may have removed a hold. The renewal shows whether the lock is still held.
        Err(trouble) if trouble.code() == Some("MISMATCH") => {
            sent = addition.renew(first).await?;
        }
        Err(trouble) => return Err(trouble),
    }
    let turn = addition.turn.as_ref();
    let counts = inner.settings.replicas.is_none();
    let Some(share) = turn.and_then(|turn| lease.reentered(turn, sent, first, counts)) else {
        return Err(lease.lost_error());
    };
    addition.turn = None;
    inner.watchdog.watch(lease);
    telemetry::reentered(&lease.held_lock);
    Ok(Some(share))
}

/// A hold that may have been added. While it has the turn, dropping it releases the hold.
struct Addition<'a> {
    inner: &'a Arc<Context>,
    lease: &'a Arc<Lease>,
    turn: Option<Turn>,
    via: Option<Arc<Live>>,
}

impl Addition<'_> {
    async fn ask(&mut self, first: LeaseSpec) -> (Moment, Result<Option<Grant>, Error>) {
        let held_lock = &self.lease.held_lock;
        let holds = u32::try_from(self.lease.holds() + 1).ok();
        let sent = self.inner.now();
        let answer = async {
            let request = held_lock.acquire(first.length, holds)?;
            let patience = self.inner.settings.reply_timeout.min(self.lease.left() / 2);
            let via = |live: &Arc<Live>| self.via = Some(live.clone());
            let answer = self.inner.router.call_via(&held_lock.key, &request, patience, via).await;
            Ok(reply::read(answer?)?)
        };
        (sent, answer.await)
    }

    /// Renews the lock for the longest lease that a guard or this re-entry requests, and waits for the reply.
    /// Returns the time at which the renewal was sent.
    async fn renew(&self, first: LeaseSpec) -> Result<Moment, Error> {
        let (inner, lease) = (self.inner, self.lease);
        let all_want = |sent| {
            let length = lease.longest(sent).unwrap_or_default().max(first.length);
            Ok((length, lease.renewal(length, None)?))
        };
        hold::renew(inner, lease, true, all_want).await
    }
}

impl Drop for Addition<'_> {
    fn drop(&mut self) {
        let (Some(turn), Some(via)) = (self.turn.take(), self.via.take()) else {
            return;
        };
        let held_lock = &self.lease.held_lock;
        let left = u32::try_from(self.lease.holds()).unwrap_or(u32::MAX);
        let release = held_lock.release(GiveBack::DownTo(left));
        let (inner, lease) = (self.inner.clone(), self.lease.clone());
        self.inner.spawn(move || {
            // Dropped with this closure.
            let _turn = &turn;
            let (inner, lease) = (inner.clone(), lease.clone());
            let (release, via) = (release.clone(), via.clone());
            async move {
                if undo::follow(&inner, &release, &via).await != Followed::Done {
                    // The hold may remain, or be added later. This makes the last guard repeat its release of
                    // all holds.
                    lease.strayed();
                }
            }
        });
    }
}
