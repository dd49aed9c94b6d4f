//! A lock at a majority of several servers: `client/src/quorum/attempt.rs`, `held.rs` and
//! `keeper.rs`.

use super::acquire::{Claim, Limit, Wanted};
use super::guard::{Came, Guard, renewal};
use super::{Me, Way};
use crate::judge::{Belief, Believer};
use crate::settings::Safeguard;
use crate::wire::{Key, Owner, Refusal, Reply, Request, ServerId, Trouble};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use kvlock_core::Want;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// How long one server is waited for.
const PATIENCE: Duration = Duration::from_millis(60);
/// The least that the first lease is.
const OFFER: Duration = Duration::from_millis(400);

/// A try at one server that was granted.
struct Bid {
    server: ServerId,
    claim: Claim,
    token: u64,
}

/// What became of it.
enum Confirmed {
    Held(Guard),
    Gone,
    Refused(Bid),
    Failed,
}

enum Said {
    Asked(Result<Option<Bid>, Trouble>),
    Confirmed(ServerId, u64, Confirmed),
}

struct Attempt {
    me: Me,
    key: Key,
    lease: Duration,
    asking: usize,
    confirming: usize,
    pending: FuturesUnordered<LocalBoxFuture<'static, Said>>,
    bids: Vec<Bid>,
    token: Option<u64>,
    late: Vec<Bid>,
    guards: Vec<(ServerId, u64, Guard)>,
}

impl Attempt {
    fn at(
        me: &Me,
        key: Key,
        lease: Duration,
        token: Option<u64>,
        which: impl IntoIterator<Item = ServerId>,
    ) -> Self {
        let offer = lease.min(OFFER.max(PATIENCE * 4));
        let pending: FuturesUnordered<LocalBoxFuture<'static, Said>> = FuturesUnordered::new();
        for server in which {
            let me = me.clone();
            pending.push(Box::pin(async move { Said::Asked(ask(&me, server, key, offer).await) }));
        }
        Self {
            me: me.clone(),
            key,
            lease,
            asking: pending.len(),
            confirming: 0,
            pending,
            bids: Vec::new(),
            token,
            late: Vec::new(),
            guards: Vec::new(),
        }
    }

    fn majority(&self) -> usize {
        self.me.sim.plan.servers / 2 + 1
    }

    /// Goes on until a majority holds it or cannot be had.
    async fn run(mut self) -> Option<Rc<Held>> {
        let wanted = self.majority();
        loop {
            if self.counted() >= wanted
                && let Some(token) = self.token
            {
                let held = self.hold(token)?;
                if !(self.pending.is_empty() && self.late.is_empty()) {
                    let me = self.me.clone();
                    me.spawn(self.join(Rc::downgrade(&held)));
                }
                return Some(held);
            }
            if self.token.is_none() && self.bids.len() >= wanted {
                self.token = self.bids.iter().map(|bid| bid.token).max();
                self.confirm();
            }
            let undecided = if self.token.is_none() { self.bids.len() } else { 0 };
            let at_most = self.counted() + self.confirming + self.asking + undecided;
            if at_most < wanted && !self.do_without_the_largest() {
                // What was granted is given back by dropping it.
                return None;
            }
            self.step(false).await;
        }
    }

    /// How many hold it that count: those whose own token is not larger.
    fn counted(&self) -> usize {
        let counts = |own| !self.me.has(Safeguard::LateBids) || Some(own) <= self.token;
        self.guards.iter().filter(|(_, own, _)| counts(*own)).count()
    }

    fn confirm(&mut self) {
        for bid in std::mem::take(&mut self.bids) {
            self.confirm_one(bid);
        }
    }

    fn confirm_one(&mut self, bid: Bid) {
        let Some(token) = self.token else { return };
        let (me, lease) = (self.me.clone(), self.lease);
        let (server, own) = (bid.server, bid.token);
        self.confirming += 1;
        self.pending.push(Box::pin(async move {
            Said::Confirmed(server, own, confirm(&me, bid, token, lease).await)
        }));
    }

    fn do_without_the_largest(&mut self) -> bool {
        let Some(largest) = self.token.filter(|_| !self.bids.is_empty()) else { return false };
        self.bids.retain(|bid| bid.token < largest);
        self.guards.retain(|(_, own, _)| *own < largest);
        if self.bids.len() + self.guards.len() < self.majority() {
            return false;
        }
        let given = self.bids.iter().map(|bid| bid.token);
        self.token = given.chain(self.guards.iter().map(|(_, own, _)| *own)).max();
        self.confirm();
        true
    }

    /// Takes in one answer. `false` if there is none to come.
    async fn step(&mut self, joining: bool) -> bool {
        let Some(said) = self.pending.next().await else { return false };
        match said {
            Said::Asked(answer) => {
                self.asking -= 1;
                match answer {
                    Ok(Some(bid)) if self.token.is_none() => self.bids.push(bid),
                    Ok(Some(bid)) => {
                        let fits = Some(bid.token) <= self.token;
                        if joining || fits || !self.me.has(Safeguard::LateBids) {
                            self.confirm_one(bid);
                        } else {
                            self.late.push(bid);
                        }
                    }
                    Ok(None) | Err(_) => {}
                }
            }
            Said::Confirmed(server, own, confirmed) => {
                self.confirming -= 1;
                match confirmed {
                    Confirmed::Held(guard) => self.guards.push((server, own, guard)),
                    Confirmed::Refused(bid) => self.bids.push(bid),
                    Confirmed::Gone | Confirmed::Failed => {}
                }
            }
        }
        true
    }

    /// What is held, if it is still valid.
    fn hold(&mut self, token: u64) -> Option<Rc<Held>> {
        let me = &self.me;
        let mut parts: Vec<Option<Guard>> = (0..me.sim.plan.servers).map(|_| None).collect();
        for (server, _, guard) in std::mem::take(&mut self.guards) {
            parts[server] = Some(guard);
        }
        let held = Rc::new(Held {
            me: me.clone(),
            key: self.key,
            owner: me.sim.fresh_owner(),
            token,
            lease: self.lease,
            majority: self.majority(),
            parts: RefCell::new(parts),
            phase: Cell::new(Phase::Held),
            completing: Cell::new(false),
        });
        if !held.believes() {
            return None;
        }
        me.sim.log(|| format!("client {} holds {} by quorum with {token}", me.id, self.key));
        let mut judge = me.sim.judge.borrow_mut();
        judge.held_by_quorum(self.key, held.owner, token);
        judge.counts.believed += 1;
        judge.beliefs.push(Belief {
            client: me.id,
            key: self.key,
            owner: held.owner,
            shared: false,
            token,
            holder: Rc::clone(&held) as Rc<dyn Believer>,
        });
        drop(judge);
        Some(held)
    }

    /// Lets whoever is still to answer join what is held, as long as it is held.
    async fn join(mut self, held: Weak<Held>) {
        for bid in std::mem::take(&mut self.late) {
            self.confirm_one(bid);
        }
        while self.step(true).await {
            let Some(held) = held.upgrade().filter(|held| held.is_alive()) else { return };
            for (server, _, guard) in self.guards.drain(..) {
                held.join(server, guard);
            }
        }
    }
}

async fn ask(me: &Me, server: ServerId, key: Key, offer: Duration) -> Result<Option<Bid>, Trouble> {
    let mut claim = Claim::new(me, key, Want::Exclusive, Some(server));
    let (owner, lease_ms) = (claim.owner, offer.as_millis() as u64);
    let want = Want::Exclusive;
    let request = Request::Acquire { key, owner, want, lease_ms, holds: Some(1) };
    let mut again = true;
    loop {
        let Some(conn) = me.connection(server, Way::Commands) else {
            me.sleep(Duration::from_millis(1)).await;
            return Err(Trouble::Unreachable);
        };
        claim.sending(Some(conn));
        match me.ask_over(conn, request, PATIENCE).await {
            Ok(Reply::Granted { token, .. }) => {
                claim.granted();
                return Ok(Some(Bid { server, claim, token }));
            }
            Ok(_) => {
                claim.refused();
                return Ok(None);
            }
            // It may be carried out yet, but before what follows it on the same connection.
            Err(Trouble::Timeout) => return Err(Trouble::Timeout),
            Err(Trouble::Broken) if again => {
                claim.failed(Trouble::Broken);
                again = false;
            }
            Err(trouble) => {
                claim.failed(trouble);
                return Err(trouble);
            }
        }
    }
}

/// Sets the full lease, and raises the token to that of the quorum.
async fn confirm(me: &Me, bid: Bid, token: u64, lease: Duration) -> Confirmed {
    let Bid { server, .. } = bid;
    let (key, owner) = bid.claim.place();
    let Some(conn) = me.connection(server, Way::Renewals) else { return Confirmed::Failed };
    let raised = me.has(Safeguard::WriteBack).then_some(token);
    let request = renewal(me, key, owner, lease, raised);
    let sent = me.now();
    match me.ask_over(conn, request, PATIENCE).await {
        Ok(Reply::Lease { .. }) => {}
        Ok(_) => return Confirmed::Gone,
        Err(Trouble::Refused(Refusal::TooFarAhead)) => return Confirmed::Refused(bid),
        Err(_) => return Confirmed::Failed,
    }
    let came = Came {
        key,
        owner,
        want: Want::Exclusive,
        token,
        sent,
        lease,
        watched: true,
        strays: bid.claim.strays,
        server: Some(server),
        raised,
    };
    match Guard::new(me, came) {
        Some(guard) => {
            bid.claim.keep();
            Confirmed::Held(guard)
        }
        None => Confirmed::Failed,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    Lost,
    Released,
}

struct Held {
    me: Me,
    key: Key,
    owner: Owner,
    token: u64,
    lease: Duration,
    majority: usize,
    parts: RefCell<Vec<Option<Guard>>>,
    phase: Cell<Phase>,
    completing: Cell<bool>,
}

impl Believer for Held {
    fn believes(&self) -> bool {
        self.phase.get() == Phase::Held && self.alive() >= self.majority
    }
}

impl Held {
    fn alive(&self) -> usize {
        let parts = self.parts.borrow();
        parts.iter().flatten().filter(|guard| !guard.left().is_zero()).count()
    }

    /// Makes it lost if there is no majority any more. What is left of it is released then.
    fn is_lost(&self) -> bool {
        if self.phase.get() == Phase::Held && self.alive() < self.majority {
            if !self.me.has(Safeguard::Rejoin) {
                // It goes on, and takes again what it has lost.
                return false;
            }
            self.phase.set(Phase::Lost);
            let parts = std::mem::take(&mut *self.parts.borrow_mut());
            drop(parts);
            self.me.sim.judge.borrow_mut().counts.lost += 1;
        }
        self.phase.get() == Phase::Lost
    }

    fn is_alive(&self) -> bool {
        !self.is_lost() && self.phase.get() == Phase::Held
    }

    /// Takes a part in, if that is safe; else it is released.
    fn join(&self, server: ServerId, guard: Guard) {
        if !self.is_alive() {
            return;
        }
        let mut parts = self.parts.borrow_mut();
        if parts[server].as_ref().is_none_or(|part| part.left().is_zero()) {
            let before = parts[server].replace(guard);
            drop(parts);
            drop(before);
        }
    }

    fn release(&self) {
        if self.phase.get() == Phase::Held {
            self.phase.set(Phase::Released);
        }
        let owner = self.owner;
        self.me.sim.judge.borrow_mut().beliefs.retain(|belief| belief.owner != owner);
        let parts = std::mem::take(&mut *self.parts.borrow_mut());
        for part in parts.into_iter().flatten() {
            // Each by itself: one server that hangs holds up no other.
            self.me.spawn(part.release());
        }
    }
}

/// Asks the servers that do not hold it, now and then.
async fn keep(me: Me, held: Weak<Held>) {
    loop {
        let Some(held_now) = held.upgrade().filter(|held| held.is_alive()) else { return };
        let every = (held_now.lease / 10).max(Duration::from_millis(10));
        let missing: Vec<ServerId> = {
            let parts = held_now.parts.borrow();
            let missing = parts
                .iter()
                .enumerate()
                .filter(|(_, part)| part.as_ref().is_none_or(|guard| guard.left().is_zero()));
            missing.map(|(server, _)| server).collect()
        };
        if !missing.is_empty() && !held_now.completing.replace(true) {
            let (key, lease, token) = (held_now.key, held_now.lease, held_now.token);
            let attempt = Attempt::at(&me, key, lease, Some(token), missing);
            let held = Weak::clone(&held);
            me.spawn(async move {
                attempt.join(Weak::clone(&held)).await;
                if let Some(held) = held.upgrade() {
                    held.completing.set(false);
                }
            });
        }
        drop(held_now);
        me.sleep(every).await;
    }
}

/// Takes a lock at a majority, works, and gives it back.
pub(super) async fn visit(me: &Me, wanted: Wanted) {
    let Wanted { key, lease, .. } = wanted;
    let mut pause = Duration::from_millis(20);
    let held = loop {
        let all = 0..me.sim.plan.servers;
        if let Some(held) = Attempt::at(me, key, lease, None, all).run().await {
            break held;
        }
        let over = match wanted.limit {
            Limit::Now => true,
            Limit::Until(end) => me.now() >= end,
            Limit::Never => false,
        };
        if over {
            return;
        }
        me.sleep(pause + Duration::from_micros(me.below(pause.as_micros() as u64 * 2))).await;
        pause = (pause * 2).min(Duration::from_millis(300));
    };
    me.spawn(keep(me.clone(), Rc::downgrade(&held)));
    let longest = if me.sim.calm.get() { lease / 4 } else { lease * 2 };
    let end = me.now() + Duration::from_micros(me.below(longest.as_micros() as u64));
    while me.now() < end && !held.is_lost() {
        if held.believes() {
            super::life::write(me, key, held.owner, held.token);
        }
        me.sleep(Duration::from_micros(me.below(lease.as_micros() as u64 / 3))).await;
    }
    held.release();
}
