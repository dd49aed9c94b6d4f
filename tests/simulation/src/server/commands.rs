//! Commands, as in `module/src/commands/`, and what the server itself does before and after them.

use super::operate::Why;
use super::replication::Unconfirmed;
use super::{Parked, Server, named};
use crate::sim::Sim;
use crate::wire::{CallId, ConnId, Key, Owner, Refusal, Replicas, Reply, Request};
use kvlock_core::{
    Acquire, AcquireReply, Join, Millis, ReleaseReply, RenewReply, Token, WaitReply, Want,
};

impl Server {
    /// A request has come. It is carried out when those before it on its connection are, and
    /// writes are not paused.
    pub(super) fn arrives(&mut self, sim: &Sim, conn: ConnId, call: CallId, request: Request) {
        if self.is_paused(sim) {
            return self.postponed.push_back((conn, call, request));
        }
        let line = self.lines.entry(conn).or_default();
        if line.held_up {
            return line.waiting.push_back((call, request));
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
            if self.is_paused(sim) {
                self.postponed.push_back((conn, call, request));
                continue;
            }
            if let Some(reply) = self.execute(sim, conn, call, request) {
                sim.answer(conn, call, reply);
            } else if self.lines.get(&conn).is_some_and(|line| line.held_up) {
                return;
            }
        }
    }

    pub(super) fn unpause(&mut self, sim: &Sim) {
        if self.is_paused(sim) {
            return;
        }
        self.paused = None;
        for (conn, call, request) in std::mem::take(&mut self.postponed) {
            if sim.net.borrow().is_open(conn, crate::net::End::Server) {
                self.arrives(sim, conn, call, request);
            }
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
        if !self.primary {
            return Some(Reply::Error(Refusal::ReadOnly));
        }
        if self.lacks_replicas(sim) {
            return Some(Reply::Error(Refusal::NoReplicas));
        }
        match request {
            Request::Acquire { key, owner, want, lease_ms, holds } => {
                let lease = Millis(lease_ms);
                let request = Acquire { owner: owner.bytes(), want, lease, holds };
                let living = want == Want::Exclusive;
                let why = Why::Acquire;
                let reply = self
                    .on_lock(sim, key, owner, living, why, |table, at| table.acquire(at, &request));
                Some(acquired(reply))
            }
            Request::Wait { .. } => self.wait(sim, conn, call, request),
            Request::Release { key, owner, want, amount } => {
                let why = Why::Release;
                let reply = self.on_lock(sim, key, owner, false, why, |table, at| {
                    table.release(at, owner.bytes(), want, amount)
                });
                Some(match reply {
                    ReleaseReply::Left(left) => Reply::Left(left),
                    ReleaseReply::NotHeld => Reply::Nil,
                    ReleaseReply::Mismatch => Reply::Error(Refusal::Mismatch),
                    ReleaseReply::NotALock => Reply::Error(Refusal::Other),
                })
            }
            Request::Renew { key, owner, lease_ms, token, confirm } => {
                let reply = self.renew(sim, key, owner, lease_ms, token);
                match (reply, confirm) {
                    (Reply::Lease { .. }, Some(wanted)) => {
                        self.confirm(sim, conn, call, reply, wanted)
                    }
                    (reply, _) => Some(reply),
                }
            }
            Request::Cancel { key, owner } => {
                let cancelled = self.table.cancel(named(key), owner.bytes()).flatten();
                let there = cancelled.is_some();
                if let Some(parked) = cancelled {
                    sim.judge.borrow_mut().counts.cancelled += 1;
                    self.answer(sim, parked, Reply::Nil);
                }
                let now = self.at(sim);
                self.plan(sim, now);
                Some(Reply::Cancelled(there))
            }
        }
    }

    fn wait(&mut self, sim: &Sim, conn: ConnId, call: CallId, request: Request) -> Option<Reply> {
        let Request::Wait { key, owner, want, lease_ms, timeout_ms, holds } = request else {
            return None;
        };
        let lease = Millis(lease_ms);
        let request = Acquire { owner: owner.bytes(), want, lease, holds };
        let living = want == Want::Exclusive;
        let parked = Parked { conn, call, key };
        let outcome = self.on_lock(sim, key, owner, living, Why::Acquire, |table, at| {
            let (reply, change) = table.wait(at, &request, None);
            let outcome = match reply {
                WaitReply::Now(reply) => Err(acquired(reply)),
                WaitReply::QueueFull => Err(Reply::Error(Refusal::QueueFull)),
                WaitReply::Draining => Err(Reply::Error(Refusal::TryAgain)),
                WaitReply::Block => {
                    let timeout = timeout_ms.map(Millis);
                    let join = Join { owner: owner.bytes(), want, lease, timeout };
                    Ok(table.enqueue(at, &join, parked))
                }
            };
            (outcome, change)
        });
        let (waiter, replaced) = match outcome {
            Ok(in_line) => in_line,
            Err(reply) => return Some(reply),
        };
        self.parked.insert(conn, waiter);
        sim.judge.borrow_mut().joins_line(call, key);
        match replaced {
            Some(replaced) => {
                // It takes the place over.
                let order = &mut self.order[key];
                if let Some(place) = order.iter_mut().find(|other| **other == replaced.call) {
                    *place = call;
                }
                self.answer(sim, replaced, Reply::Error(Refusal::Unblocked));
            }
            None => self.order[key].push_back(call),
        }
        None
    }

    fn renew(
        &mut self,
        sim: &Sim,
        key: Key,
        owner: Owner,
        lease_ms: u64,
        token: Option<u64>,
    ) -> Reply {
        let token = token.and_then(Token::from_stored);
        let lease = Millis(lease_ms);
        let reply = self.on_lock(sim, key, owner, false, Why::Renew, |table, at| {
            table.renew(at, owner.bytes(), lease, token)
        });
        match reply {
            RenewReply::Lease(lease) => Reply::Lease { ms: lease.0, confirmed: None },
            RenewReply::NotHeld => Reply::Nil,
            RenewReply::TooFarAhead(_) => Reply::Error(Refusal::TooFarAhead),
            RenewReply::TryAgain => Reply::Error(Refusal::TryAgain),
            RenewReply::Shared | RenewReply::NotALock => Reply::Error(Refusal::Other),
        }
    }

    /// `ROLE` and `WAIT`: the replicas that have everything up to here.
    fn confirm(
        &mut self,
        sim: &Sim,
        conn: ConnId,
        call: CallId,
        reply: Reply,
        wanted: Replicas,
    ) -> Option<Reply> {
        let there = self.followers.len();
        let wanted_by = if wanted.all { wanted.at_least.max(there) } else { wanted.at_least };
        let waiting =
            Unconfirmed { conn, call, reply, offset: self.offset, wanted: wanted_by, there };
        if self.have(waiting.offset) >= wanted_by {
            return Some(self.said(&waiting));
        }
        self.lines.entry(conn).or_default().held_up = true;
        self.hold_up(sim, waiting, wanted.timeout_ms);
        None
    }
}

/// What an outcome looks like on the wire.
fn acquired(reply: AcquireReply) -> Reply {
    match reply {
        AcquireReply::Granted { token, holds } => Reply::Granted { token: token.value(), holds },
        AcquireReply::Refused => Reply::Nil,
        AcquireReply::Mismatch => Reply::Error(Refusal::Mismatch),
        AcquireReply::TryAgain => Reply::Error(Refusal::TryAgain),
        AcquireReply::TooManyHolds | AcquireReply::Upgrade | AcquireReply::NotALock => {
            Reply::Error(Refusal::Other)
        }
    }
}
