//! What is held: `client/src/api/guard.rs` and `watchdog.rs`. When something is renewed, and until when
//! it is believed in, is said by the crate itself.

use super::acquire::{free, send_release};
use super::{Me, REPLY_TIMEOUT, Way};
use crate::judge::{Belief, Believer, Rule};
use crate::settings::Safeguard;
use crate::wire::{Key, Owner, Refusal, Reply, Request, ServerId, Trouble};
use kvlock::simulation::{Due, Granted, Hold, Leaving, Part, Sole};
use kvlock_core::{Release, Want};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Timers stand still while a machine is suspended.
const TICK: Duration = Duration::from_secs(1);

/// What of a lock is held where.
pub(super) struct Held {
    pub(super) key: Key,
    pub(super) owner: Owner,
    pub(super) want: Want,
    pub(super) token: u64,
    /// At that server, whoever is the primary; none: at the primary.
    pub(super) server: Option<ServerId>,
    /// The token that renewals see to.
    pub(super) raised: Option<u64>,
    lease: Duration,
    hold: Hold,
    released: Cell<bool>,
    told: Cell<bool>,
    looks: bool,
}

impl Believer for Held {
    fn believes(&self) -> bool {
        if self.looks { !self.hold.left().is_zero() } else { !self.told.get() }
    }
}

/// A grant that has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    pub(super) key: Key,
    pub(super) owner: Owner,
    pub(super) want: Want,
    pub(super) token: u64,
    pub(super) sent: Duration,
    pub(super) lease: Duration,
    pub(super) watched: bool,
    pub(super) strays: bool,
    pub(super) server: Option<ServerId>,
    pub(super) raised: Option<u64>,
}

/// A guard. Dropped, it releases in the background.
pub(super) struct Guard {
    me: Me,
    pub(super) held: Rc<Held>,
    part: Option<Part>,
}

impl Guard {
    /// `None`: the answer took longer than the lease.
    pub(super) fn new(me: &Me, came: Came) -> Option<Self> {
        let Came { key, owner, want, token, server, raised, .. } = came;
        let lease = believed(me, came.lease);
        let (hold, part) = Hold::granted(Granted {
            clock: me.clock(),
            margin: me.margin(),
            token,
            sent: counted_from(me, came.sent),
            lease,
            watched: came.watched,
            strays: came.strays,
        });
        if hold.left().is_zero() {
            return None;
        }
        let looks = me.has(Safeguard::LooksAtClock);
        let (released, told) = (Cell::new(false), Cell::new(false));
        let held = Rc::new(Held {
            key,
            owner,
            want,
            token,
            server,
            raised,
            lease,
            hold,
            released,
            told,
            looks,
        });
        // A part of a quorum alone is no reason to believe anything.
        if server.is_none() {
            let mut judge = me.sim.judge.borrow_mut();
            judge.counts.believed += 1;
            judge.beliefs.push(Belief {
                client: me.id,
                key,
                owner,
                shared: want == Want::Shared,
                token,
                holder: Rc::clone(&held) as Rc<dyn Believer>,
            });
        }
        me.sim.log(|| format!("client {} holds {key} as {owner:?} with {token}", me.id));
        me.spawn(watch(me.clone(), Rc::clone(&held)));
        Some(Self { me: me.clone(), held, part: Some(part) })
    }

    pub(super) fn is_lost(&self) -> bool {
        if self.held.looks { self.held.hold.is_lost() } else { self.held.told.get() }
    }

    pub(super) fn left(&self) -> Duration {
        self.held.hold.left()
    }

    /// Acquires it once more: `client/src/engine/reenter.rs`.
    pub(super) async fn reenter(&self) -> Option<Self> {
        let (me, held) = (&self.me, &self.held);
        let sole = held.hold.sole().await;
        if held.released.get() || self.is_lost() {
            return None;
        }
        let holds = held.hold.parts() as u64 + 1;
        let (key, owner, want) = (held.key, held.owner, held.want);
        let lease_ms = u64::try_from(held.lease.as_millis()).unwrap_or(u64::MAX);
        let said = me.has(Safeguard::Holds).then_some(holds);
        let request = Request::Acquire { key, owner, want, lease_ms, holds: said };
        for _ in 0..3 {
            let sent = me.now();
            match me.ask(Way::Commands, request, REPLY_TIMEOUT, |_| ()).await {
                Ok(Reply::Granted { token, holds: counted }) if token == held.token => {
                    if counted != holds {
                        let text = format!("{owner:?} holds {key} {counted} times, not {holds}");
                        me.sim.judge.borrow_mut().fail(Rule::Holds, text);
                    }
                    return self.reentered(&sole, sent);
                }
                Ok(_) => {
                    held.lose(me, false);
                    return None;
                }
                Err(Trouble::Refused(Refusal::Mismatch)) => {
                    // A release that came late may have taken a hold away.
                    let length = held.hold.longest(me.now()).unwrap_or_default().max(held.lease);
                    let sent = me.now();
                    if !renew(me, held, &sole, length).await {
                        return None;
                    }
                    return self.reentered(&sole, sent);
                }
                Err(trouble) if trouble.is_passing() => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Another lease from now on. Whatever comes of it, the watchdog goes on with that.
    pub(super) async fn extend(&self, lease: Duration) {
        let (me, held) = (&self.me, &self.held);
        let sole = held.hold.sole().await;
        if let (Some(part), false) = (self.part, held.released.get() || self.is_lost()) {
            let length = held.hold.change(&sole, part, me.now(), lease);
            renew(me, held, &sole, length).await;
        }
    }

    fn reentered(&self, sole: &Sole, sent: Duration) -> Option<Self> {
        let (me, held) = (&self.me, &self.held);
        let counts = me.sim.plan.replicas.is_none();
        let part = held.hold.reentered(sole, sent, held.lease, counts)?;
        me.sim.judge.borrow_mut().counts.reentered += 1;
        Some(Self { me: me.clone(), held: Rc::clone(held), part: Some(part) })
    }

    /// Releases it, or one hold of it.
    pub(super) async fn release(mut self) {
        if let Some(part) = self.part.take() {
            give_back(&self.me.clone(), &Rc::clone(&self.held), part).await;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            let (me, held) = (self.me.clone(), Rc::clone(&self.held));
            held.hold.abandon(part);
            self.me.spawn(async move { give_back(&me, &held, part).await });
        }
    }
}

impl Held {
    fn lose(&self, me: &Me, told: bool) {
        self.told.set(true);
        self.hold.lose(told);
        me.sim.judge.borrow_mut().counts.lost += 1;
    }
}

/// Takes one guard's part out, and tells the server.
async fn give_back(me: &Me, held: &Rc<Held>, part: Part) {
    if held.hold.parts() <= 1 {
        // From here on nobody believes in it.
        me.sim.judge.borrow_mut().beliefs.retain(|belief| belief.owner != held.owner);
    }
    let sole = held.hold.sole().await;
    let left = held.hold.leave(&sole, part);
    let (amount, strays) = match left {
        Leaving::Silent => return,
        Leaving::All(strays) => {
            held.released.set(true);
            me.sim.judge.borrow_mut().beliefs.retain(|belief| belief.owner != held.owner);
            (Release::All, strays)
        }
        Leaving::DownTo(left) => (Release::DownTo(left.into()), false),
    };
    let (key, owner, want) = (held.key, held.owner, held.want);
    let release = Request::Release { key, owner, want, amount };
    let known = send_release(me, release, held.server).await;
    if amount != Release::All {
        // Sent again, it could take a later hold away.
        if !known {
            held.hold.strayed();
        }
    } else if !known || strays {
        let (me, server) = (me.clone(), held.server);
        me.clone().spawn(async move { free(&me, release, None, true, server).await });
    }
}

/// Renews it until it is lost or released.
async fn watch(me: Me, held: Rc<Held>) {
    loop {
        if held.released.get() {
            return;
        }
        match held.hold.due(me.now()) {
            Due::Done => return,
            Due::Later(later) => {
                me.sleep(later.clamp(Duration::from_micros(100), TICK)).await;
            }
            Due::Renew(length) => match held.hold.take_up() {
                Some(sole) => {
                    renew(&me, &held, &sole, length).await;
                    drop(sole);
                }
                None => me.sleep(Duration::from_millis(5)).await,
            },
        }
    }
}

/// Renews it; whether the server has said so.
async fn renew(me: &Me, held: &Held, sole: &Sole, length: Duration) -> bool {
    let server = held.server.unwrap_or_else(|| me.home());
    let patience = REPLY_TIMEOUT.min(held.hold.left() / 2);
    let Some(conn) = me.connection(server, Way::Renewals) else {
        me.learn(Trouble::Unreachable);
        held.hold.not_renewed(sole, length, me.now());
        return false;
    };
    let sent = me.now();
    held.hold.renewing(sole, sent, length, conn as u64);
    let request = renewal(me, held.key, held.owner, length_of(me, length), held.raised);
    let answer = confirmed(me, me.ask_over(conn, request, patience).await);
    match answer {
        Ok(Reply::Lease { .. }) => {
            me.sim.judge.borrow_mut().counts.renewed += 1;
            held.hold.renewed(sole, counted_from(me, sent), length, me.now());
            return !held.hold.is_lost();
        }
        Ok(_) | Err(Trouble::Refused(Refusal::Other)) => held.lose(me, true),
        Err(Trouble::Timeout | Trouble::Broken) if !me.has(Safeguard::UnansweredIsNothing) => {
            held.hold.renewed(sole, sent, length, me.now());
        }
        Err(trouble) => {
            me.learn(trouble);
            if !trouble.leaves_outcome_unknown() || !me.has(Safeguard::CountsLate) {
                held.hold.refused(sole);
            }
            held.hold.not_renewed(sole, length, me.now());
        }
    }
    false
}

/// What sets the lease anew, and what replicas must have it.
pub(super) fn renewal(
    me: &Me,
    key: Key,
    owner: Owner,
    length: Duration,
    token: Option<u64>,
) -> Request {
    let lease_ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let confirm = me.sim.plan.replicas.filter(|_| me.has(Safeguard::RenewalsConfirm));
    Request::Renew { key, owner, lease_ms, token, confirm }
}

/// With too few replicas a renewal does not count: `client/src/net/replicas.rs`.
pub(super) fn confirmed(me: &Me, answer: Result<Reply, Trouble>) -> Result<Reply, Trouble> {
    let Some(replicas) = me.sim.plan.replicas else { return answer };
    match answer {
        Ok(Reply::Lease { confirmed: Some(said), .. }) => {
            let all = if replicas.all { said.there } else { 0 };
            if said.by < replicas.at_least.max(all) { Err(Trouble::NotReplicated) } else { answer }
        }
        other => other,
    }
}

/// From when a lease is counted.
pub(super) fn counted_from(me: &Me, sent: Duration) -> Duration {
    if me.has(Safeguard::FromSending) { sent } else { me.now() }
}

/// For how long a lease the crate is told that it has: without the margin for rates one that is so
/// much longer that what it takes off does not show.
fn believed(me: &Me, lease: Duration) -> Duration {
    if me.has(Safeguard::RateMargin) { lease } else { lease * 100 / 99 }
}

/// The lease that is asked for, where the crate says how long it is.
fn length_of(me: &Me, length: Duration) -> Duration {
    if me.has(Safeguard::RateMargin) { length } else { length * 99 / 100 }
}
