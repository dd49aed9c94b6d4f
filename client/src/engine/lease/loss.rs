//! Detection of lost leases, and notification of their guards.
//!
//! The watchdog or any query marks a lease as expired when it reads the clock and `until` has passed. A server
//! reports a loss in the answer to a command. The first loss calls `end`, which records the reason and wakes
//! the tasks that wait for the loss.

use super::{Lease, Phase, ShareId, State};
use crate::engine::clock::Moment;
use crate::engine::telemetry;
use crate::sync::{MutexGuard, Ordering};
use crate::wire::error::Error;
use crate::wire::loss::Loss;

impl Lease {
    /// Returns whether the holder must stop. Reads the clock, since no timer may have run after a suspend.
    pub(crate) fn is_lost(&self) -> bool {
        let now = Moment::of(&*self.clock);
        now >= self.until() && self.expire(now)
    }

    /// Marks the lease as lost if it has expired, and returns whether it is lost. May call the program's
    /// log and metrics recorders.
    pub(crate) fn expire(&self, now: Moment) -> bool {
        let state = self.state();
        let over = state.is_held() && now >= self.until();
        if over {
            let why = if now < Moment(self.until.load(Ordering::Acquire)) {
                Loss::SessionEnded
            } else if state.unconfirmed {
                Loss::NotReplicated
            } else {
                Loss::Expired
            };
            self.end(state, false, why);
            return true;
        }
        state.phase.is_lost()
    }

    /// Marks the lease as lost. `told` is `true` if the server reported the loss. The first reason is kept.
    pub(crate) fn lose(&self, told: bool, why: Loss) {
        let mut state = self.state();
        if state.is_held() {
            self.end(state, told, why);
        } else if let Phase::Lost { told: before, .. } = &mut state.phase {
            *before |= told;
        }
    }

    /// Marks the lease as lost because the server answered that this owner does not hold the lock.
    pub(crate) fn mark_not_held(&self) {
        let why = self.state().suspicion.unwrap_or(Loss::Forgotten);
        self.lose(true, why);
    }

    /// Records a suspected loss with its reason, and makes a renewal due. The answer to a renewal that was
    /// sent later shows whether the lock is lost. If `fits` is `false`, an earlier reason is kept.
    pub(crate) fn suspect(&self, why: Loss, fits: bool, now: Moment) {
        let mut state = self.state();
        state.suspicion = state.suspicion.filter(|_| !fits).or(Some(why));
        drop(state);
        self.hurry(now);
    }

    /// Returns the error for a caller that needs the lock held.
    pub(crate) fn lost_error(&self) -> Error {
        let why = self.why_lost().or_else(|| self.state().suspicion);
        Error::Lost(why.unwrap_or(Loss::Forgotten))
    }

    fn end(&self, mut state: MutexGuard<'_, State>, told: bool, why: Loss) {
        state.phase = Phase::Lost { told, why };
        self.until.store(Moment::LONG_AGO.0, Ordering::Release);
        drop(state);
        self.end_notify.notify_waiters();
        self.answered.notify_waiters();
        self.held.ended();
        telemetry::lost(&self.held_lock, why);
    }

    /// Returns why the lease is lost, if it is.
    pub(crate) fn why_lost(&self) -> Option<Loss> {
        // Reads the clock first, so that an expired lease is marked as lost.
        let _lost = self.is_lost();
        match self.state().phase {
            Phase::Lost { why, .. } => Some(why),
            Phase::Held => None,
        }
    }

    /// Waits until the lease is lost, and returns why; `None` when the guard of the share is gone.
    pub(crate) async fn ended(&self, share: ShareId) -> Option<Loss> {
        loop {
            let mut end = std::pin::pin!(self.end_notify.notified());
            // Enabled before the check, so that no notification is missed.
            end.as_mut().enable();
            if let Some(why) = self.why_lost() {
                return Some(why);
            }
            if !self.has(share) {
                return None;
            }
            end.await;
        }
    }
}
