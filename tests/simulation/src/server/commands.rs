//! Commands, as in `module/src/commands/`, and what the server itself does before and after them.

use super::replication::Unconfirmed;
use super::{Server, named};
use crate::judge::Rule;
use crate::settings::Safeguard;
use crate::sim::Sim;
use crate::wire::{self, CallId, ConnId, Key, Owner, Reply, Request, Wish};
use kvlock_core::{Acquire, AcquireReply, Millis, ReleaseReply, RenewReply, Token, Want};

impl Server {
    /// A request has come. It is carried out when those before it on its connection are, and
    /// writes are not paused.
    pub(super) fn arrives(&mut self, sim: &Sim, conn: ConnId, call: CallId, request: Request) {
        self.unpause(sim);
        let pauses = self.is_paused(sim) && request.writes();
        let line = self.lines.entry(conn).or_default();
        if line.held_up {
            return line.waiting.push_back((call, request));
        }
        if pauses {
            line.held_up = true;
            line.waiting.push_front((call, request));
            return self.postponed.push(conn);
        }
        if let Some(reply) = self.execute(sim, conn, call, request) {
            sim.answer(conn, call, reply);
        }
    }

    /// What held up a connection has been answered.
    pub(super) fn goes_on(&mut self, sim: &Sim, conn: ConnId) {
        loop {
            let Some(line) = self.lines.get_mut(&conn) else { return };
            line.held_up = false;
            let Some((call, request)) = line.waiting.pop_front() else { return };
            self.arrives(sim, conn, call, request);
            if self.lines.get(&conn).is_some_and(|line| line.held_up) {
                return;
            }
        }
    }

    /// If the time of a pause is over, who was held up by it goes on.
    pub(super) fn unpause(&mut self, sim: &Sim) {
        if self.paused.is_none() || self.is_paused(sim) {
            return;
        }
        self.paused = None;
        for conn in std::mem::take(&mut self.postponed) {
            self.goes_on(sim, conn);
        }
        self.check(sim);
    }

    /// Carries a request out. `None`: it is answered later.
    fn execute(
        &mut self,
        sim: &Sim,
        conn: ConnId,
        call: CallId,
        request: Request,
    ) -> Option<Reply> {
        if !self.primary && (request.writes() || matches!(request, Request::Open { .. })) {
            return Some(Reply::Error(wire::READ_ONLY));
        }
        if self.lacks_replicas(sim) && request.writes() {
            return Some(Reply::Error(wire::NO_REPLICAS));
        }
        let reply = match request {
            Request::Acquire(wish) => self.acquire(sim, wish),
            Request::Wait { wish, timeout_ms } => self.wait(sim, wish, timeout_ms.map(Millis)),
            Request::Open { ttl_ms } => self.open_session(sim, ttl_ms),
            Request::Next { session, ack, timeout_ms, most } => {
                return self.next(sim, (conn, call), session, ack, Millis(timeout_ms), most);
            }
            Request::Close { session } => self.close_session(sim, session),
            Request::Role => self.role(),
            Request::Replicas { wanted, timeout_ms } => {
                return self.confirm(sim, (conn, call), wanted, timeout_ms);
            }
            Request::Ping => Reply::Fine,
            Request::Info => Reply::text(format!("run_id:{}\r\n", self.id)),
            Request::Incomplete => Reply::Error(wire::INCOMPLETE),
            Request::Release { key, owner, want, amount } => {
                let reply = self.on_lock(sim, key, owner, false, |table, at| {
                    table.release(at, owner.bytes(), want, amount)
                });
                match reply {
                    ReleaseReply::Left(left) => Reply::Int(left),
                    ReleaseReply::NotHeld => Reply::Nil,
                    ReleaseReply::Mismatch => Reply::Error(wire::MISMATCH),
                    ReleaseReply::NotALock => Reply::Error(wire::OTHER),
                }
            }
            Request::Renew { key, owner, lease_ms, token } => {
                let again = !self.renewed.insert((key, owner));
                let reply = self.renew(sim, key, owner, lease_ms, token);
                self.lines.entry(conn).or_default().renews_again = again;
                reply
            }
            Request::Cancel { key, owner } => {
                let there = self.table.cancel(named(key), owner.bytes()).is_some();
                sim.judge.borrow_mut().counts.cancelled += u64::from(there);
                let now = self.at(sim);
                self.plan(sim, now);
                Reply::Int(u64::from(there))
            }
        };
        self.lines.entry(conn).or_default().offset = self.offset;
        Some(reply)
    }

    fn acquire(&mut self, sim: &Sim, wish: Wish) -> Reply {
        let Wish { key, owner, want, .. } = wish;
        let session = match wish.session.map(|name| (name, self.session(&name))) {
            None => None,
            Some((_, None)) => return Reply::Error(wire::NO_SESSION),
            Some((name, Some(session))) => Some((name, session)),
        };
        let request = asked(sim, &wish);
        let living = want == Want::Exclusive;
        let reply = self.on_lock(sim, key, owner, living, |table, at| {
            let (reply, change) = table.acquire(at, &request);
            if let Some((_, session)) = session {
                table.bind_granted(at, &request, reply, session);
            }
            (reply, change)
        });
        if let (AcquireReply::Granted { token, .. }, Some((name, _))) = (reply, session) {
            let now = self.at(sim);
            self.ledger.uses(sim, &name, now);
            self.ledger.bind((key, owner), name, token.value());
            sim.judge.borrow_mut().counts.bound += 1;
        }
        acquired(sim, &wish, reply)
    }

    fn renew(
        &mut self,
        sim: &Sim,
        key: Key,
        owner: Owner,
        lease_ms: u64,
        token: Option<u64>,
    ) -> Reply {
        let raised = token.filter(|_| sim.has(Safeguard::WriteBack));
        let token = raised.and_then(Token::from_stored);
        let lease = Millis(lease_ms);
        let reply = self.on_lock(sim, key, owner, false, |table, at| {
            table.renew(at, owner.bytes(), lease, token)
        });
        match reply {
            RenewReply::Lease(lease) => {
                sim.judge.borrow_mut().counts.renewed += 1;
                Reply::Int(lease.0)
            }
            RenewReply::NotHeld => Reply::Nil,
            RenewReply::TooFarAhead(_) => Reply::Error(wire::TOO_FAR_AHEAD),
            RenewReply::TryAgain => Reply::Error(wire::TRY_AGAIN),
            RenewReply::Shared | RenewReply::NotALock => Reply::Error(wire::OTHER),
        }
    }

    /// `ROLE`: of replicas, how many they are.
    fn role(&self) -> Reply {
        let followers = if self.primary { self.online() as u64 } else { 0 };
        let role = Reply::text(if self.primary { "master" } else { "slave" });
        Reply::list([role, Reply::Int(0), Reply::List((0..followers).map(Reply::Int).collect())])
    }

    /// `WAIT`: how many replicas have everything that came over that connection.
    fn confirm(
        &mut self,
        sim: &Sim,
        (conn, call): (ConnId, CallId),
        wanted: usize,
        timeout_ms: u64,
    ) -> Option<Reply> {
        if !self.primary {
            return Some(Reply::Error(wire::OTHER));
        }
        let line = self.lines.entry(conn).or_default();
        if line.renews_again && !sim.has(Safeguard::RenewalsConfirm) {
            return Some(Reply::Int(wanted as u64));
        }
        let waiting = Unconfirmed { conn, call, offset: line.offset, wanted };
        let have = self.have(waiting.offset);
        if have >= wanted {
            return Some(Reply::Int(have as u64));
        }
        self.lines.entry(conn).or_default().held_up = true;
        self.hold_up(sim, waiting, timeout_ms);
        None
    }
}

/// What the table is asked for.
pub(super) fn asked<'a>(sim: &Sim, wish: &'a Wish) -> Acquire<'a> {
    let holds = wish.holds.filter(|_| sim.has(Safeguard::Holds));
    Acquire { owner: wish.owner.bytes(), want: wish.want, lease: Millis(wish.lease_ms), holds }
}

/// What an outcome looks like on the wire.
pub(super) fn acquired(sim: &Sim, wish: &Wish, reply: AcquireReply) -> Reply {
    match reply {
        AcquireReply::Granted { token, holds } => {
            if wish.holds.is_some_and(|said| said != holds) {
                let text = format!("{wish:?} is held {holds} times");
                sim.judge.borrow_mut().fail(Rule::Holds, text);
            }
            Reply::list([token.value(), holds].map(Reply::Int))
        }
        AcquireReply::Refused => Reply::Nil,
        AcquireReply::Mismatch => Reply::Error(wire::MISMATCH),
        AcquireReply::TryAgain => Reply::Error(wire::TRY_AGAIN),
        AcquireReply::TooManyHolds | AcquireReply::Upgrade | AcquireReply::NotALock => {
            Reply::Error(wire::OTHER)
        }
    }
}
