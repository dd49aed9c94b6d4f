//! Sessions: `module/src/sessions.rs`, `bound.rs` and `commands/session/`. What was promised to them is
//! kept in a [`Ledger`].

use super::commands::{acquired, asked};
use super::ledger::Told;
use super::{Lost, Reader, Server, key_of, named};
use crate::client::resp;
use crate::judge::Rule;
use crate::keyspace::Asked;
use crate::net::End;
use crate::settings::Safeguard;
use crate::sim::Sim;
use crate::wire::{self, CallId, ConnId, Owner, Reply, Wish};
use kvlock_core::{
    AckAhead, Acquire, Bound, Dismissal, Ending, Join, Millis, Now, Outcome, RUN_MAX, Reading,
    SessionId, SessionName, Situation, Untold, Via, WaitReply, Want,
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
    pub(super) fn wait(
        &mut self,
        sim: &Sim,
        call: CallId,
        wish: Wish,
        timeout: Option<Millis>,
    ) -> Reply {
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
        if self.ledger.queued(sim, (key, owner), name, call) {
            self.order[key].push_back(call);
        }
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
        self.settle_places(sim);
        let news = match self.table.news(reading) {
            None => return Reply::Error(wire::NO_SESSION),
            Some(Err(_)) => return Reply::Error(wire::UNBLOCKED),
            Some(Ok(news)) => news,
        };
        let mut told: Vec<_> = news.take(most).map(|(seq, outcome)| entry(seq, outcome)).collect();
        let now = self.at(sim);
        let up_to = told.last().map_or(0, |last| last.seq);
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
        if !sim.has(Safeguard::GrantedAt) {
            for told in &mut told {
                if let wire::Ending::Granted { at, .. } = &mut told.ending {
                    *at = now.mono.0;
                }
            }
        }
        let told = told.iter().map(|told| resp::told(told, &sim.names.borrow())).collect();
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

/// One outcome as it is told.
fn entry(seq: u64, outcome: &Outcome) -> Told {
    let Outcome { key, owner, ending } = outcome;
    let ending = match ending {
        Ending::Granted(granted) => wire::Ending::Granted {
            token: granted.token.value(),
            holds: granted.holds,
            at: granted.at.0,
        },
        Ending::Open => wire::Ending::Word("open"),
        Ending::TimedOut => wire::Ending::Word("timeout"),
        Ending::Cancelled => wire::Ending::Word("cancelled"),
        Ending::Replaced => wire::Ending::Word("replaced"),
        Ending::Changed(_) => wire::Ending::Word("changed"),
        Ending::Dismissed(Dismissal::Server(_)) => wire::Ending::Error(wire::NO_REPLICAS),
        Ending::Dismissed(_) => wire::Ending::Error(wire::TRY_AGAIN),
    };
    Told { seq, key: key_of(key), owner: Owner::read(owner), ending }
}
