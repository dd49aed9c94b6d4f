//! When a lease is renewed, and what comes of it: what the watchdog asks of the record, and tells it.

use super::{Lease, LeaseSpec, Phase, ShareId, State, Turn};
use crate::engine::clock::Moment;
use crate::engine::loss::Loss;
use crate::sync::Ordering;
use crate::wire::error::Error;
use std::time::Duration;

/// What the watchdog has to do about a lease now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchdogAction {
    /// Renew it for that long.
    Renew(Duration),
    /// Look again then.
    Later(Moment),
    /// Forget it: it is lost or released.
    Done,
}

/// Before a failed renewal is tried again, and before a busy record is looked at again.
const SOON: Duration = Duration::from_millis(5);

impl Lease {
    /// What to do about it at `now`.
    pub(crate) fn action(&self, now: Moment) -> WatchdogAction {
        if self.expire(now) {
            return WatchdogAction::Done;
        }
        let state = self.state();
        let until = Moment(self.until.load(Ordering::Acquire));
        match (state.phase, state.renewal(now)) {
            (Phase::Lost { .. } | Phase::Released, _) => WatchdogAction::Done,
            (Phase::Held, Some(length)) if state.renew_at <= now && !state.busy => {
                WatchdogAction::Renew(length)
            }
            (Phase::Held, Some(_)) if state.renew_at > now => {
                WatchdogAction::Later(state.renew_at.min(until))
            }
            // Somebody else's command is under way: soon, but not at once.
            (Phase::Held, Some(_)) => WatchdogAction::Later(now.after(SOON).min(until)),
            (Phase::Held, None) => WatchdogAction::Later(until),
        }
    }

    /// Whatever was planned, a renewal is due now, unless one is under way.
    pub(crate) fn hurry(&self, now: Moment) {
        let mut state = self.state();
        if state.renew_at != Moment::NEVER {
            state.renew_at = state.renew_at.min(now);
        }
    }

    /// A renewal is to be sent, and until it is answered there is no other.
    pub(crate) fn take_up(&self, _turn: &Turn) {
        self.state().renew_at = Moment::NEVER;
    }

    /// A renewal is about to be sent over that connection. If it is shorter than what we have, the
    /// server may obey it and the answer be lost, so from now on no more is believed. (I1)
    pub(crate) fn renewing(&self, _turn: &Turn, sent: Moment, length: Duration, via: u64) {
        let mut state = self.state();
        state.late.sending(via, length);
        state.suspicion = state.suspicion.map(|(why, _)| (why, true));
        let until = self.safety.until(sent, length).0;
        let believed = self.until.load(Ordering::Acquire);
        self.until.store(believed.min(until), Ordering::Release);
    }

    /// Takes in what came of a renewal; an error if it may or may not have been carried out, or was not.
    pub(crate) fn answered(
        &self,
        turn: &Turn,
        sent: Moment,
        length: Duration,
        answer: Result<Option<Duration>, Error>,
        now: Moment,
    ) -> Result<(), Error> {
        match answer {
            Ok(Some(runs)) => self.renewed(turn, sent, runs.min(length), now),
            Ok(None) => self.gone(),
            Err(Error::NotALock) => self.lose(true, Loss::Deleted),
            Err(trouble) => {
                self.failed(&trouble);
                if !trouble.leaves_outcome_unknown() {
                    self.refused(turn);
                }
                return Err(trouble);
            }
        }
        Ok(())
    }

    /// The server has renewed it, as asked for at `sent`. Too late if the time was over by `now`.
    pub(crate) fn renewed(&self, _turn: &Turn, sent: Moment, length: Duration, now: Moment) {
        if self.expire(now) {
            return;
        }
        let mut state = self.state();
        state.late.answered();
        state.unconfirmed = false;
        if state.phase == Phase::Held {
            let until = self.safety.until(sent, state.late.counts(length));
            self.until.store(until.0, Ordering::Release);
            state.plan_renewal(sent, length);
            match state.suspicion {
                // Whoever saw it saw something of before.
                Some((_, true)) => state.suspicion = None,
                // What it has answered was asked before.
                Some((_, false)) => state.renew_at = sent,
                None => {}
            }
        }
    }

    /// The server has answered that it did nothing.
    pub(crate) fn refused(&self, _turn: &Turn) {
        self.state().late.answered();
    }

    /// The renewal failed, or nobody knows. It is tried again before long.
    pub(crate) fn not_renewed(&self, _turn: &Turn, length: Duration, now: Moment) {
        let mut state = self.state();
        let length = state.late.counts(length);
        state.renew_at = now.after((length / 24).clamp(SOON, Duration::from_secs(1)));
    }

    /// Whoever took a renewal up has gone, if one did.
    pub(crate) fn resume(&self, _turn: &Turn, now: Moment) {
        let mut state = self.state();
        if state.renew_at == Moment::NEVER {
            state.renew_at = now.after(SOON);
        }
    }

    /// A renewal failed, or nobody knows, and that is why.
    pub(crate) fn failed(&self, trouble: &Error) {
        // Later there is less and less time for an answer.
        if !matches!(trouble, Error::Timeout) {
            self.state().unconfirmed = matches!(trouble, Error::NotReplicated { .. });
        }
    }

    /// Gives a share another length, from `sent` on. Returns what is to be asked for, and the term
    /// that it had.
    pub(crate) fn change(
        &self,
        _turn: &Turn,
        share: ShareId,
        sent: Moment,
        length: Duration,
    ) -> (Duration, Option<LeaseSpec>) {
        let mut state = self.state();
        let before = state.set_length(share, sent, length);
        let longest = state.longest(sent).unwrap_or(length);
        state.plan_renewal(sent, longest);
        (longest, before)
    }

    /// Takes a change back that the server does not agree to.
    pub(crate) fn change_back(
        &self,
        _turn: &Turn,
        share: ShareId,
        sent: Moment,
        before: LeaseSpec,
    ) {
        let mut state = self.state();
        state.set_length(share, sent, before.length);
        // What runs at the server is what ran before; it is renewed right away.
        state.renew_at = sent;
    }
}

impl State {
    /// What a renewal has to ask for so that no guard gets less than it wants: none if all of them
    /// let their leases end. (I4)
    fn renewal(&self, now: Moment) -> Option<Duration> {
        if self.shares.iter().any(|share| share.term.watched) { self.longest(now) } else { None }
    }

    /// A third of the lease later. Rounded down to one of 32 points in that third, so that those of
    /// a client that has many come in batches.
    pub(super) fn plan_renewal(&mut self, sent: Moment, length: Duration) {
        let length = self.late.counts(length);
        let third = sent.after(length / 3);
        let grid = u64::try_from(length.as_nanos() / (3 * 32)).unwrap_or(u64::MAX).max(1);
        self.renew_at = Moment(third.0 - third.0 % grid).max(sent);
    }
}
