//! The record of what one owner holds: a lock, locks that were acquired together, or permits. Guards and the
//! watchdog share it.
//!
//! ```text
//!            sent                 renew_at                       until      the server frees it
//!              │                      │                            │                 │
//!     ─────────┼──────────────────────┼────────────────────────────┼─────────────────┼────►
//!              │◄──── a third ───────►│                            │◄──── margin ───►│
//!              │◄────────────── holders may believe ──────────────►│  lost
//! ```
//!
//! Nothing here waits for the network, except the [`watchdog`]. Callers report when a command was sent, and its
//! answer. Renewals may overlap: each has a [`RenewalId`](late::RenewalId). In whatever order the server executes
//! them, `until` never exceeds what the server grants.
//!
//! - **I1** `until` is never later than the end of the lease on the server. This includes the end that an
//!   unanswered command sets if it is executed later.
//! - **I2** Lost is final. A query after `until`, or after the time for which the [`Binding`] to a session
//!   counts, first makes the lease lost.
//! - **I3** At most one command that changes the number of holds is awaited: its caller has the [`Turn`]. A
//!   command that is no longer awaited may still be executed; the release takes that into account. Renewals
//!   need no turn, so the watchdog never waits for one.
//! - **I4** The watchdog does not renew a lease that is lost, released, or fixed (none of its
//!   guards requests renewals). If a fixed lease may be lost, the watchdog checks it: it sends a renewal for
//!   the rest of the lease.

pub(crate) mod alive;
pub(crate) mod belief;
pub(crate) mod held_lock;
pub(crate) mod late;
mod loss;
mod renewal;
mod shares;
mod turn;
pub(crate) mod watchdog;

pub(crate) use renewal::WatchdogAction;
pub(crate) use shares::{LeaseSpec, ShareId};
pub(crate) use turn::{ReleaseAction, Turn};

use crate::engine::clock::{Clock, Moment, SafetyMargin};
use crate::engine::lease::belief::{Belief, Binding};
use crate::engine::lease::held_lock::HeldLock;
use crate::engine::lease::late::UnansweredRenewals;
use crate::engine::lease::shares::Shares;
use crate::engine::telemetry::Stopwatch;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::wire::loss::Loss;
use crate::wire::reply::{Grant, Token};
use redis::{Cmd, RedisResult};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// The record of what one owner holds: a lock, locks that were acquired together, or permits.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) held_lock: HeldLock,
    pub(crate) id: u64,
    clock: Arc<dyn Clock>,
    safety: SafetyMargin,
    held: Stopwatch,
    /// End of the time in which the holder may use the lock, a [`Moment`]; 0 when lost. It is the earliest of
    /// `granted` and the ends that renewals in flight may set. The `binding` may end the time earlier. Read
    /// without the mutex.
    until: AtomicU64,
    /// Time at which the watchdog's agenda lists this lease, a [`Moment`]. Guarded by the mutex of the
    /// agenda.
    pub(crate) scheduled: AtomicU64,
    /// Value that the token was raised to; 0 if it was not raised.
    raised: AtomicU64,
    /// The largest token that a renewal was to raise to.
    asked: AtomicU64,
    /// Session that the lease is bound to, if any. The lease ends with that session.
    binding: Binding,
    state: Mutex<State>,
    turn_over: Notify,
    /// Notified when the lease is lost, or one of its guards ends.
    end_notify: Notify,
    /// Notified when a renewal has ended, or the lease is lost.
    answered: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// `None` while nobody has the [`Turn`]. Otherwise the length of the shortest renewal that was in flight
    /// since somebody took it. The server may execute that renewal after the command of the turn.
    turn: Option<Duration>,
    shares: Shares,
    /// `until` if the server executes no renewal that is in flight.
    granted: Moment,
    renew_at: Moment,
    /// The lease is renewed even if it is fixed, because the lock may be lost or its lease may be shorter than a
    /// guard needs: until the answer to a renewal after the one with this number.
    check: Option<u64>,
    /// `true` if an earlier acquire or release of this owner may still arrive at the server.
    strays: bool,
    /// Renewals that may still be in flight.
    late: UnansweredRenewals,
    /// `true` if the last renewal, not counting timeouts, reached the server but too few replicas.
    unconfirmed: bool,
    /// A suspected loss, until the check is over.
    suspicion: Option<Loss>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Held,
    /// The lock is lost. `told` is `true` if the server reported the loss. Otherwise the server may still
    /// count this owner as holder.
    Lost {
        told: bool,
        why: Loss,
    },
}

impl Phase {
    fn is_lost(self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}

/// Settings that all leases of a client share.
#[derive(Clone, Debug)]
pub(crate) struct LeasePolicy {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) safety: SafetyMargin,
}

/// A lease, and the share of the guard that will be created for it.
pub(crate) type Held = (Arc<Lease>, ShareId);

/// A grant and its lease, which may be shorter than the requested one.
pub(crate) struct Granted {
    pub(crate) grant: Grant,
    /// A moment no later than the start of the lease.
    pub(crate) since: Moment,
    pub(crate) runs: Duration,
}

/// Start of a lease: what is known of its grant.
#[derive(Clone, Debug)]
pub(crate) struct Beginning {
    /// A moment no later than the start of the lease: when the command that set the lease was sent, or the
    /// earliest possible time of a grant after a wait.
    pub(crate) since: Moment,
    /// Duration that the server has granted so far: the lease, or a shorter offer.
    pub(crate) runs: Duration,
    /// Renewals of the same owner that may still arrive.
    pub(crate) late: UnansweredRenewals,
    /// `true` if acquires of the same owner may still arrive.
    pub(crate) strays: bool,
}

impl Lease {
    /// Returns the record of a grant, with the share of its first guard.
    pub(crate) fn granted(
        id: u64,
        held_lock: HeldLock,
        policy: &LeasePolicy,
        beginning: Beginning,
        term: LeaseSpec,
    ) -> (Arc<Self>, ShareId) {
        let Beginning { since, runs, late, strays } = beginning;
        // This record gets no answers to renewals that were sent before.
        let late = late.handed_over();
        let runs = late.counts(runs.min(term.length));
        let until = policy.safety.until(since, runs);
        let mut state = State {
            phase: Phase::Held,
            turn: None,
            shares: Shares::default(),
            granted: until,
            renew_at: Moment::NEVER,
            check: None,
            strays,
            late,
            unconfirmed: false,
            suspicion: None,
        };
        let share = state.shares.add(since, term);
        state.plan_renewal(since, runs);
        let lease = Self {
            held_lock,
            id,
            clock: policy.clock.clone(),
            safety: policy.safety,
            held: Stopwatch::start(),
            until: AtomicU64::new(until.0),
            scheduled: AtomicU64::new(Moment::LONG_AGO.0),
            raised: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            binding: Binding::none(),
            state: Mutex::new(state),
            turn_over: Notify::new(),
            end_notify: Notify::new(),
            answered: Notify::new(),
        };
        (Arc::new(lease), share)
    }

    pub(crate) fn token(&self) -> Token {
        self.held_lock.token.max(self.raised.load(Ordering::Acquire).into())
    }

    /// Records that the server has raised the token: each renewal sends the largest token that was raised to.
    pub(crate) fn raised(&self, token: Token) {
        self.raised.fetch_max(token.value(), Ordering::AcqRel);
    }

    /// Returns whether a grant with this token is the grant of this lease. The server may have raised the token
    /// without an answer.
    pub(crate) fn is_ours(&self, token: Token) -> bool {
        if token.value() == self.asked.load(Ordering::Acquire) {
            self.raised(token);
        }
        token == self.token()
    }

    /// Builds the command that renews the lease, and raises the token to `token`, if given.
    pub(crate) fn renewal(&self, length: Duration, token: Option<Token>) -> RedisResult<Cmd> {
        let token = token.map_or(0, Token::value);
        self.asked.fetch_max(token, Ordering::AcqRel);
        let token = self.raised.load(Ordering::Acquire).max(token);
        self.held_lock.renew(length, Some(token).filter(|token| *token > 0))
    }

    /// Returns the renewals that may still arrive, for another record of the same owner.
    pub(crate) fn late(&self) -> UnansweredRenewals {
        self.state().late.clone().handed_over()
    }

    /// Waits until no renewal is in flight and the watchdog is not about to send one. Returns at once if the
    /// lease is lost or released.
    pub(crate) async fn quiet(&self) {
        loop {
            let mut answered = std::pin::pin!(self.answered.notified());
            answered.as_mut().enable();
            if self.is_lost() || self.state().is_quiet() {
                return;
            }
            // The runtime of the renewals may have ended, so that nothing notifies. Look again when the
            // lease ends.
            let _over = timeout(self.left(), answered).await;
        }
    }

    /// Records that a command sent at `sent` was answered, and made the lease at least `length` long.
    fn believe(&self, state: &mut State, sent: Moment, length: Duration) {
        let until = self.safety.until(sent, state.late.outlasts(length));
        state.granted = state.granted.max(until);
        self.update_until(state);
        state.plan_renewal(sent, length);
    }

    /// Returns the earliest end of the lease, in whatever order the server executes the renewals in flight. (I1)
    fn believed(&self, state: &State) -> Moment {
        let ends = state.late.in_flight().map(|(after, length)| self.safety.until(after, length));
        ends.fold(state.granted, Moment::min)
    }

    fn update_until(&self, state: &State) {
        if !state.phase.is_lost() {
            self.until.store(self.believed(state).0, Ordering::Release);
        }
    }

    /// Returns whether the guard of `share` exists.
    pub(crate) fn has(&self, share: ShareId) -> bool {
        self.state().shares.has(share)
    }

    /// Returns whether any guard exists.
    pub(crate) fn has_guards(&self) -> bool {
        self.state().shares.has_any()
    }

    /// Returns the time for which the holder may still rely on the lease.
    pub(crate) fn left(&self) -> Duration {
        self.until().left_at(Moment::of(&*self.clock))
    }

    fn until(&self) -> Moment {
        Moment(self.until.load(Ordering::Acquire)).min(self.binding.until())
    }

    /// Limits the lease to the time that this session lasts. Sessions of earlier calls limit the lease too, until
    /// [`bound_to`](Self::bound_to) removes them.
    pub(crate) fn bind(&self, belief: &Arc<Belief>) {
        self.binding.add(belief);
    }

    /// Records that the server has bound the lease to this session.
    pub(crate) fn bound_to(&self, _turn: &Turn, belief: &Arc<Belief>) {
        self.binding.set(belief);
    }

    /// Records that the server has refused to bind the lease to this session. `was_bound` is what
    /// [`was_bound`](Self::was_bound) returned before the request.
    pub(crate) fn not_bound_to(&self, _turn: &Turn, belief: &Arc<Belief>, was_bound: bool) {
        self.binding.remove(belief, was_bound);
    }

    pub(crate) fn is_bound_to(&self, belief: &Arc<Belief>) -> bool {
        self.binding.is_to(belief)
    }

    /// Returns whether the lease was ever bound, or may have been. The server may still have the
    /// binding.
    pub(crate) fn was_bound(&self) -> bool {
        self.binding.is_any()
    }

    /// Returns whether the lease is bound to a session that has not ended, and that the server has
    /// not forgotten.
    pub(crate) fn is_bound(&self) -> bool {
        self.binding.lasts(Moment::of(&*self.clock))
    }

    /// Returns the number of holds: one for each guard, and for each dropped guard whose release has not been
    /// sent yet.
    pub(crate) fn holds(&self) -> usize {
        self.state().shares.len()
    }

    pub(crate) fn term(&self, share: ShareId) -> Option<LeaseSpec> {
        self.state().shares.term(share)
    }

    /// Returns whether any share is left, even if the lease is lost.
    pub(crate) fn is_alive(&self) -> bool {
        !self.state().shares.is_empty()
    }

    /// Records that the guard of this share was dropped or is ending: it needs no renewals.
    pub(crate) fn abandon(&self, share: ShareId) {
        self.state().shares.abandon(share);
        self.end_notify.notify_waiters();
    }

    /// Returns the longest lease that any guard has requested so far.
    pub(crate) fn longest_ever(&self) -> Duration {
        self.state().shares.longest_ever()
    }

    /// Returns the longest lease that any current guard requests, from `now` on.
    pub(crate) fn longest(&self, now: Moment) -> Option<Duration> {
        let state = self.state();
        state.shares.longest(now, Moment(self.until.load(Ordering::Acquire)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn is_quiet(&self) -> bool {
        !self.is_held() || self.late.is_quiet() && self.renew_at != Moment::NEVER
    }

    /// Returns whether the lease is neither lost nor released. A lease without shares is released.
    fn is_held(&self) -> bool {
        self.phase == Phase::Held && !self.shares.is_empty()
    }
}

#[cfg(all(test, not(kvlock_shuttle)))]
mod tests;

#[cfg(all(test, kvlock_shuttle))]
mod interleavings;
