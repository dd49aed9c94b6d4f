//! Planning of renewals, and their outcomes.

use super::{Lease, ShareId, State};
use crate::engine::clock::Moment;
use crate::engine::lease::late::RenewalId;
use crate::net::replicas::NotRenewed;
use crate::sync::Ordering;
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use std::time::Duration;

/// The next action of the watchdog for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchdogAction {
    /// Renew the lease, with this length.
    Renew(Duration),
    /// Check the lease again at this time.
    Later(Moment),
    /// Mark the lease as lost: it has ended.
    Expire,
    /// Stop watching the lease: it is lost or released.
    Done,
}

/// Shortest pause before a failed renewal is tried again.
const SOON: Duration = Duration::from_millis(5);
/// Longest pause before a failed renewal is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Lease {
    /// Returns the next action of the watchdog at `now`. Changes nothing.
    pub(crate) fn action(&self, now: Moment) -> WatchdogAction {
        let state = self.state();
        if !state.is_held() {
            return WatchdogAction::Done;
        }
        if now >= self.until() {
            return WatchdogAction::Expire;
        }
        let until = Moment(self.until.load(Ordering::Acquire));
        match state.renewal(now, until) {
            Some(length) if state.renew_at <= now => WatchdogAction::Renew(length),
            Some(_) => WatchdogAction::Later(state.renew_at.min(until)),
            None => WatchdogAction::Later(until),
        }
    }

    /// Makes a renewal due now, whatever was planned, unless the watchdog has one in flight. A renewal
    /// becomes due for a fixed lease too, as a check.
    pub(crate) fn hurry(&self, now: Moment) {
        self.state().hurry(now);
    }

    /// Starts the renewal that is due, and returns its length. The watchdog sends no other renewal until
    /// this one has ended. `None` if none is due, for example since the guard was dropped after the check.
    pub(crate) fn take_up(&self, now: Moment) -> Option<Duration> {
        let mut state = self.state();
        let due = state.is_held() && state.renew_at <= now;
        let until = Moment(self.until.load(Ordering::Acquire));
        let length = state.renewal(now, until).filter(|_| due)?;
        state.renew_at = Moment::NEVER;
        Some(length)
    }

    /// Records that a renewal is about to be sent over `via`. The server may execute it and the answer may be
    /// lost. So from now on the lease counts for no more than this renewal sets. (I1)
    pub(crate) fn renewing(&self, sent: Moment, length: Duration, via: u64) -> RenewalId {
        let mut state = self.state();
        let renewal = state.late.sending(via, sent, length);
        state.turn = state.turn.map(|beside| beside.min(length));
        self.update_until(&state);
        renewal
    }

    /// Records the outcome of a renewal. Returns the error of a renewal that failed. If the server reports that
    /// the lock is lost, records the loss and returns `Ok`.
    pub(crate) fn answered(
        &self,
        renewal: RenewalId,
        sent: Moment,
        length: Duration,
        answer: Result<Option<Duration>, NotRenewed>,
        now: Moment,
    ) -> Result<(), Error> {
        match answer {
            Ok(Some(runs)) => self.renewed(renewal, sent, runs.min(length), now),
            Ok(None) => self.mark_not_held(),
            Err(NotRenewed { error: Error::NotALock, .. }) => self.lose(true, Loss::Deleted),
            Err(NotRenewed { error, may_be_executed }) => {
                self.failed(&error);
                if may_be_executed {
                    self.give_up(renewal);
                } else {
                    self.refused(renewal);
                }
                return Err(error);
            }
        }
        // The renewals of a lost lock end here too. Otherwise they would stay in flight.
        self.refused(renewal);
        Ok(())
    }

    /// Stops waiting for the answer to a renewal.
    pub(crate) fn give_up(&self, renewal: RenewalId) {
        let mut state = self.state();
        if let Some((after, length)) = state.late.give_up(renewal) {
            state.granted = state.granted.min(self.safety.until(after, length));
        }
        drop(state);
        self.answered.notify_waiters();
    }

    /// Records that the server has executed a renewal that was sent at `sent`. No effect if the lease had
    /// ended by `now`.
    pub(crate) fn renewed(&self, renewal: RenewalId, sent: Moment, length: Duration, now: Moment) {
        let mut state = self.state();
        state.late.shorten(renewal, length);
        self.update_until(&state);
        drop(state);
        if self.expire(now) {
            return;
        }
        let mut state = self.state();
        let believed = self.believed(&state);
        let length = length.min(state.late.executed(renewal));
        state.unconfirmed = false;
        if !state.is_held() {
            return;
        }
        // What was believed is still true. What was granted before may not be: this renewal may have shortened it.
        state.granted = believed;
        self.believe(&mut state, sent, length);
        match state.check {
            Some(before) if renewal.is_after(before) => {
                (state.check, state.suspicion) = (None, None);
            }
            Some(_) => state.renew_at = sent,
            None => {}
        }
    }

    /// Records that a renewal had no effect. From then on it does not limit the lease: what was believed before
    /// it was sent is believed again. No effect for a renewal that was executed or given up.
    pub(crate) fn refused(&self, renewal: RenewalId) {
        let mut state = self.state();
        state.late.refused(renewal);
        self.update_until(&state);
        drop(state);
        self.answered.notify_waiters();
    }

    /// Plans the next renewal, after a renewal by the watchdog failed or was not answered. The pause leaves
    /// time for several attempts before the lease ends, whatever length was requested. After a redirect there
    /// is almost no pause.
    pub(crate) fn not_renewed(&self, redirected: bool, now: Moment) {
        let until = Moment(self.until.load(Ordering::Acquire));
        let left = until.left_at(now);
        let mut state = self.state();
        let length = state.late.counts(state.shares.longest(now, until).unwrap_or(left));
        let pause = if redirected { SOON } else { (length / 24).min(left / 8) };
        state.renew_at = now.after(pause.clamp(SOON, LONGEST_PAUSE));
        drop(state);
        self.answered.notify_waiters();
    }

    /// Records why a renewal failed.
    pub(crate) fn failed(&self, trouble: &Error) {
        // A timeout keeps the earlier reason: late retries have little time left for an answer.
        if !matches!(trouble, Error::Timeout) {
            self.state().unconfirmed = matches!(trouble, Error::NotReplicated { .. });
        }
    }

    /// Returns the length to request, at `sent`, for a share whose lease is to be set to `length`. Until the
    /// server has set it, the watchdog requests what it requested before, so that a length that the server
    /// refuses does no harm. If the new length is shorter, the next renewal is due sooner.
    pub(crate) fn changing(&self, share: ShareId, sent: Moment, length: Duration) -> Duration {
        let mut state = self.state();
        let longest = state.shares.changing(share, sent, length);
        state.renew_at = state.renew_at.min(state.a_third_after(sent, longest));
        longest
    }

    /// Records that the server has set the lease of a share to `length` with a command sent at `sent`. Later
    /// renewals request this length. If another renewal, which did not know of it, may have set a shorter lease
    /// since, the next one is due at once.
    pub(crate) fn changed(&self, share: ShareId, sent: Moment, length: Duration) {
        let mut state = self.state();
        state.shares.changed(share, sent, length);
        if self.until.load(Ordering::Acquire) < self.safety.until(sent, length).0 {
            state.hurry(sent);
        }
    }
}

impl State {
    /// Returns the length of a renewal that gives each guard at least the lease that it requests; `None` if
    /// no guard requests renewals and the lease needs no check. (I4)
    fn renewal(&self, now: Moment, until: Moment) -> Option<Duration> {
        if self.check.is_some() || self.shares.is_watched() {
            self.shares.longest(now, until)
        } else {
            None
        }
    }

    /// See [`Lease::hurry`].
    fn hurry(&mut self, now: Moment) {
        self.check = Some(self.late.last_number());
        if self.renew_at != Moment::NEVER {
            self.renew_at = self.renew_at.min(now);
        }
    }

    /// Plans the next renewal of a lease that was requested at `sent`.
    pub(super) fn plan_renewal(&mut self, sent: Moment, length: Duration) {
        self.renew_at = self.a_third_after(sent, length);
    }

    /// Returns when a third of the lease is over, rounded down to one of 32 points in that third. So the
    /// renewals of a client with many locks come in batches.
    fn a_third_after(&self, sent: Moment, length: Duration) -> Moment {
        let length = self.late.counts(length);
        let third = sent.after(length / 3);
        let grid = u64::try_from(length.as_nanos() / (3 * 32)).unwrap_or(u64::MAX).max(1);
        Moment(third.0 - third.0 % grid).max(sent)
    }
}
