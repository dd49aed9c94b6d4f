//! Executes and answers requests, and records both in the ledger.

use super::ledger::Via;
use super::replication::Unconfirmed;
use super::{NOBODY, Node};
use crate::judge::Rule;
use crate::module::Module;
use crate::net::End;
use crate::redis::{self, Answer, NO_REPLICAS, Reply};
use crate::settings::Safeguard;
use crate::sim::Sim;
use crate::wire::{self, CallId, ConnId, Request};
use kvlock_core::SessionName;

const READ_ONLY: Reply = Reply::error(c"READONLY You can't write against a read only replica.");

impl Node {
    /// Receives a request. Executes it after the earlier requests on its connection and, if it writes, after
    /// a pause of writes.
    pub(crate) fn arrives(&mut self, sim: &Sim, conn: ConnId, call: CallId, request: Request) {
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

    /// Continues a connection whose blocking request was answered, or whose requests a pause has held up.
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

    /// Runs the requests held up by a pause, if the pause has ended.
    pub(crate) fn unpause(&mut self, sim: &Sim) {
        if self.paused.is_none() || self.is_paused(sim) {
            return;
        }
        self.paused = None;
        for conn in std::mem::take(&mut self.postponed) {
            self.goes_on(sim, conn);
        }
    }

    /// Executes a request. `None` if it is answered later.
    fn execute(
        &mut self,
        sim: &Sim,
        conn: ConnId,
        call: CallId,
        request: Request,
    ) -> Option<Reply> {
        if !self.primary && request.writes() {
            return Some(READ_ONLY);
        }
        if self.lacks_replicas(sim) && request.writes() {
            return Some(Reply::error(NO_REPLICAS));
        }
        let reply = match request.name() {
            b"ROLE" => self.role(),
            b"WAIT" => return self.confirm(sim, (conn, call), &request),
            b"INFO" => Reply::Bytes(format!("run_id:{}\r\n", self.id).into()),
            b"CLIENT" | b"HELLO" | b"PING" | b"SELECT" => wire::OK,
            _ => {
                let places = request.places();
                let asks = (Some(conn), &places[..]);
                let reply = self.call(sim, asks, |ctx| redis::call(ctx, request.words()));
                self.begins_to_read(sim, conn, &request, &reply);
                if reply == Reply::Later {
                    if request.name() == b"LOCK.WAIT" {
                        self.begins_to_wait(sim, &request, None);
                    }
                    let line = self.lines.entry(conn).or_default();
                    line.held_up = true;
                    line.parked = Some((call, request));
                    return None;
                }
                let is_dropped = self.is_dropped(sim, conn) && request.name() == b"SESSION.NEXT";
                self.notes(sim, conn, &request, &reply, is_dropped);
                reply
            }
        };
        if let Some(line) = self.lines.get_mut(&conn) {
            line.offset = self.offset;
        }
        Some(reply)
    }

    /// Draws at random whether the connection is lost: the client dies before the reply reaches it, or the
    /// server notices that the client has closed the connection.
    fn is_dropped(&self, sim: &Sim, conn: ConnId) -> bool {
        let net = sim.net.borrow();
        sim.dies_unnoticed(net.client_of(conn))
            || !net.is_open(conn, End::Client) && sim.percent(50)
    }

    /// Writes the reply to a blocked client, or informs the module that the reply is lost.
    pub(super) fn answers_parked(&mut self, sim: &Sim, conn: ConnId, answer: Option<Answer>) {
        let line = self.lines.get_mut(&conn);
        let is_there = line.is_some();
        let Some((call, request)) = line.and_then(|line| line.parked.take()) else {
            if is_there {
                let text = format!("connection {conn} is answered twice: {answer:?}");
                sim.judge.borrow_mut().fail(Rule::Waiters, text);
            }
            return self.is_lost(sim, answer);
        };
        let is_dropped = self.is_dropped(sim, conn);
        if is_dropped && sim.percent(50) {
            self.is_lost(sim, answer);
            return self.gone(sim, conn);
        }
        let Some(Answer { reply, note }) = answer else {
            return sim.answer(conn, call, Reply::error(c"ERR let go without an answer"));
        };
        let reply = reply.unwrap_or_else(|| self.call(sim, NOBODY, |_| Module::reply_now(&note)));
        self.call(sim, NOBODY, |ctx| Module::answer_written(ctx, note));
        self.notes(sim, conn, &request, &reply, is_dropped);
        sim.answer(conn, call, reply);
        self.goes_on(sim, conn);
    }

    fn is_lost(&mut self, sim: &Sim, answer: Option<Answer>) {
        if let Some(Answer { note, .. }) = answer {
            self.call(sim, NOBODY, |ctx| Module::answer_lost(ctx, note));
        }
    }

    /// Records the reply to a request. If `is_dropped`, the server closes the connection, and the reply does
    /// not count as received.
    fn notes(
        &mut self,
        sim: &Sim,
        conn: ConnId,
        request: &Request,
        reply: &Reply,
        is_dropped: bool,
    ) {
        self.take_note(sim, conn, request, reply);
        if is_dropped {
            self.gone(sim, conn);
        } else {
            self.ledger.heard(reply);
        }
    }

    fn begins_to_read(&mut self, sim: &Sim, conn: ConnId, request: &Request, reply: &Reply) {
        let now = self.at(sim);
        if let (b"SESSION.NEXT", Reply::Later | Reply::List(_), Some(session)) =
            (request.name(), reply, request.session())
        {
            self.ledger.uses(sim, &session, now);
            self.ledger.reads(&session, conn, request.number(2), now);
        }
    }

    fn take_note(&mut self, sim: &Sim, conn: ConnId, request: &Request, reply: &Reply) {
        let now = self.at(sim);
        let (place, session) = (request.place(), request.session());
        if let (Reply::Pair(token, holds), Some(place)) = (reply, place) {
            if request.holds.is_some_and(|said| said != *holds) {
                let text = format!("{request:?} is held {holds} times");
                sim.judge.borrow_mut().fail(Rule::Holds, text);
            }
            self.ledger.relied_on(place, now);
            if let Some(session) = session.filter(|_| request.name() == b"LOCK.ACQUIRE") {
                self.ledger.bind(place, session, *token);
                sim.judge.borrow_mut().counts.bound += 1;
            }
        }
        if let (b"LOCK.ACQUIRE" | b"LOCK.WAIT", Reply::Pair(..) | Reply::List(_), Some(session)) =
            (request.name(), reply, session)
        {
            self.ledger.uses(sim, &session, now);
        }
        if request.is_of_set() {
            self.note_set(sim, request, reply);
        }
        if let (b"LOCK.ACQUIRE" | b"LOCK.WAIT", Reply::Word("ready")) = (request.name(), reply) {
            self.check_ready(sim, &request.places());
        }
        match (request.name(), reply) {
            (b"LOCK.WAIT", Reply::List(_)) => {
                self.begins_to_wait(sim, request, session);
            }
            (b"LOCK.RENEW", Reply::Number(_)) => {
                sim.judge.borrow_mut().counts.renewed += 1;
                place.iter().for_each(|place| self.ledger.relied_on(*place, now));
                let again = place.is_some_and(|place| !self.renewed.insert(place));
                self.lines.entry(conn).or_default().renews_again = again;
            }
            (b"LOCK.CANCEL", Reply::Number(there)) => {
                sim.judge.borrow_mut().counts.cancelled += there;
            }
            (b"SESSION.OPEN", Reply::List(said)) => {
                if let [Reply::Bytes(name), _] = &said[..] {
                    let name = name[..].try_into().expect("the name of a session");
                    self.ledger.opened(name, request.number(1), now);
                }
            }
            (b"SESSION.CLOSE", Reply::Number(1)) => {
                session.iter().for_each(|session| self.ledger.closed(session));
            }
            (b"SESSION.NEXT", Reply::List(said)) => {
                if let ([_, Reply::List(told)], Some(session)) = (&said[..], session) {
                    self.ledger.tells(sim, &session, told, now);
                }
            }
            _ => {}
        }
    }

    /// Records that a client starts to wait, through a session or blocked.
    fn begins_to_wait(&mut self, sim: &Sim, request: &Request, session: Option<SessionName>) {
        let Some((_, owner)) = request.place() else { return };
        let of_set = request.is_of_set();
        sim.judge.borrow_mut().counts.sets_waited += u64::from(of_set);
        for (at, (key, shared)) in request.locks().into_iter().enumerate() {
            let via = if at == 0 { Via::of(session) } else { Via::Place(session) };
            self.ledger.queued((key, owner), via, (shared, of_set));
        }
    }

    /// Records the reply to a request for several locks.
    fn note_set(&mut self, sim: &Sim, request: &Request, reply: &Reply) {
        let places = request.places();
        if let (b"LOCK.ACQUIRE" | b"LOCK.WAIT", Reply::Pair(..)) = (request.name(), reply) {
            sim.judge.borrow_mut().counts.sets_granted += 1;
        }
        if request.name() == b"LOCK.RENEW" && *reply == Reply::Nil {
            // The owner has lost at least one lock of the set of locks.
            self.ledger.forgets_set(&places);
        }
    }

    /// Reply to `ROLE`. The entries for replicas have no contents: clients use only their number.
    fn role(&self) -> Reply {
        let followers = if self.primary { self.have(0) as u64 } else { 0 };
        let role = Reply::Word(if self.primary { "master" } else { "slave" });
        let followers = Reply::List((0..followers).map(Reply::Number).collect());
        Reply::List(vec![role, Reply::Number(0), followers])
    }

    /// Answers `WAIT` with the number of replicas that have the writes of the connection; `None` if it is
    /// answered later.
    fn confirm(
        &mut self,
        sim: &Sim,
        (conn, call): (ConnId, CallId),
        request: &Request,
    ) -> Option<Reply> {
        if !self.primary {
            return Some(Reply::error(c"ERR WAIT cannot be used with replica instances"));
        }
        let wanted = request.number(1) as usize;
        let line = self.lines.entry(conn).or_default();
        if line.renews_again && !sim.has(Safeguard::RenewalsConfirm) {
            return Some(Reply::Number(wanted as u64));
        }
        let waiting = Unconfirmed { conn, call, offset: line.offset, wanted };
        let have = self.have(waiting.offset);
        if have >= wanted {
            return Some(Reply::Number(have as u64));
        }
        self.lines.entry(conn).or_default().held_up = true;
        self.hold_up(sim, waiting, request.number(2));
        None
    }
}
