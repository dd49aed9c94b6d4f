//! Claims: the commands that were sent for an owner, and their cleanup if no guard keeps the lock.

use crate::engine::clock::Moment;
use crate::engine::context::Context;
use crate::engine::lease::held_lock::HeldLock;
use crate::engine::lease::late::UnansweredRenewals;
use crate::engine::lease::{Beginning, Granted, Held, Lease, LeaseSpec};
use crate::engine::session::Session;
use crate::engine::settings::FIRST_LEASE;
use crate::engine::telemetry;
use crate::engine::undo;
use crate::net::live::Live;
use crate::wire::error::Error;
use crate::wire::request::{self, Further, GiveBack, Mode};
use redis::Cmd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// An owner that may hold the lock, or may be granted it later. Unless the claim is [finished](Self::finish),
/// dropping it releases the lock in the background.
#[derive(Debug)]
pub(crate) struct Claim {
    inner: Arc<Context>,
    pub(crate) mode: Mode,
    pub(crate) key: Arc<[u8]>,
    /// Further locks that are acquired by the same command.
    pub(crate) further: Option<Arc<Further>>,
    pub(crate) owner: Arc<str>,
    /// Value of the owner.
    pub(crate) value: Option<Arc<[u8]>>,
    /// Key of a result that makes the lock unnecessary: the ready-key.
    pub(crate) unless: Option<Arc<[u8]>>,
    state: State,
    /// `true` if an unanswered command may arrive at the server after commands that were sent later.
    strays: bool,
    /// Session of the last command that may have put the owner in the queue. Cleanup then cancels the wait
    /// before the release, and does not give up while the session lasts.
    queued_through: Option<Arc<Session>>,
    /// Renewals that may still arrive at the server.
    late: UnansweredRenewals,
    /// Longest lease that the grant may have.
    lasts: Duration,
}

/// State of the claim's owner at the server, according to the answers.
///
/// ```text
///                   sent             granted, or in the queue
///   Nothing ◄──┬──────────► Asked ───────┬──────────────► Has
///              │  refused     ▲          │                 │
///              └──────────────┴── sent ──┴─────────────────┘
///
///   any ── a guard has the lock, or the claim is dropped ──► Over
/// ```
///
/// While a command is unanswered the state is [`Asked`](Self::Asked). A later command over another
/// connection may overtake it, and the unanswered one becomes a [stray](Claim::strays).
#[derive(Debug)]
enum State {
    /// The owner is not queued and has no grant. A [stray](Claim::strays) may still change this.
    Nothing,
    /// A command sent over this connection has not been answered.
    Asked(Arc<Live>),
    /// The owner is queued, or the lock is granted.
    Has,
    /// A guard has the lock, or the release is in flight. The claim has nothing left to do.
    Over,
}

impl Claim {
    pub(crate) fn new(inner: &Arc<Context>, mode: Mode, key: &Arc<[u8]>) -> Self {
        Self::of(inner, mode, key, &inner.fresh_owner())
    }

    /// Makes a claim for an existing owner.
    pub(crate) fn of(inner: &Arc<Context>, mode: Mode, key: &Arc<[u8]>, owner: &Arc<str>) -> Self {
        // For the cleanup, if the claim is dropped outside a runtime.
        let _here = inner.runtimes.remember();
        Self {
            inner: inner.clone(),
            mode,
            key: key.clone(),
            further: None,
            owner: owner.clone(),
            value: None,
            unless: None,
            state: State::Nothing,
            strays: false,
            queued_through: None,
            late: UnansweredRenewals::default(),
            lasts: FIRST_LEASE,
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Context> {
        &self.inner
    }

    /// Adds the claim's further locks, ready-key and value to a request.
    pub(crate) fn with_options(&self, request: Cmd) -> Cmd {
        let request = request::with_further(request, self.further.as_deref());
        let request = request::with_unless(request, self.unless.as_deref());
        request::with_value(request, self.value.as_deref())
    }

    /// Records that a command that may be granted is about to be sent over `via`. An earlier unanswered
    /// command may arrive after it, unless both use the same connection.
    pub(crate) fn sending(&mut self, via: Arc<Live>) {
        self.strays |= matches!(&self.state, State::Asked(before) if !Arc::ptr_eq(&via, before));
        self.state = State::Asked(via);
    }

    /// Marks the claim as possibly queued through this session, so that cleanup cancels the wait first.
    pub(crate) fn mark_queued(&mut self, session: &Arc<Session>) {
        self.queued_through = Some(session.clone());
    }

    /// Records that the wait was granted, so that the owner is in the queue no longer, unless a stray puts it
    /// there.
    pub(crate) fn left_queue(&mut self) {
        if !self.strays {
            self.queued_through = None;
        }
    }

    /// Returns a function to call with the connection before each attempt to send a command. Each further
    /// call means that the previous attempt was redirected, and had no effect.
    pub(crate) fn sending_via(&mut self) -> impl FnMut(&Arc<Live>) {
        let mut sent_on = false;
        move |live| {
            if std::mem::replace(&mut sent_on, true) {
                self.refused();
            }
            self.sending(live.clone());
        }
    }

    /// Records the answer: the lock is granted, or the owner is in the queue.
    pub(crate) fn record_accepted(&mut self) {
        self.state = State::Has;
    }

    /// Records the answer: nothing is held, and the owner is not in the queue.
    pub(crate) fn refused(&mut self) {
        self.state = State::Nothing;
    }

    /// Returns whether the last answer was that the lock is granted, or that the owner is in the queue.
    pub(crate) fn is_accepted(&self) -> bool {
        matches!(self.state, State::Has)
    }

    /// Records the failure of a command.
    pub(crate) fn failed(&mut self, trouble: &Error) {
        if !trouble.leaves_outcome_unknown() {
            return self.refused();
        }
        match self.state {
            // The connection is only slow: later commands over it are executed after this one.
            State::Asked(_) if matches!(trouble, Error::Timeout) => {}
            State::Asked(_) | State::Has => self.strays = true,
            State::Nothing | State::Over => {}
        }
    }

    /// Takes over the late renewals of an earlier hold of this owner.
    pub(crate) fn inherit(&mut self, late: UnansweredRenewals) {
        self.late = late;
    }

    /// Sets the lease of a grant. Returns the send time of the command and the lease in effect; `None` if the
    /// grant had ended.
    pub(crate) async fn confirm(
        &mut self,
        length: Duration,
    ) -> Result<Option<(Moment, Duration)>, Error> {
        let inner = self.inner.clone();
        let request = request::renew(self.mode, &*self.key, &*self.owner, length, None)?;
        let request = request::with_further(request, self.further.as_deref());
        let to = inner.renewals.route_of(&self.key).await?;
        let sent = inner.now();
        self.lasts = self.lasts.max(length);
        let (late, mut renewal) = (&mut self.late, None);
        let sending = |via, redirected| {
            if let Some(refused) = renewal.filter(|_| redirected) {
                late.refused(refused);
            }
            renewal = Some(late.sending(via, sent, length));
        };
        let patience = inner.settings.reply_timeout;
        let runs = inner.renewals.send_one(to, &request, patience, sending).await;
        if let Some(renewal) = renewal {
            match &runs {
                Ok(_) => drop(self.late.executed(renewal)),
                Err(failed) if failed.may_be_executed => drop(self.late.give_up(renewal)),
                Err(_) => self.late.refused(renewal),
            }
        }
        let runs = runs.map_err(|failed| failed.error)?;
        Ok(runs.map(|runs| (sent, runs.min(length))))
    }

    /// Creates a lease from a grant. The watchdog then watches it.
    pub(crate) fn hold(&self, granted: Granted, term: LeaseSpec) -> Result<Held, Error> {
        let Granted { grant, since, runs } = granted;
        let held_lock = HeldLock {
            mode: self.mode.held(grant.holds),
            key: self.key.clone(),
            further: self.further.clone(),
            owner: self.owner.clone(),
            token: grant.token,
        };
        let (inner, number) = (&self.inner, self.inner.fresh_number());
        let beginning = Beginning { since, runs, late: self.late.clone(), strays: self.strays };
        let (lease, share) = Lease::granted(number, held_lock, &inner.policy, beginning, term);
        // The answer may have taken longer than the lease.
        if lease.left().is_zero() {
            return Err(Error::Timeout);
        }
        inner.watchdog.watch(&lease);
        Ok((lease, share))
    }

    /// Releases what was granted. Returns when the release has been answered or given up.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the release continues in the background.
    pub(crate) async fn undo(mut self) {
        let (done, undone) = oneshot::channel();
        self.give_up(Some(done));
        // `done` is dropped when the release has ended, or if there was nothing to release or no runtime.
        let _ended = undone.await;
    }

    /// Ends the claim: a guard now has the lock.
    pub(crate) fn finish(mut self) {
        self.state = State::Over;
    }

    /// Releases in the background what may be held, then drops `done`.
    fn give_up(&mut self, done: Option<oneshot::Sender<()>>) {
        let via = match std::mem::replace(&mut self.state, State::Over) {
            State::Over => return,
            State::Nothing if !self.strays => return,
            State::Nothing | State::Has => None,
            State::Asked(via) => Some(via),
        };
        telemetry::withdrawn(&self.key, &self.owner);
        let (inner, key) = (self.inner.clone(), self.key.clone());
        let (mut strays, lasts, session) = (self.strays, self.lasts, self.queued_through.take());
        let cancel = request::cancel(self.mode, &*self.key, &*self.owner);
        let release = request::release(self.mode, &*self.key, &*self.owner, GiveBack::All);
        let release = request::with_further(release, self.further.as_deref());
        let wanted = [(cancel, session.is_some()), (release, self.mode != Mode::Latch)];
        let wanted = wanted.into_iter().filter(|(_, wanted)| *wanted);
        let commands: Vec<Cmd> = wanted.map(|(command, _)| command).collect();
        self.inner.spawn(move || {
            // Dropped with this closure, which ends the wait for it.
            let _done = &done;
            let (inner, key, commands) = (inner.clone(), key.clone(), commands.clone());
            let (via, session) = (via.clone(), session.clone());
            // The commands of an earlier call may still arrive.
            let stray = std::mem::replace(&mut strays, true);
            async move { undo::free(&inner, &key, &commands, via, stray, lasts, session).await }
        });
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_up(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_was_granted_is_undone_no_longer_than_its_lease() {
        let context = Arc::new(Context::of_no_server());
        let session = context.sessions.without_reader(context.router.only().unwrap());
        for granted in [true, false] {
            let mut claim = Claim::new(&context, Mode::Alone, &Arc::from(&b"k"[..]));
            claim.mark_queued(&session);
            claim.record_accepted();
            if granted {
                claim.left_queue();
            }
            let ended = timeout(FIRST_LEASE * 3, claim.undo()).await.is_ok();
            assert_eq!(ended, granted);
        }
    }
}
