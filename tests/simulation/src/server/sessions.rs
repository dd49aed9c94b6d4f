//! Sessions: `module/src/sessions.rs`, `bound.rs` and `commands/session/`. What was promised to them is
//! kept in a [`Ledger`].

use super::commands::{acquired, asked};
use super::{Lost, Reader, Server, key_of, named};
use crate::client::{Names, resp};
use crate::judge::Rule;
use crate::keyspace::Asked;
use crate::net::End;
use crate::settings::Safeguard;
use crate::sim::Sim;
use crate::wire::{self, CallId, ConnId, Owner, Reply, Wish};
use kvlock_core::{
    AckAhead, Acquire, Bound, Dismissal, Ending, Granted, Join, Millis, MonoMillis, Now, Outcome,
    RUN_MAX, Reading, SessionId, SessionName, Situation, Untold, Via, WaitReply, Want,
};
/// Whose all sessions are.
const USER: &[u8] = b"default";

impl Server {
    pub(super) fn session(&self, name: &SessionName) -> Option<SessionId> {
        self.table.session(name, USER)
    }

    pub(super) fn open_session(&mut self, sim: &Sim, ttl: u64) -> Reply {
        let name = sim.fresh_session();
        let now = self.at(sim);
        let lasts = if sim.has(Safeguard::WholeTtl) { ttl } else { ttl / 2 };
        match self.table.open_session(name, USER, Millis(lasts), now) {
            Ok(_) => {
                self.ledger.opened(name, ttl, now);
                self.plan(sim, now);
                Reply::list([Reply::text(name), Reply::Int(now.mono.0)])
            }
            Err(_) => Reply::Error(wire::TRY_AGAIN),
        }
    }

    pub(super) fn close_session(&mut self, sim: &Sim, name: SessionName) -> Reply {
        let Some(id) = self.session(&name) else { return Reply::Int(0) };
        let reader = self.table.close_session(id);
        self.ledger.closed(&name);
        self.turn_reader_away(sim, reader, wire::NO_SESSION);
        let now = self.at(sim);
        self.plan(sim, now);
        Reply::Int(1)
    }

    /// `LOCK.WAIT … SESSION id`.
    pub(super) fn wait(&mut self, sim: &Sim, wish: Wish, timeout: Option<Millis>) -> Reply {
        let found = wish.session.and_then(|name| Some((name, self.session(&name)?)));
        let Some((name, session)) = found else { return Reply::Error(wire::NO_SESSION) };
        let Wish { key, owner, want, .. } = wish;
        let request = asked(sim, &wish);
        let living = want == Want::Exclusive;
        // Nobody is told of it before the ledger knows.
        self.records = true;
        let answer = self.on_lock(sim, key, owner, living, |table, at| {
            let (reply, change) = table.wait(at, &request, Some(session));
            let answer = match reply {
                WaitReply::Now(reply) => Err(acquired(sim, &wish, reply)),
                WaitReply::QueueFull => Err(Reply::Error(wire::QUEUE_FULL)),
                WaitReply::Draining => Err(Reply::Error(wire::TRY_AGAIN)),
                WaitReply::Block => {
                    let Acquire { owner, want, lease, .. } = request;
                    let join = Join { owner, want, lease, timeout };
                    let _place = table.enqueue(at, &join, Via::Session(session));
                    Ok(())
                }
            };
            (answer, change)
        });
        let now = self.at(sim);
        self.ledger.uses(sim, &name, now);
        self.records = false;
        if let Err(reply) = answer {
            self.plan(sim, now);
            return reply;
        }
        self.ledger.queued((key, owner), name);
        self.plan(sim, now);
        Reply::list([Reply::text("queued"), Reply::Int(now.mono.0)])
    }

    /// `SESSION.NEXT`. `None`: it is blocked.
    pub(super) fn next(
        &mut self,
        sim: &Sim,
        (conn, call): (ConnId, CallId),
        name: SessionName,
        ack: u64,
        timeout: Millis,
        most: usize,
    ) -> Option<Reply> {
        let now = self.at(sim);
        let Some(session) = self.session(&name) else {
            return Some(Reply::Error(wire::NO_SESSION));
        };
        self.ledger.uses(sim, &name, now);
        let begun = self.table.begin_reading(session, Some(conn as u64), ack, now);
        let reading = match begun {
            Err(AckAhead) => return Some(Reply::Error(wire::ACK_AHEAD)),
            Ok((None, _)) => return Some(Reply::Error(wire::NO_SESSION)),
            Ok((Some(reading), replaced)) => {
                self.turn_reader_away(sim, replaced, wire::UNBLOCKED);
                reading
            }
        };
        self.ledger.reads(&name, conn, ack, now);
        let reader = Reader { conn, call, name, most };
        let has_news =
            self.table.news(reading).and_then(Result::ok).is_some_and(|mut n| n.next().is_some());
        let reply = if has_news || timeout.0 == 0 {
            Some(self.read(sim, reading, reader))
        } else {
            self.readers.insert(conn, reading);
            self.lines.entry(conn).or_default().held_up = true;
            self.table.block_reader(reading, reader, timeout, now);
            None
        };
        self.plan(sim, now);
        reply
    }

    /// Composes the reply to a reader, and takes note of what became of it.
    fn read(&mut self, sim: &Sim, reading: Reading, reader: Reader) -> Reply {
        let Reader { conn, name, most, .. } = reader;
        self.settle_places();
        let news = match self.table.news(reading) {
            None => return Reply::Error(wire::NO_SESSION),
            Some(Err(_)) => return Reply::Error(wire::UNBLOCKED),
            Some(Ok(news)) => news,
        };
        let told: Vec<_> = news.take(most).map(|(seq, told)| (seq, told.clone())).collect();
        let now = self.at(sim);
        let up_to = told.last().map_or(0, |(seq, _)| *seq);
        self.ledger.tells(sim, &name, &told, now);
        self.table.sent(reading, up_to, now);
        let hung_up = !sim.net.borrow().is_open(conn, End::Client);
        if hung_up && sim.percent(50) {
            // The server hears of it while it writes the reply.
            let _blocked = self.table.reader_gone(reading, now);
            self.ledger.gone(conn, now);
        } else {
            self.table.heard(reading, up_to);
            self.ledger.heard(&told);
        }
        let at = (!sim.has(Safeguard::GrantedAt)).then_some(now.mono);
        let names = sim.names.borrow();
        let told = told.iter().map(|(seq, told)| entry(*seq, told, at, &names)).collect();
        Reply::list([Reply::Int(now.mono.0), Reply::List(told)])
    }

    /// Answers blocked readers that have something to hear.
    pub(super) fn tell_readers(&mut self, sim: &Sim, now: Now) {
        while let Some((reading, reader)) = self.table.next_reader(now) {
            self.readers.remove(&reader.conn);
            let reply = self.read(sim, reading, reader);
            sim.answer(reader.conn, reader.call, reply);
            self.freed.push(reader.conn);
        }
    }

    fn turn_reader_away(&mut self, sim: &Sim, reader: Option<Reader>, why: &'static str) {
        let Some(Reader { conn, call, .. }) = reader else { return };
        self.readers.remove(&conn);
        sim.answer(conn, call, Reply::Error(why));
        self.freed.push(conn);
    }

    /// The connection is gone through which sessions were read.
    pub(super) fn reader_gone(&mut self, conn: ConnId, now: Now) {
        if let Some(reading) = self.readers.remove(&conn) {
            let _blocked = self.table.reader_gone(reading, now);
        }
        self.table.connection_closed(conn as u64, now);
        self.ledger.gone(conn, now);
    }

    /// Does some of what is due for sessions.
    pub(super) fn work_on_sessions(&mut self, sim: &Sim, now: Now) {
        for _ in 0..RUN_MAX {
            if !self.table.session_due(now) {
                break;
            }
        }
        self.table.work_on_sessions();
        while let Some(reader) = self.table.close_one_ended() {
            self.turn_reader_away(sim, reader, wire::NO_SESSION);
        }
        while let Some(Untold { key, owner, granted }) = self.table.next_untold() {
            let (key, owner) = (key_of(&key), Owner::read(&owner));
            let lost = Lost { id: granted.id, key, owner, token: granted.token };
            if self.ledger.has_heard(owner, granted.token.value()) {
                let text = format!("{owner:?} was told that it has {key}, which is taken back");
                sim.judge.borrow_mut().fail(Rule::Sessions, text);
            }
            if self.primary {
                self.lost.push(lost);
            } else {
                self.table.delivered(named(key), lost.id, owner.bytes(), lost.token);
            }
        }
    }

    pub(super) fn work_on_bound(&mut self, sim: &Sim, now: Now) {
        for _ in 0..RUN_MAX {
            let Some(bound) = self.table.next_bound(now) else { return };
            self.look_at_bound(sim, &bound, now);
        }
    }

    fn look_at_bound(&mut self, sim: &Sim, bound: &Bound, now: Now) {
        let (key, owner) = (key_of(&bound.key), Owner::read(&bound.owner));
        self.expire(sim, key, now);
        let floor = self.floor(sim, now);
        let asked = Asked { owner, living: false };
        let seen = self.data.observe(key, &asked, now.unix());
        let at = Situation { key: named(key), seen, now, floor };
        let Some(until) = self.table.is_still_bound(&at, bound) else {
            return self.table.not_bound(bound);
        };
        if !bound.is_orphan {
            return self.table.stays_bound(bound, until, now);
        }
        if self.lacks_replicas(sim) {
            return self.table.refused_to_release(bound, true, now);
        }
        let change = self.table.release_bound(&at, bound);
        sim.judge.borrow_mut().counts.bound_released += 1;
        self.carry_out(sim, key, owner, change, now);
    }
}

/// One outcome as it is told; a grant as of that time, if one is said.
fn entry(seq: u64, told: &Outcome, granted_at: Option<MonoMillis>, names: &Names) -> Reply {
    let error = |error| vec![Reply::text("error"), Reply::text(error)];
    let ending = match &told.ending {
        Ending::Granted(Granted { token, holds, at, .. }) => {
            let numbers = [token.value(), *holds, granted_at.unwrap_or(*at).0];
            [Reply::text("granted")].into_iter().chain(numbers.map(Reply::Int)).collect()
        }
        Ending::Open => vec![Reply::text("open")],
        Ending::TimedOut => vec![Reply::text("timeout")],
        Ending::Cancelled => vec![Reply::text("cancelled")],
        Ending::Replaced => vec![Reply::text("replaced")],
        Ending::Changed(_) => vec![Reply::text("changed")],
        Ending::Dismissed(Dismissal::Server(_)) => error(wire::NO_REPLICAS),
        Ending::Dismissed(_) => error(wire::TRY_AGAIN),
    };
    let key = Reply::text(resp::key_name(key_of(&told.key)));
    let owner = Reply::text(&names.by_owner[&Owner::read(&told.owner)]);
    Reply::List([vec![Reply::Int(seq), Reply::text("lock"), key, owner], ending].concat())
}
