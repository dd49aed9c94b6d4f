//! Cleanup: commands that were sent for an abandoned acquire are undone.

use crate::engine::acquire::{Granted, Held};
use crate::engine::clock::Moment;
use crate::engine::context::Context;
use crate::engine::held_lock::HeldLock;
use crate::engine::late::Late;
use crate::engine::lease::{Beginning, Lease, LeaseSpec};
use crate::engine::limit::{pause_after, sleep_until_news};
use crate::engine::observe;
use crate::engine::settings::FIRST_LEASE;
use crate::net::link::after;
use crate::net::live::Live;
use crate::wire::error::Error;
use crate::wire::request::{self, GiveBack, Mode};
use redis::Cmd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

/// What was sent over a connection that broke may arrive after what was sent over the next one. So
/// the release is repeated after this time.
const LATER: Duration = Duration::from_secs(3);

/// A fresh owner that may have been granted the lock, or may be yet. Unless it is
/// [kept](Self::keep), dropping it releases the lock in the background.
#[derive(Debug)]
pub(crate) struct Claim {
    inner: Arc<Context>,
    pub(crate) mode: Mode,
    pub(crate) key: Arc<[u8]>,
    pub(crate) owner: Arc<str>,
    /// What the owner says of itself.
    pub(crate) value: Option<Arc<[u8]>>,
    /// Key of a result that makes the lock unnecessary.
    pub(crate) unless: Option<Arc<[u8]>>,
    state: State,
    /// Whether an unanswered command may arrive after those that were sent later.
    strays: bool,
    /// Whether a command that may put the owner in line was sent: then the wait is cancelled before the release.
    lined_up: bool,
    /// Renewals that may yet arrive.
    late: Late,
    /// The longest lease that it may have.
    lasts: Duration,
}

/// What the server has for the owner of a claim, as far as the answers say.
///
/// ```text
///                   sent             granted, or in line
///   Nothing ◄──┬──────────► Asked ───────┬──────────────► Has
///              │  refused     ▲          │                 │
///              └──────────────┴── sent ──┴─────────────────┘
///
///   any ── a guard has the lock, or the claim is dropped ──► Over
/// ```
///
/// A command without an answer leaves it [`Asked`](Self::Asked). What follows over another connection may
/// overtake that command, which then [strays](Claim::strays).
#[derive(Debug)]
enum State {
    /// Neither a place in line nor a grant, unless an earlier command is a stray.
    Nothing,
    /// The answer to a command over that connection has not come.
    Asked(Arc<Live>),
    /// It is in line, or granted.
    Has,
    /// A guard has the lock, or its release is under way: this has nothing more to do.
    Over,
}

impl Claim {
    pub(crate) fn new(inner: &Arc<Context>, mode: Mode, key: &Arc<[u8]>) -> Self {
        Self::of(inner, mode, key, &inner.fresh_owner())
    }

    /// Makes a claim for an owner that has held something.
    pub(crate) fn of(inner: &Arc<Context>, mode: Mode, key: &Arc<[u8]>, owner: &Arc<str>) -> Self {
        Self {
            inner: inner.clone(),
            mode,
            key: key.clone(),
            owner: owner.clone(),
            value: None,
            unless: None,
            state: State::Nothing,
            strays: false,
            lined_up: false,
            late: Late::default(),
            lasts: FIRST_LEASE,
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Context> {
        &self.inner
    }

    /// A command that may be granted is about to be sent there. One that was not answered may arrive
    /// after it, unless both go over the same connection.
    pub(crate) fn sending(&mut self, via: Arc<Live>) {
        self.strays |= matches!(&self.state, State::Asked(before) if !Arc::ptr_eq(&via, before));
        self.state = State::Asked(via);
    }

    /// It is a command that may put the owner in line.
    pub(crate) fn lines_up(&mut self) {
        self.lined_up = true;
    }

    /// Records the node that a command was sent to. If that node redirects it, the command had no effect there.
    pub(crate) fn sending_via(&mut self) -> impl FnMut(&Arc<Live>) {
        let mut sent_on = false;
        move |live| {
            if std::mem::replace(&mut sent_on, true) {
                self.refused();
            }
            self.sending(live.clone());
        }
    }

    /// The answer has come: the lock is granted, or the owner is in line.
    pub(crate) fn has(&mut self) {
        self.state = State::Has;
    }

    /// The answer has come: nothing is held, and the owner is not in line.
    pub(crate) fn refused(&mut self) {
        self.state = State::Nothing;
    }

    /// Takes in how a command failed.
    pub(crate) fn failed(&mut self, trouble: &Error) {
        if !trouble.leaves_outcome_unknown() {
            return self.refused();
        }
        match self.state {
            // What follows on a connection that is merely slow is executed after it.
            State::Asked(_) if matches!(trouble, Error::Timeout) => {}
            State::Asked(_) | State::Has => self.strays = true,
            State::Nothing | State::Over => {}
        }
    }

    /// Takes over what may yet arrive of an earlier hold of this owner.
    pub(crate) fn inherit(&mut self, late: Late) {
        self.late = late;
    }

    /// Sets the lease of a grant. Returns when the command was sent, and the lease that runs; `None` if the grant had
    /// ended.
    pub(crate) async fn confirm(
        &mut self,
        length: Duration,
    ) -> Result<Option<(Moment, Duration)>, Error> {
        let inner = self.inner.clone();
        let request = request::renew(self.mode, &*self.key, &*self.owner, length, None)?;
        let to = inner.renewals.route_of(&self.key).await?;
        let sent = inner.now();
        self.lasts = self.lasts.max(length);
        let (late, mut renewal) = (&mut self.late, None);
        let sending = |via, redirected| {
            if let Some(refused) = renewal.filter(|_| redirected) {
                let _nothing_counts = late.answered(refused);
            }
            renewal = Some(late.sending(via, length));
        };
        let patience = inner.settings.reply_timeout;
        let runs = inner.renewals.send_one(to, &request, patience, sending).await;
        if let Some(renewal) = renewal {
            match &runs {
                Err(trouble) if trouble.leaves_outcome_unknown() => self.late.give_up(renewal),
                Ok(_) | Err(_) => drop(self.late.answered(renewal)),
            }
        }
        Ok(runs?.map(|runs| (sent, runs.min(length))))
    }

    /// Makes a lease of a grant. From then on the watchdog renews it.
    pub(crate) fn hold(&self, granted: Granted, term: LeaseSpec) -> Result<Held, Error> {
        let Granted { grant, since, runs } = granted;
        let held_lock = HeldLock {
            mode: self.mode.held(grant.holds),
            key: self.key.clone(),
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

    /// Gives back what was granted, and returns when that has been answered or given up.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it goes on in the background.
    pub(crate) async fn undo(mut self) {
        let (done, undone) = oneshot::channel();
        self.give_up(Some(done));
        // An error is a runtime that ends, and then there is nothing to wait for.
        let _ended = undone.await;
    }

    /// A guard has it from here on.
    pub(crate) fn keep(mut self) {
        self.state = State::Over;
    }

    /// Releases in the background what may be held, and then says that it is done.
    fn give_up(&mut self, done: Option<oneshot::Sender<()>>) {
        let via = match std::mem::replace(&mut self.state, State::Over) {
            State::Over => return,
            State::Nothing if !self.strays => return,
            State::Nothing | State::Has => None,
            State::Asked(via) => Some(via),
        };
        observe::withdrawn(&self.key, &self.owner);
        let (inner, key) = (self.inner.clone(), self.key.clone());
        let (strays, lasts) = (self.strays, self.lasts);
        let cancel = request::cancel(self.mode, &*self.key, &*self.owner);
        let release = request::release(self.mode, &*self.key, &*self.owner, GiveBack::All);
        let wanted = [(cancel, self.lined_up), (release, self.mode != Mode::Latch)];
        let wanted = wanted.into_iter().filter(|(_, wanted)| *wanted);
        let commands: Vec<Cmd> = wanted.map(|(command, _)| command).collect();
        self.inner.spawn(async move {
            free(&inner, &key, &commands, via, strays, lasts).await;
            // The caller may have been dropped.
            let _told = done.map(|done| done.send(()));
        });
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_up(None);
    }
}

/// Sends a release until it is answered, after the cancellation of the wait if there was one. It is first sent over
/// the connection of the acquire, so that it is executed after it. If that connection broke, it is sent over a new
/// one, and once more later. Gives up after `lasts`: then the lease has ended.
pub(crate) async fn free(
    inner: &Context,
    key: &[u8],
    commands: &[Cmd],
    via: Option<Arc<Live>>,
    strays: bool,
    lasts: Duration,
) {
    let mut strays = strays;
    if let Some(live) = via {
        let mut followed = Followed::Done;
        for command in commands {
            if followed == Followed::Done {
                followed = follow(inner, command, &live).await;
            }
        }
        match followed {
            Followed::Done if !strays => return,
            Followed::Done | Followed::Elsewhere => {}
            Followed::Unknown => strays = true,
        }
    }
    let over = after(lasts);
    release_surely(inner, key, commands, over).await;
    if strays {
        sleep(LATER).await;
        release_surely(inner, key, commands, over).await;
    }
}

/// What came of a release that was sent where an acquire went before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Followed {
    /// What was acquired has been given back.
    Done,
    /// The acquire has been carried out or refused, and nothing will come of it any more; but the
    /// lock is kept by another server now, or by this one a little later.
    Elsewhere,
    /// Unknown: the acquire may still be executed.
    Unknown,
}

/// Sends a release where an acquire went before.
pub(crate) async fn follow(inner: &Context, release: &Cmd, live: &Live) -> Followed {
    match live.call_after(release, inner.settings.reply_timeout).await {
        Err(trouble) if trouble.leaves_outcome_unknown() => {
            live.condemn();
            Followed::Unknown
        }
        Err(trouble) if trouble.is_passing() => Followed::Elsewhere,
        Ok(_) | Err(_) => Followed::Done,
    }
}

async fn release_surely(inner: &Context, key: &[u8], commands: &[Cmd], over: Instant) {
    let begun = Instant::now();
    for command in commands {
        let call = || inner.router.call(key, command, inner.settings.reply_timeout);
        while let Err(trouble) = call().await {
            if Instant::now() >= over {
                return;
            }
            // A command that is refused for good is no reason to leave out the next one.
            if !(trouble.is_passing() || trouble.leaves_outcome_unknown()) {
                break;
            }
            // Others may be waiting for it.
            sleep_until_news(pause_after(begun.elapsed()), inner.router.switched()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::clock::{Boottime, SafetyMargin};
    use crate::engine::lease::LeasePolicy;
    use crate::engine::settings::Settings;
    use crate::net::address::Address;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn a_release_is_repeated_until_the_lease_has_ended_and_no_longer() {
        let safety = SafetyMargin { margin: Duration::ZERO };
        let policy = LeasePolicy { clock: Arc::new(Boottime), safety };
        let address = Address::try_from("redis://127.0.0.1:1/").unwrap();
        let context = Context::new(address, Settings::default(), policy).unwrap();
        let commands = [request::release(Mode::Alone, &b"k"[..], "o:1", GiveBack::All)];
        let lasts = Duration::from_secs(600);
        let mut release = std::pin::pin!(free(&context, b"k", &commands, None, false, lasts));
        assert!(timeout(lasts * 9 / 10, &mut release).await.is_err());
        assert!(timeout(lasts / 5, release).await.is_ok());
    }
}
