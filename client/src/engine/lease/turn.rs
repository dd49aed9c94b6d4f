//! Commands that change the number of holds: at most one is awaited at a time. (I3)

use super::{Lease, LeaseSpec, Phase, ShareId, State};
use crate::engine::clock::Moment;
use crate::net::deadline::{after, left};
use crate::wire::request::GiveBack;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout_at;

/// Exclusive right to change the number of holds.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Lease>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.state().turn = None;
        self.0.turn_over.notify_one();
    }
}

/// Command to send when a guard is released or dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReleaseAction {
    /// None: the server has reported that the lock is lost.
    Silent,
    /// A release of some or all holds.
    Release {
        give_back: GiveBack,
        /// `true` if an earlier acquire or release of this owner may arrive after this release.
        strays: bool,
    },
}

impl Lease {
    /// Waits until the turn is free, and takes it.
    pub(crate) async fn turn(self: &Arc<Self>) -> Turn {
        loop {
            let over = self.turn_over.notified();
            if let Some(turn) = self.try_turn() {
                return turn;
            }
            over.await;
        }
    }

    /// Takes the turn for the guard of `share`, after the releases of other guards that were dropped: their holds
    /// are about to end. Waits no longer than the lease lasts so far: the runtime of a release may have ended.
    pub(crate) async fn turn_after_releases(self: &Arc<Self>, share: ShareId) -> Turn {
        let end = after(self.left());
        loop {
            let mut ended = std::pin::pin!(self.end_notify.notified());
            ended.as_mut().enable();
            let turn = self.turn().await;
            if !self.state().shares.is_giving_back(share) || left(end).is_zero() || self.is_lost() {
                return turn;
            }
            drop(turn);
            let _over = timeout_at(end, ended).await;
        }
    }

    /// Takes the turn if it is free.
    pub(crate) fn try_turn(self: &Arc<Self>) -> Option<Turn> {
        let mut state = self.state();
        if state.turn.is_some() {
            return None;
        }
        state.turn = Some(state.late.counts(Duration::MAX));
        drop(state);
        Some(Turn(self.clone()))
    }

    /// Adds a hold that was requested at `sent`. The lease at the server is the longer of the previous and
    /// the requested one. `None` if the lock is lost. If `counts` is `false`, replicas must confirm the hold
    /// first: `until` does not change, and a renewal is due at once.
    pub(crate) fn reentered(
        &self,
        _turn: &Turn,
        sent: Moment,
        term: LeaseSpec,
        counts: bool,
    ) -> Option<ShareId> {
        let mut state = self.state();
        if !state.is_held() {
            return None;
        }
        let share = state.shares.add(sent, term);
        if counts {
            self.believe_in_turn(&mut state, sent, term.length);
        } else {
            state.renew_at = sent;
        }
        Some(share)
    }

    /// [`believe`](Self::believe) for a command of the turn. Renewals were sent meanwhile without a turn, and the
    /// server may have executed one of them last.
    fn believe_in_turn(&self, state: &mut State, sent: Moment, length: Duration) {
        let beside = state.turn.unwrap_or_default();
        self.believe(state, sent, length.min(beside));
    }

    /// Records that an acquire repeated at `sent` was granted, with a lease of at least `length`. If `counts`
    /// is `false`, replicas have to confirm the grant first: `until` does not change, and a renewal is due at
    /// once.
    pub(crate) fn prolonged(
        &self,
        _turn: &Turn,
        sent: Moment,
        length: Duration,
        counts: bool,
        now: Moment,
    ) {
        if self.expire(now) {
            return;
        }
        let mut state = self.state();
        if !counts {
            state.renew_at = sent;
        } else if state.is_held() {
            self.believe_in_turn(&mut state, sent, length);
        }
    }

    /// Records that an abandoned command may have been executed, or may be executed later.
    pub(crate) fn strayed(&self) {
        self.state().strays = true;
    }

    /// Removes the guard's share, and returns what to send. A release is of all holds, or names the number of
    /// holds to leave. So sending it twice changes nothing, unless a hold was added in between.
    pub(crate) fn leave(&self, _turn: &Turn, share: ShareId) -> ReleaseAction {
        let mut state = self.state();
        let was_held = state.is_held();
        state.shares.remove(share);
        let left = u32::try_from(state.shares.len()).unwrap_or(u32::MAX);
        let told = matches!(state.phase, Phase::Lost { told: true, .. });
        let ends = was_held && left == 0;
        let strays = state.strays;
        drop(state);
        self.end_notify.notify_waiters();
        if ends {
            self.held.ended();
        }
        // If one lock of a set was lost, the owner may still hold the others.
        if told && self.held_lock.further.is_none() {
            return ReleaseAction::Silent;
        }
        let give_back = if left == 0 { GiveBack::All } else { GiveBack::DownTo(left) };
        ReleaseAction::Release { give_back, strays }
    }
}
