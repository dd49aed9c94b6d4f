//! What guards, watchdog and cancellation share: the record of one owner's hold on one lock.
//!
//! ```text
//!            sent                 renew_at                       until      the server frees it
//!              │                      │                            │                 │
//!     ─────────┼──────────────────────┼────────────────────────────┼─────────────────┼────►
//!              │◄──── a third ───────►│                            │◄──── margin ───►│
//!              │◄────────────── holders may believe ──────────────►│  lost
//! ```
//!
//! Nothing here waits for the network or sets a timer: it is told what was sent when, and what came
//! back.
//!
//! - **I1** `until` is never later than what the last answered command, and every unanswered one
//!   whenever it arrives, leaves us.
//! - **I2** Lost is final. Whoever asks after `until`, or what it is [bound](Binding) to, has passed makes it so
//!   before it is told.
//! - **I3** At most one command per record is under way: it has the [`Turn`].
//! - **I4** Nothing is renewed that is lost, released, or only held for fixed leases.

mod renewal;

pub(crate) use renewal::WatchdogAction;

use crate::engine::belief::{Belief, Binding};
use crate::engine::clock::{Clock, Moment, SafetyMargin};
use crate::engine::held_lock::HeldLock;
use crate::engine::late::Late;
use crate::engine::loss::Loss;
use crate::engine::observe::{self, Stopwatch};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::wire::reply::Token;
use crate::wire::request::{self, GiveBack};
use redis::{Cmd, RedisResult};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// For how long a guard wants the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseSpec {
    /// Its length.
    pub(crate) length: Duration,
    /// Renewed while the guard lives, or left to end by itself.
    pub(crate) watched: bool,
}

/// The record of one owner's hold on one lock.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) held_lock: HeldLock,
    pub(crate) id: u64,
    clock: Arc<dyn Clock>,
    safety: SafetyMargin,
    held: Stopwatch,
    /// A [`Moment`]; 0 when lost. Read without the lock by those who only look.
    until: AtomicU64,
    /// Where the watchdog's agenda has it, a [`Moment`]; the agenda's own lock guards it.
    pub(crate) scheduled: AtomicU64,
    /// What the token was raised to; 0 if it was not.
    raised: AtomicU64,
    /// What it is bound to may be over before it is.
    binding: Binding,
    state: Mutex<State>,
    turn_over: Notify,
    gone: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    busy: bool,
    shares: Vec<Share>,
    next_share: u32,
    renew_at: Moment,
    /// An acquire of this owner may still be on its way to the server.
    strays: bool,
    /// Renewals may, too.
    late: Late,
    /// The last renewal reached the server, but too few replicas.
    unconfirmed: bool,
    /// What may have become of it, and whether a renewal has been sent since.
    suspicion: Option<(Loss, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Held,
    /// The server may still think that we hold it, unless it told us.
    Lost {
        told: bool,
        why: Loss,
    },
    Released,
}

impl Phase {
    fn is_lost(self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}

/// One guard's part.
#[derive(Clone, Copy, Debug)]
struct Share {
    id: ShareId,
    term: LeaseSpec,
    /// When a fixed term is over.
    ends: Moment,
}

/// One guard's part in a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareId(u32);

/// What a guard that goes has to tell the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReleaseAction {
    /// Nothing: the server has told us that the lock is lost.
    Silent,
    /// Less holds.
    Release {
        /// How many are to be left.
        give_back: GiveBack,
        /// When it is all: something may come after it.
        strays: bool,
    },
}

/// The right to send a command for this record.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Lease>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.state().busy = false;
        self.0.turn_over.notify_one();
    }
}

/// What every lease of a client has in common.
#[derive(Clone, Debug)]
pub(crate) struct LeasePolicy {
    /// What it is measured with.
    pub(crate) clock: Arc<dyn Clock>,
    /// How much less than the lease is believed.
    pub(crate) safety: SafetyMargin,
}

impl Lease {
    /// A grant that was asked for at `sent`, with the first guard's share in it.
    pub(crate) fn granted(
        id: u64,
        held_lock: HeldLock,
        policy: &LeasePolicy,
        sent: Moment,
        term: LeaseSpec,
        strays: bool,
    ) -> (Arc<Self>, ShareId) {
        let until = policy.safety.until(sent, term.length);
        let mut state = State {
            phase: Phase::Held,
            busy: false,
            shares: Vec::with_capacity(1),
            next_share: 0,
            renew_at: Moment::LONG_AGO,
            strays,
            late: Late::default(),
            unconfirmed: false,
            suspicion: None,
        };
        let share = state.share(sent, term);
        let lease = Self {
            held_lock,
            id,
            clock: policy.clock.clone(),
            safety: policy.safety,
            held: Stopwatch::start(),
            until: AtomicU64::new(until.0),
            scheduled: AtomicU64::new(Moment::LONG_AGO.0),
            raised: AtomicU64::new(0),
            binding: Binding::none(),
            state: Mutex::new(state),
            turn_over: Notify::new(),
            gone: Notify::new(),
        };
        (Arc::new(lease), share)
    }

    pub(crate) fn token(&self) -> Token {
        self.held_lock.token.max(self.raised.load(Ordering::Acquire).into())
    }

    /// From now on each renewal sees to it that the server has this token. What was wanted before.
    pub(crate) fn raise(&self, _turn: &Turn, token: Token) -> Token {
        self.raised.swap(token.value(), Ordering::AcqRel).into()
    }

    /// What sets the lease anew.
    pub(crate) fn renewal(&self, length: Duration) -> RedisResult<Cmd> {
        let HeldLock { mode, key, owner, .. } = &self.held_lock;
        let token = Some(self.raised.load(Ordering::Acquire)).filter(|token| *token > 0);
        request::renew(*mode, &**key, &**owner, length, token)
    }

    /// Renewals of before the grant may still be on their way.
    pub(crate) fn inherit(&self, late: Late, sent: Moment) {
        let mut state = self.state();
        state.late = late;
        let most = self.safety.until(sent, late.counts(Duration::MAX)).0;
        let believed = self.until.load(Ordering::Acquire);
        self.until.store(believed.min(most), Ordering::Release);
        if let Some(longest) = state.longest(sent) {
            state.plan_renewal(sent, longest);
        }
    }

    /// No more than this runs of it yet.
    pub(crate) fn offered(&self, began: Moment, runs: Duration) {
        let mut state = self.state();
        let most = self.safety.until(began, runs).0;
        let believed = self.until.load(Ordering::Acquire);
        self.until.store(believed.min(most), Ordering::Release);
        state.plan_renewal(began, runs);
    }

    /// Those of this one.
    pub(crate) fn late(&self) -> Late {
        self.state().late
    }

    /// Another hold, asked for at `sent`: the server's lease is now the longer of both. None if it
    /// was lost meanwhile. Unless it `counts`, because replicas have yet to confirm it, no more is
    /// believed than before, and it is renewed at once.
    pub(crate) fn reentered(
        &self,
        _turn: &Turn,
        sent: Moment,
        term: LeaseSpec,
        counts: bool,
    ) -> Option<ShareId> {
        let mut state = self.state();
        if state.phase != Phase::Held {
            return None;
        }
        let share = state.share(sent, term);
        if counts {
            let until = self.safety.until(sent, state.late.counts(term.length));
            self.until.store(self.until.load(Ordering::Acquire).max(until.0), Ordering::Release);
        } else {
            state.renew_at = sent;
        }
        Some(share)
    }

    /// Whether the holder must stop. Reads the clock: after a suspend no timer has run yet.
    pub(crate) fn is_lost(&self) -> bool {
        let now = Moment::of(&*self.clock);
        now >= self.until() && self.expire(now)
    }

    /// Makes it lost if its time is over.
    pub(crate) fn expire(&self, now: Moment) -> bool {
        let state = self.state();
        let over = state.phase == Phase::Held && now >= self.until();
        if over {
            let why = if state.unconfirmed { Loss::NotReplicated } else { Loss::Expired };
            self.end(state, false, why);
            return true;
        }
        state.phase.is_lost()
    }

    /// Makes it lost. `told`: the server said so. What was the reason first stays it.
    pub(crate) fn lose(&self, told: bool, why: Loss) {
        let mut state = self.state();
        match &mut state.phase {
            Phase::Held => self.end(state, told, why),
            Phase::Lost { told: before, .. } => *before |= told,
            Phase::Released => {}
        }
    }

    /// The server has answered that this owner does not hold it.
    pub(crate) fn gone(&self) {
        let why = self.state().suspicion.map_or(Loss::Gone, |(why, _)| why);
        self.lose(true, why);
    }

    /// Somebody has seen that it may be lost, and why: a renewal is to find out.
    pub(crate) fn suspect(&self, why: Loss, now: Moment) {
        self.state().suspicion = Some((why, false));
        self.hurry(now);
    }

    fn end(&self, mut state: MutexGuard<'_, State>, told: bool, why: Loss) {
        state.phase = Phase::Lost { told, why };
        self.until.store(Moment::LONG_AGO.0, Ordering::Release);
        drop(state);
        self.gone.notify_waiters();
        self.held.ended();
        observe::lost(&self.held_lock, why);
    }

    /// Why it is lost, if it is.
    pub(crate) fn why_lost(&self) -> Option<Loss> {
        // As everywhere the clock is looked at first.
        let _lost = self.is_lost();
        match self.state().phase {
            Phase::Lost { why, .. } => Some(why),
            Phase::Held | Phase::Released => None,
        }
    }

    /// Returns when it is lost, and says why.
    pub(crate) async fn lost(&self) -> Loss {
        loop {
            let mut gone = std::pin::pin!(self.gone.notified());
            // From here on no notification is missed.
            gone.as_mut().enable();
            if let Some(why) = self.why_lost() {
                return why;
            }
            gone.await;
        }
    }

    /// How long the holder may still believe.
    pub(crate) fn left(&self) -> Duration {
        self.until().left_at(Moment::of(&*self.clock))
    }

    fn until(&self) -> Moment {
        Moment(self.until.load(Ordering::Acquire)).min(self.binding.until())
    }

    /// From now on it is believed no longer than that, nor than what it was bound to before.
    pub(crate) fn bind(&self, belief: &Arc<Belief>) {
        self.binding.add(belief);
    }

    /// The server has bound it to that.
    pub(crate) fn bound_to(&self, _turn: &Turn, belief: &Arc<Belief>) {
        self.binding.set(belief);
    }

    pub(crate) fn is_bound_to(&self, belief: &Arc<Belief>) -> bool {
        self.binding.is_to(belief)
    }

    /// Whether it was bound ever, and may be still for the server.
    pub(crate) fn was_bound(&self) -> bool {
        self.binding.is_any()
    }

    /// Whether it is bound to something that is not over.
    pub(crate) fn is_bound(&self) -> bool {
        self.binding.lasts(Moment::of(&*self.clock))
    }

    /// A repeated acquire has made it last for so long at least, as asked for at `sent`. Unless it
    /// `counts`, see [`reentered`](Self::reentered).
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
        } else if state.phase == Phase::Held {
            let until = self.safety.until(sent, state.late.counts(length));
            self.until.store(self.until.load(Ordering::Acquire).max(until.0), Ordering::Release);
            state.plan_renewal(sent, length);
        }
    }

    /// How many guards there are.
    pub(crate) fn holds(&self) -> usize {
        self.state().shares.len()
    }

    pub(crate) fn term(&self, share: ShareId) -> Option<LeaseSpec> {
        let state = self.state();
        state.shares.iter().find(|other| other.id == share).map(|share| share.term)
    }

    /// Waits until no command for this record is under way.
    pub(crate) async fn turn(self: &Arc<Self>) -> Turn {
        loop {
            let over = self.turn_over.notified();
            if let Some(turn) = self.try_turn() {
                return turn;
            }
            over.await;
        }
    }

    /// The same, unless one is.
    pub(crate) fn try_turn(self: &Arc<Self>) -> Option<Turn> {
        let mut state = self.state();
        if state.busy {
            return None;
        }
        state.busy = true;
        drop(state);
        Some(Turn(self.clone()))
    }

    /// Whether guards are left that hold it or believed to.
    pub(crate) fn is_alive(&self) -> bool {
        self.state().phase != Phase::Released
    }

    /// The share's guard is gone: nobody renews for it any more, whether it gets to leave or not.
    pub(crate) fn abandon(&self, share: ShareId) {
        let mut state = self.state();
        if let Some(share) = state.shares.iter_mut().find(|other| other.id == share) {
            share.term.watched = false;
        }
    }

    /// A command may have been carried out, or may be yet, that nobody waits for any more.
    pub(crate) fn strayed(&self) {
        self.state().strays = true;
    }

    /// Takes the guard's share out, and says what the server is to be told. The same again changes
    /// nothing: it says how many holds are to be left, not how many to take.
    pub(crate) fn leave(&self, _turn: &Turn, share: ShareId) -> ReleaseAction {
        let mut state = self.state();
        state.shares.retain(|other| other.id != share);
        let left = u32::try_from(state.shares.len()).unwrap_or(u32::MAX);
        let told = matches!(state.phase, Phase::Lost { told: true, .. });
        if left == 0 && std::mem::replace(&mut state.phase, Phase::Released) == Phase::Held {
            self.held.ended();
        }
        if told {
            return ReleaseAction::Silent;
        }
        let give_back = if left == 0 { GiveBack::All } else { GiveBack::DownTo(left) };
        ReleaseAction::Release { give_back, strays: state.strays }
    }

    /// The longest that a guard wants.
    pub(crate) fn longest(&self, now: Moment) -> Option<Duration> {
        self.state().longest(now)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn longest(&self, now: Moment) -> Option<Duration> {
        let wanted = |share: &Share| match share.term {
            LeaseSpec { length, watched: true } => length,
            LeaseSpec { watched: false, .. } => share.ends.left_at(now),
        };
        self.shares.iter().map(wanted).max()
    }

    fn share(&mut self, sent: Moment, term: LeaseSpec) -> ShareId {
        let id = ShareId(self.next_share);
        self.next_share = self.next_share.wrapping_add(1);
        self.shares.push(Share { id, term, ends: sent.after(term.length) });
        self.plan_renewal(sent, term.length);
        id
    }

    fn set_length(&mut self, share: ShareId, sent: Moment, length: Duration) -> Option<LeaseSpec> {
        let share = self.shares.iter_mut().find(|other| other.id == share)?;
        let before = share.term;
        share.term.length = length;
        share.ends = sent.after(length);
        Some(before)
    }
}

#[cfg(all(test, not(kvlock_shuttle)))]
mod tests;

#[cfg(all(test, kvlock_shuttle))]
mod interleavings;
