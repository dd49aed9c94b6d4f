//! `SESSION.NEXT`: each session has one reader at a time. The table numbers the calls, and a later
//! call replaces an earlier one. A call that finds no outcome is blocked:
//!
//! ```text
//! SESSION.NEXT id ack ──begin_reading──► blocked ──next_reader──► reply ──► sent
//!                                           └─ connection closed ──► reader_gone
//! ```

use std::rc::Rc;

use crate::grant::RUN_MAX;
use crate::ids::SessionId;
use crate::key::LockKey;
use crate::outbox::{Ending, Granted, Outcome};
use crate::outcome::count;
use crate::table::Table;
use crate::types::{Millis, Now};

/// Identifies one call of `SESSION.NEXT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The session that the call reads.
    pub session: SessionId,
    pub(crate) number: u64,
}

/// Error: the client acknowledged an outcome that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckAhead;

/// Error: a later call has replaced this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaterReader;

/// Largest number of acknowledged outcomes that one call drops. The others are dropped later.
const PRUNED: usize = 100;

/// Largest number of readers that are answered within a command. The timer answers the others.
const READERS: usize = RUN_MAX;

/// Number of sessions marked away at once when their connection closes. The others follow.
const AWAY_AT_ONCE: usize = 16;

impl<P> Table<P> {
    /// Begins a call of `SESSION.NEXT`, which acknowledges the outcomes up to `ack`. Drops some of
    /// these outcomes now and the others later. Returns the call (`None` if the session has ended)
    /// and the client that is still blocked in an earlier call, if any.
    ///
    /// If the earlier call came over the same `connection`, this call continues after the last
    /// outcome that was sent over it. Otherwise, or if `connection` is `None`, it continues after
    /// `ack`.
    ///
    /// # Errors
    ///
    /// If the call acknowledges an outcome that was never sent.
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
        let from = if goes_on { session.cursor } else { 0 };
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
        self.sessions.rearm_bell(id);
        self.sessions.connect(id, connection);
        self.come_back(id);
        self.restart_ttl(id, now);
        Ok((Some(reading), replaced))
    }

    /// Records that a reader is blocked. It is answered at the latest when its timeout passes.
    pub fn block_reader(&mut self, reading: Reading, client: P, timeout: Millis, now: Now) {
        if let Some(session) = self.sessions.get_mut(reading.session) {
            session.reader = Some(client);
        }
        self.alarm(reading.session, now.mono.plus(timeout));
    }

    /// Returns the outcomes to read, oldest first. `None` if the session has ended, [`LaterReader`]
    /// if a later call has replaced this one.
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

    /// Records that a reply with the outcomes up to `up_to` was sent. The next call on this
    /// connection continues after them. From then on, the grants among them cannot be taken back.
    /// Does nothing if a later call has replaced this one, or if this call is still blocked.
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
            self.delivered(key.borrow(), granted.id, &owner, granted.token);
        }
        self.sessions.rearm_bell(reading.session);
        self.sessions.ring_for_the_rest(reading.session);
        self.was_answered(reading.session, now);
    }

    /// Restarts the time to live when a reader is answered. The client counts on the session, and
    /// on what is bound to it, for the ttl from when it sent the answered call; so the ttl must not
    /// end earlier than one that starts now.
    fn was_answered(&mut self, id: SessionId, now: Now) {
        self.restart_ttl(id, now);
    }

    /// Takes the next blocked reader to answer: it has an outcome to read, or its timeout has
    /// passed, or [`Self::wake_readers`] was called. The reply contains outcomes that exist when the
    /// reply is written: see [`Self::news`].
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

    /// Takes some of the readers to answer. The others are answered as pieces of work.
    pub fn next_readers(&mut self, now: Now) -> Vec<(Reading, P)> {
        std::iter::from_fn(|| self.next_reader(now)).take(READERS).collect()
    }

    /// Returns whether there may be blocked readers to answer.
    #[must_use]
    pub fn has_readers_to_tell(&self) -> bool {
        !self.sessions.ready.is_empty()
    }

    /// Marks the session away because its reader's connection closed, unless a later call has
    /// replaced this one. Returns the client if it is still blocked.
    pub fn reader_gone(&mut self, reading: Reading, now: Now) -> Option<P> {
        let session = self.sessions.get_mut(reading.session)?;
        if session.reading != reading.number {
            return None;
        }
        let client = session.reader.take();
        self.sessions.connect(reading.session, None);
        self.restart_ttl(reading.session, now);
        self.go_away(reading.session);
        client
    }

    /// Marks the sessions as away that were last read over this closed connection: up to
    /// `AWAY_AT_ONCE` of them now, the others later in small steps.
    pub fn connection_closed(&mut self, connection: u64, now: Now) {
        for _ in 0..AWAY_AT_ONCE {
            if !self.mark_one_away(connection, now) {
                return;
            }
        }
        self.sessions.closed.push_back(connection);
    }

    /// Marks one more session of a closed connection away. Returns false if no closed connection is
    /// left.
    pub(crate) fn mark_next_away(&mut self, now: Now) -> bool {
        let Some(connection) = self.sessions.closed.pop_front() else { return false };
        if self.mark_one_away(connection, now) {
            self.sessions.closed.push_back(connection);
        }
        true
    }

    fn mark_one_away(&mut self, connection: u64, now: Now) -> bool {
        let all = (connection, SessionId(0))..=(connection, SessionId(u64::MAX));
        let read = self.sessions.connections.range(all).next().map(|(_, id)| *id);
        let Some(id) = read else { return false };
        let session = self.sessions.get(id).filter(|session| session.reader.is_none());
        match session.map(|session| session.reading) {
            Some(number) => drop(self.reader_gone(Reading { session: id, number }, now)),
            // The server reports the disconnection of a blocked reader separately.
            None => drop(self.sessions.connections.remove(&(connection, id))),
        }
        true
    }

    /// Wakes all blocked readers, so that each is answered.
    pub fn wake_readers(&mut self) {
        let all: Vec<_> = self.sessions.iter().map(|(id, _)| id).collect();
        all.into_iter().for_each(|id| self.sessions.wake(id));
    }
}

fn grant_of(outcome: &Outcome) -> Option<(LockKey, Rc<[u8]>, Granted)> {
    let Ending::Granted(granted) = outcome.ending else { return None };
    Some((outcome.key.clone(), Rc::clone(&outcome.owner), granted))
}
