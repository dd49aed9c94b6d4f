//! `SESSION.NEXT`: one call reads at a time. It is numbered, and a later one takes over.
//!
//! ```text
//! SESSION.NEXT id 6 ──begin_reading──► blocked ──next_reader──► reply ──► sent
//!                                         └─ connection lost: reader_gone ─┘
//! ```

use std::rc::Rc;

use crate::grant::RUN_MAX;
use crate::key::LockKey;
use crate::outbox::{Ending, Granted, Outcome};
use crate::outcome::count;
use crate::planted::Bug;
use crate::session::SessionId;
use crate::table::Table;
use crate::types::{Millis, Now};

/// Names one call of `SESSION.NEXT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Of which session.
    pub session: SessionId,
    pub(crate) number: u64,
}

/// An acknowledgement of an outcome that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckAhead;

/// A later call reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaterReader;

/// How many acknowledged outcomes one call drops; the others are dropped some at a time.
const PRUNED: usize = 100;

/// How many readers a command answers; the others follow.
const READERS: usize = RUN_MAX;

/// How many sessions are away at once when their connection is closed; the others follow.
const AWAY_AT_ONCE: usize = 16;

impl<P> Table<P> {
    /// A client reads: what it acknowledges is dropped, and what comes after is for it. A client
    /// that is still blocked in an earlier call is given back. On the same connection a call goes
    /// on where the one before ended; `None` is no connection that it could be the same as.
    ///
    /// # Errors
    ///
    /// If it acknowledges what was never sent.
    pub fn begin_reading(
        &mut self,
        id: SessionId,
        connection: Option<u64>,
        ack: u64,
        now: Now,
    ) -> Result<(Option<Reading>, Option<P>), AckAhead> {
        let Some(session) = self.sessions.get_mut(id) else { return Ok((None, None)) };
        if ack > session.outbox.sent {
            return Err(AckAhead);
        }
        let goes_on = connection.is_some() && session.connection == connection;
        let from = if goes_on || Bug::LostAtTakeover.is_planted() { session.cursor } else { 0 };
        session.cursor = ack.max(from);
        session.outbox.acknowledge(ack);
        session.reading = session.reading.saturating_add(1);
        let reading = Reading { session: id, number: session.reading };
        let replaced = session.reader.take();
        session.ready = false;
        if replaced.is_some() {
            count(&mut self.counters.readers_replaced);
        }
        self.sessions.prune(id, PRUNED);
        self.sessions.connect(id, connection);
        self.come_back(id);
        self.live_on(id, now);
        Ok((Some(reading), replaced))
    }

    /// Blocks a reader, until there is something to read or its time is over.
    pub fn block_reader(&mut self, reading: Reading, client: P, timeout: Millis, now: Now) {
        if let Some(session) = self.sessions.get_mut(reading.session) {
            session.reader = Some(client);
        }
        self.alarm(reading.session, now.mono.plus(timeout));
    }

    /// What there is to read, oldest first; `None` if the session is gone. Nothing if a later call
    /// reads now.
    #[must_use]
    pub fn news(
        &self,
        reading: Reading,
    ) -> Option<Result<impl Iterator<Item = (u64, &Outcome)>, LaterReader>> {
        let session = self.sessions.get(reading.session)?;
        if session.reading != reading.number {
            return Some(Err(LaterReader));
        }
        Some(Ok(session.outbox.after(session.cursor)))
    }

    /// A reply is sent, with the outcomes up to this one: on this connection the next call goes on
    /// behind it, and from here on only their leases end the grants in it.
    pub fn sent(&mut self, reading: Reading, up_to: u64, now: Now) {
        let Some(session) = self.sessions.get_mut(reading.session) else { return };
        if session.reading != reading.number || session.reader.is_some() {
            return;
        }
        session.cursor = session.cursor.max(up_to);
        let outbox = &mut session.outbox;
        let new = outbox.after(outbox.sent).take_while(|(number, _)| *number <= up_to);
        let granted: Vec<_> = new.filter_map(|(_, outcome)| grant_of(outcome)).collect();
        outbox.sent = outbox.sent.max(up_to.min(outbox.last()));
        for (key, owner, granted) in granted {
            if !Bug::WrittenTakenBack.is_planted() {
                self.delivered(key.borrow(), granted.id, &owner, granted.token);
            }
        }
        self.was_answered(reading.session, now);
    }

    /// Its client relies on the session, and on what is bound to it, from when it sent what is
    /// answered now: so the session must last from now on.
    fn was_answered(&mut self, id: SessionId, now: Now) {
        if !Bug::TtlTooEarly.is_planted() {
            self.live_on(id, now);
        }
    }

    /// A blocked reader that has something to hear, or whose time is over. It reads when its reply
    /// is written: whatever has come until then.
    pub fn next_reader(&mut self, now: Now) -> Option<(Reading, P)> {
        while let Some(id) = self.sessions.ready.pop_front() {
            let Some(session) = self.sessions.get_mut(id) else { continue };
            if !std::mem::take(&mut session.ready) {
                continue;
            }
            let Some(client) = session.reader.take() else { continue };
            let reading = Reading { session: id, number: session.reading };
            self.was_answered(id, now);
            return Some((reading, client));
        }
        None
    }

    /// Some of those; if there are more, they follow as pieces of work.
    pub fn next_readers(&mut self, now: Now) -> Vec<(Reading, P)> {
        std::iter::from_fn(|| self.next_reader(now)).take(READERS).collect()
    }

    /// Whether there are blocked readers to be answered.
    #[must_use]
    pub fn has_readers_to_tell(&self) -> bool {
        !self.sessions.ready.is_empty()
    }

    /// The connection of a reader is lost: the session is away, unless somebody else reads. A
    /// client that is still blocked is given back.
    pub fn reader_gone(&mut self, reading: Reading, now: Now) -> Option<P> {
        let session = self.sessions.get_mut(reading.session)?;
        if session.reading != reading.number {
            return None;
        }
        let client = session.reader.take();
        self.sessions.connect(reading.session, None);
        self.live_on(reading.session, now);
        self.go_away(reading.session);
        client
    }

    /// A connection is closed: sessions that were read through it last, by a client that is not
    /// blocked any more, are away. If there are many, the others follow some at a time.
    pub fn connection_closed(&mut self, connection: u64, now: Now) {
        for _ in 0..AWAY_AT_ONCE {
            if !self.one_is_away(connection, now) {
                return;
            }
        }
        self.sessions.closed.push_back(connection);
    }

    /// One more session of a closed connection is away. Returns false if there is none.
    pub(crate) fn close_on(&mut self, now: Now) -> bool {
        let Some(connection) = self.sessions.closed.pop_front() else { return false };
        if self.one_is_away(connection, now) {
            self.sessions.closed.push_back(connection);
        }
        true
    }

    fn one_is_away(&mut self, connection: u64, now: Now) -> bool {
        let all = (connection, SessionId(0))..=(connection, SessionId(u64::MAX));
        let read = self.sessions.connections.range(all).next().map(|(_, id)| *id);
        let Some(id) = read else { return false };
        let session = self.sessions.get(id).filter(|session| session.reader.is_none());
        match session.map(|session| session.reading) {
            Some(number) => drop(self.reader_gone(Reading { session: id, number }, now)),
            // A blocked reader is reported by itself.
            None => drop(self.sessions.connections.remove(&(connection, id))),
        }
        true
    }

    /// All readers that are blocked are told how things stand.
    pub fn wake_readers(&mut self) {
        let all: Vec<_> = self.sessions.iter().map(|(id, _)| id).collect();
        all.into_iter().for_each(|id| self.sessions.wake(id));
    }
}

fn grant_of(outcome: &Outcome) -> Option<(LockKey, Rc<[u8]>, Granted)> {
    let Ending::Granted(granted) = outcome.ending else { return None };
    Some((outcome.key.clone(), Rc::clone(&outcome.owner), granted))
}
