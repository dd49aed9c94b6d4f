//! How a lock is acquired, and how nothing is left behind: `client/src/engine/acquire.rs`, `wait.rs` and
//! `claim.rs`. Who waits in one process for the same lock waits at the server each by himself: the
//! line of a process is left out.

use super::guard::{Came, Guard, confirmed, renewal};
use super::{Me, REPLY_TIMEOUT, Way};
use crate::settings::Safeguard;
use crate::wire::{ConnId, Key, Owner, Reply, Request, ServerId, Trouble};
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use kvlock_core::{Release, Want};
use std::pin::pin;
use std::time::Duration;

/// The lease that a waiter asks for: shorter than most leases here, as 2 s are than 30 s.
const OFFER: Duration = Duration::from_millis(400);

/// When a release is repeated, and until when that is tried.
const LATER: Duration = Duration::from_secs(3);
const OVER: Duration = Duration::from_secs(6);

/// How long trouble is borne.
const PATIENCE: Duration = Duration::from_secs(8);

/// How often a waiter is withdrawn, and how long is waited for what it is answered then.
const WITHDRAWALS: u32 = 10;
const WITHDRAWN: Duration = Duration::from_millis(100);

/// How long an acquire may take, by the client's own clock.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    Now,
    Until(Duration),
    Never,
}

impl Limit {
    fn left(self, me: &Me) -> Option<Duration> {
        match self {
            Self::Now => Some(Duration::ZERO),
            Self::Until(end) => Some(end.saturating_sub(me.now())),
            Self::Never => None,
        }
    }

    fn is_over(self, me: &Me) -> bool {
        self.left(me).is_some_and(|left| left.is_zero())
    }
}

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) key: Key,
    pub(super) want: Want,
    pub(super) lease: Duration,
    pub(super) watched: bool,
    pub(super) limit: Limit,
}

/// A fresh owner that may have been granted the lock, or may be yet: `client/src/engine/claim.rs`.
pub(super) struct Claim {
    me: Me,
    key: Key,
    want: Want,
    pub(super) owner: Owner,
    server: Option<ServerId>,
    via: Option<ConnId>,
    armed: bool,
    pub(super) strays: bool,
}

impl Claim {
    pub(super) fn new(me: &Me, key: Key, want: Want, server: Option<ServerId>) -> Self {
        let owner = me.sim.fresh_owner();
        let me = me.clone();
        Self { me, key, want, owner, server, via: None, armed: false, strays: false }
    }

    pub(super) fn sending(&mut self, via: Option<ConnId>) {
        self.strays |= self.via.is_some() && self.via != via;
        self.via = via;
        self.armed = true;
    }

    pub(super) fn granted(&mut self) {
        self.via = None;
        self.armed = true;
    }

    pub(super) fn refused(&mut self) {
        self.via = None;
        self.armed = self.strays;
    }

    pub(super) fn failed(&mut self, trouble: Trouble) {
        if !trouble.leaves_outcome_unknown() {
            self.refused();
        } else if self.via.is_none() || trouble != Trouble::Timeout {
            self.strays |= self.armed;
        }
    }

    pub(super) fn place(&self) -> (Key, Owner) {
        (self.key, self.owner)
    }

    pub(super) fn keep(mut self) {
        self.armed = false;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !std::mem::take(&mut self.armed) {
            return;
        }
        let (key, owner, want) = (self.key, self.owner, self.want);
        let release = Request::Release { key, owner, want, amount: Release::All };
        let (me, via, strays, server) = (self.me.clone(), self.via, self.strays, self.server);
        self.me.spawn(async move { free(&me, release, via, strays, server).await });
    }
}

/// Sends a release until it is answered, first where the acquire went.
pub(super) async fn free(
    me: &Me,
    release: Request,
    via: Option<ConnId>,
    strays: bool,
    server: Option<ServerId>,
) {
    let mut strays = strays;
    if let Some(conn) = via {
        match me.ask_over(conn, release, REPLY_TIMEOUT).await {
            Err(trouble) if trouble.leaves_outcome_unknown() => {
                me.condemn(conn);
                strays = true;
            }
            Err(trouble) if trouble.is_passing() => {}
            Ok(_) | Err(_) if !strays => return,
            Ok(_) | Err(_) => {}
        }
    }
    let over = me.now() + OVER;
    release_surely(me, release, server, over).await;
    if strays {
        me.sleep(LATER).await;
        release_surely(me, release, server, over).await;
    }
}

async fn release_surely(me: &Me, release: Request, server: Option<ServerId>, over: Duration) {
    let mut pause = Duration::from_millis(20);
    while let Err(trouble) = ask_at(me, release, server).await {
        if !trouble.is_passing() || me.now() >= over {
            return;
        }
        me.sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

async fn ask_at(me: &Me, request: Request, server: Option<ServerId>) -> Result<Reply, Trouble> {
    let Some(server) = server else {
        return me.ask(Way::Commands, request, REPLY_TIMEOUT, |_| ()).await;
    };
    let Some(conn) = me.connection(server, Way::Commands) else {
        me.sleep(Duration::from_millis(5)).await;
        return Err(Trouble::Unreachable);
    };
    me.ask_over(conn, request, REPLY_TIMEOUT).await
}

/// Sends a release of what is held, twice if need be. Says whether its outcome is known.
pub(super) async fn send_release(me: &Me, release: Request, server: Option<ServerId>) -> bool {
    let mut again = true;
    loop {
        match ask_at(me, release, server).await {
            Err(Trouble::Broken | Trouble::Unreachable) if again => again = false,
            answer => return !answer.is_err_and(Trouble::is_passing),
        }
    }
}

type Step = Result<Option<Guard>, Trouble>;

/// Acquires a lock, or `None` when the limit has passed or the trouble lasted too long. Dropped at
/// any point, nothing is held, after a moment in the background.
pub(super) async fn acquire(me: &Me, wanted: Wanted) -> Option<Guard> {
    let mut claim = Claim::new(me, wanted.key, wanted.want, None);
    let (mut in_line, mut since) = (false, None);
    let mut pause = Duration::from_millis(20);
    loop {
        let step = if in_line {
            let (back, step) = wait(me, claim, wanted).await;
            claim = back;
            step
        } else {
            ask(me, &mut claim, wanted).await
        };
        match step {
            Ok(Some(guard)) => {
                claim.keep();
                return Some(guard);
            }
            Ok(None) if wanted.limit.is_over(me) => return None,
            Ok(None) => since = None,
            Err(trouble) => {
                let first = since.is_none();
                let begun = *since.get_or_insert_with(|| me.now());
                let again = match wanted.limit {
                    Limit::Now => first && trouble == Trouble::Broken,
                    Limit::Until(_) | Limit::Never => {
                        trouble.is_passing()
                            && !wanted.limit.is_over(me)
                            && me.now() - begun < PATIENCE
                    }
                };
                if !again {
                    return None;
                }
                me.sleep(pause / 2 + Duration::from_millis(me.below(pause.as_millis() as u64)))
                    .await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        }
        in_line = !matches!(wanted.limit, Limit::Now);
    }
}

/// `LOCK.ACQUIRE`.
async fn ask(me: &Me, claim: &mut Claim, wanted: Wanted) -> Step {
    let Wanted { key, want, lease, .. } = wanted;
    let lease_ms = lease.as_millis() as u64;
    let holds = me.has(Safeguard::Holds).then_some(1);
    let request = Request::Acquire { key, owner: claim.owner, want, lease_ms, holds };
    let sent = me.now();
    let answer =
        me.ask(Way::Commands, request, REPLY_TIMEOUT, |conn| claim.sending(Some(conn))).await;
    match answer {
        Ok(Reply::Granted { token, .. }) => {
            claim.granted();
            if me.sim.plan.replicas.is_some() {
                return confirm(me, claim, wanted, token).await;
            }
            hold(me, claim, wanted, token, sent)
        }
        Ok(_) => {
            claim.refused();
            Ok(None)
        }
        Err(trouble) => {
            claim.failed(trouble);
            Err(trouble)
        }
    }
}

/// Sets the full lease. `None`: the offer was over before we came.
async fn confirm(me: &Me, claim: &mut Claim, wanted: Wanted, token: u64) -> Step {
    let Some(conn) = me.connection(me.home(), Way::Renewals) else {
        me.learn(Trouble::Unreachable);
        return Err(Trouble::Unreachable);
    };
    let mut request = renewal(me, wanted.key, claim.owner, wanted.lease, None);
    if let Request::Renew { confirm, .. } = &mut request {
        // Whether later renewals are confirmed is another matter.
        *confirm = me.sim.plan.replicas;
    }
    let sent = me.now();
    match confirmed(me, me.ask_over(conn, request, REPLY_TIMEOUT).await) {
        Ok(Reply::Lease { .. }) => hold(me, claim, wanted, token, sent),
        Ok(_) => {
            claim.refused();
            Ok(None)
        }
        Err(trouble) => {
            me.learn(trouble);
            Err(trouble)
        }
    }
}

fn hold(me: &Me, claim: &Claim, wanted: Wanted, token: u64, sent: Duration) -> Step {
    let Wanted { key, want, lease, watched, .. } = wanted;
    let (owner, strays) = (claim.owner, claim.strays);
    let (server, raised) = (None, None);
    let came = Came { key, owner, want, token, sent, lease, watched, strays, server, raised };
    match Guard::new(me, came) {
        Some(guard) => Ok(Some(guard)),
        None => Err(Trouble::Timeout),
    }
}

/// `LOCK.WAIT`. It goes on when whoever waits for it gives up: here in a task of its own from the
/// beginning.
async fn wait(me: &Me, claim: Claim, wanted: Wanted) -> (Claim, Step) {
    let (answer, answered) = oneshot::channel();
    me.spawn(carry(me.clone(), claim, wanted, answer));
    // The task is gone only with this client.
    let Ok((mut claim, outcome)) = answered.await else {
        return std::future::pending().await;
    };
    let step = match outcome {
        Ok(Some(token)) if me.has(Safeguard::Offer) => confirm(me, &mut claim, wanted, token).await,
        Ok(Some(token)) => hold(me, &claim, wanted, token, me.now()),
        Ok(None) => Ok(None),
        Err(trouble) => Err(trouble),
    };
    (claim, step)
}

/// What came of a wait: the token, if it was granted.
type Outcome = (Claim, Result<Option<u64>, Trouble>);

async fn carry(me: Me, mut claim: Claim, wanted: Wanted, mut answer: oneshot::Sender<Outcome>) {
    let Some(conn) = me.sim.connect(me.id, me.home()) else {
        me.sleep(Duration::from_millis(5)).await;
        me.learn(Trouble::Unreachable);
        return drop(answer.send((claim, Err(Trouble::Unreachable))));
    };
    let Wanted { key, want, lease, limit, .. } = wanted;
    let offer = if me.has(Safeguard::Offer) { lease.min(OFFER) } else { lease };
    let left = limit.left(&me);
    let timeout_ms = left.map(|left| (left.as_millis() as u64).max(1));
    let holds = me.has(Safeguard::Holds).then_some(1);
    let (owner, lease_ms) = (claim.owner, offer.as_millis() as u64);
    claim.sending(None);
    let request = Request::Wait { key, owner, want, lease_ms, timeout_ms, holds };
    let mut reply = pin!(me.sim.ask(conn, request));
    let overdue = left.map_or(Duration::from_secs(3_600), |left| left + REPLY_TIMEOUT);
    let over = {
        let ends = pin!(me.sleep(overdue));
        match select(&mut reply, select(ends, answer.cancellation())).await {
            Either::Left((reply, _)) => Some(reply),
            Either::Right(_) => None,
        }
    };
    let outcome = match over {
        Some(reply) => reply,
        None => withdraw(&me, &claim, reply).await,
    };
    let outcome = match outcome {
        Ok(Reply::Granted { token, .. }) => {
            claim.granted();
            Ok(Some(token))
        }
        Ok(_) => {
            claim.refused();
            Ok(None)
        }
        Err(trouble) => {
            claim.failed(trouble);
            me.learn(trouble);
            Err(trouble)
        }
    };
    me.sim.client_closes(conn);
    // If nobody is there to take it, the claim is dropped here and does what is needed.
    drop(answer.send((claim, outcome)));
}

/// Takes the waiter out of the line, and returns what the wait was answered.
async fn withdraw(
    me: &Me,
    claim: &Claim,
    mut reply: std::pin::Pin<&mut crate::net::Call>,
) -> Result<Reply, Trouble> {
    let cancel = Request::Cancel { key: claim.key, owner: claim.owner };
    for _ in 0..WITHDRAWALS {
        let cancelled = pin!(me.ask(Way::Commands, cancel, REPLY_TIMEOUT, |_| ()));
        match select(&mut reply, cancelled).await {
            Either::Left((reply, _)) => return reply,
            Either::Right((Err(Trouble::Timeout), _)) => break,
            Either::Right(_) => {}
        }
        if let Some(reply) = me.within(WITHDRAWN, &mut reply).await {
            return reply;
        }
    }
    Err(Trouble::Timeout)
}
