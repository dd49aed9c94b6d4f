//! Sessions: any number of waits of one client, told over one connection.
//!
//! ```text
//! LOCK.WAIT … SESSION id ─► queue ──ends──► outbox  7 granted …   8 timeout …   9 granted …
//!                                             acknowledged ▲   written ▲
//! SESSION.NEXT id 6 … ◄── 7 8 9 … ◄── whatever has come when the reply is written
//! ```
//!
//! A wait through a session is a waiter like any other, but nobody's connection: how it ended goes
//! to the session's outbox, and from there to whoever reads. One call of `SESSION.NEXT` reads at a
//! time; it is numbered, and a later one takes over.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use crate::key::LockKey;
use crate::outbox::{Ending, Granted, Outbox, Outcome, Untold};
use crate::outcome::count;
use crate::planted::Bug;
use crate::queue::WaiterId;
use crate::table::Table;
use crate::types::{Millis, MonoMillis, Now};

/// Names a session within this server; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u64);

/// What clients call a session: 32 hex digits that nobody can guess.
pub type SessionName = [u8; 32];

/// How a waiter is told what became of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Via<P> {
    /// A blocked client is answered.
    Client(P),
    /// A session keeps it for its reader.
    Session(SessionId),
}

impl<P> Via<P> {
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self {
            Self::Client(_) => None,
            Self::Session(session) => Some(*session),
        }
    }

    pub(crate) fn client(self) -> Option<P> {
        match self {
            Self::Client(client) => Some(client),
            Self::Session(_) => None,
        }
    }
}

impl<P> From<P> for Via<P> {
    fn from(client: P) -> Self {
        Self::Client(client)
    }
}

/// Why no session is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// There are as many as there may be.
    Full,
    /// The module is being drained.
    Draining,
}

/// An acknowledgement of an outcome that was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckAhead;

/// Names one call of `SESSION.NEXT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Of which session.
    pub session: SessionId,
    number: u64,
}

/// What operators may see of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionView<'a, P> {
    /// What clients call it.
    pub name: &'a SessionName,
    /// To whom it belongs.
    pub user: &'a [u8],
    /// The client that is blocked in `SESSION.NEXT`.
    pub reader: Option<&'a P>,
    /// How many waits it has.
    pub waits: usize,
    /// How many outcomes are kept for it.
    pub outcomes: usize,
    /// When it was opened.
    pub since: MonoMillis,
    /// Whether its reader's connection was lost.
    pub away: bool,
}

#[derive(Debug)]
pub(crate) struct Session<P> {
    name: SessionName,
    user: Rc<[u8]>,
    ttl: Millis,
    since: MonoMillis,
    /// The number of the latest call that reads.
    reading: u64,
    /// Its client, while it is blocked.
    reader: Option<P>,
    /// Whether the reader has something to hear and is on the list of those.
    ready: bool,
    /// The connection of the latest call, and the last outcome that it was sent.
    connection: Option<u64>,
    cursor: u64,
    /// When the blocked reader's time is over; or, without one, when the session is gone.
    pub(crate) due: MonoMillis,
    pub(crate) away: bool,
    pub(crate) waits: BTreeSet<WaiterId>,
    /// Up to here its waiters stand where they should since it went away or came back; `None` if
    /// all do.
    pub(crate) settling: Option<Option<WaiterId>>,
    /// Whether it is on the list of those with work to do.
    listed: bool,
    pub(crate) outbox: Outbox,
}

/// All sessions.
#[derive(Debug)]
pub(crate) struct Sessions<P> {
    all: BTreeMap<SessionId, Session<P>>,
    names: HashMap<SessionName, SessionId>,
    /// Those that were read last through a connection that is still there.
    connections: BTreeSet<(u64, SessionId)>,
    /// Those whose blocked reader has something to hear.
    ready: VecDeque<SessionId>,
    /// Those that went away or came back, and whose waiters have not all followed; and those with
    /// outcomes to drop.
    pub(crate) unsettled: VecDeque<SessionId>,
    /// What sessions that are gone have left behind.
    pub(crate) remains: VecDeque<(BTreeSet<WaiterId>, Outbox)>,
    /// Grants of those that nobody was told of.
    pub(crate) untold: VecDeque<Untold>,
    last_number: u64,
    pub(crate) waits: usize,
    pub(crate) away: usize,
    /// How many outcomes are kept, with those of sessions that are gone.
    pub(crate) outcomes: usize,
}

impl<P> Default for Sessions<P> {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            names: HashMap::new(),
            connections: BTreeSet::new(),
            ready: VecDeque::new(),
            unsettled: VecDeque::new(),
            remains: VecDeque::new(),
            untold: VecDeque::new(),
            last_number: 0,
            waits: 0,
            away: 0,
            outcomes: 0,
        }
    }
}

impl<P> Sessions<P> {
    pub(crate) fn get(&self, id: SessionId) -> Option<&Session<P>> {
        self.all.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session<P>> {
        self.all.get_mut(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session<P>)> {
        self.all.iter().map(|(id, session)| (*id, session))
    }

    /// Says whether nobody can be given anything through it: it is away, or gone.
    pub(crate) fn is_away(&self, id: SessionId) -> bool {
        self.get(id).is_none_or(|session| session.away) && !Bug::AwayGranted.is_planted()
    }

    /// A waiter belongs to it from now on.
    pub(crate) fn join(&mut self, id: SessionId, waiter: WaiterId) {
        if self.all.get_mut(&id).is_some_and(|session| session.waits.insert(waiter)) {
            self.waits = self.waits.saturating_add(1);
        }
    }

    /// A waiter belongs to it no more.
    pub(crate) fn leave(&mut self, id: SessionId, waiter: WaiterId) {
        if self.all.get_mut(&id).is_some_and(|session| session.waits.remove(&waiter)) {
            self.waits = self.waits.saturating_sub(1);
        }
    }

    /// Keeps an outcome for whoever reads; of a session that is gone nobody does.
    pub(crate) fn post(&mut self, id: SessionId, outcome: Outcome) {
        let Some(session) = self.all.get_mut(&id) else { return };
        if Bug::OutcomeTwice.is_planted() {
            session.outbox.push(outcome.clone());
            self.outcomes = self.outcomes.saturating_add(1);
        }
        session.outbox.push(outcome);
        self.outcomes = self.outcomes.saturating_add(1);
        self.wake(id);
    }

    /// The blocked reader has something to hear.
    fn wake(&mut self, id: SessionId) {
        if let Some(session) = self.all.get_mut(&id)
            && session.reader.is_some()
            && !std::mem::replace(&mut session.ready, true)
        {
            self.ready.push_back(id);
        }
    }

    /// It is read through this connection from now on.
    fn connect(&mut self, id: SessionId, connection: Option<u64>) {
        let Some(session) = self.all.get_mut(&id) else { return };
        let before = std::mem::replace(&mut session.connection, connection);
        if let Some(before) = before {
            self.connections.remove(&(before, id));
        }
        self.connections.extend(connection.map(|connection| (connection, id)));
    }

    /// Drops some outcomes that are acknowledged; if there are more, they are dropped later.
    pub(crate) fn prune(&mut self, id: SessionId, most: usize) {
        if let Some(session) = self.all.get_mut(&id) {
            self.outcomes = self.outcomes.saturating_sub(session.outbox.prune(most));
            if session.outbox.has_acknowledged() {
                self.list(id);
            }
        }
    }

    /// There is work to do for it.
    pub(crate) fn list(&mut self, id: SessionId) {
        if let Some(session) = self.all.get_mut(&id)
            && !std::mem::replace(&mut session.listed, true)
        {
            self.unsettled.push_back(id);
        }
    }

    /// A session with work to do, taken off the list.
    pub(crate) fn next_listed(&mut self) -> Option<SessionId> {
        let id = self.unsettled.pop_front()?;
        if let Some(session) = self.all.get_mut(&id) {
            session.listed = false;
        }
        Some(id)
    }
}

/// How many acknowledged outcomes one call drops; the others go some at a time.
const PRUNED: usize = 1_000;

impl<P> Table<P> {
    /// Opens a session for a user.
    ///
    /// # Errors
    ///
    /// If there are as many as there may be, or the module is being drained.
    pub fn open_session(
        &mut self,
        name: SessionName,
        user: &[u8],
        ttl: Millis,
        now: Now,
    ) -> Result<SessionId, NotOpened> {
        if self.limits.draining {
            return Err(NotOpened::Draining);
        }
        if self.sessions.len() >= self.limits.sessions {
            return Err(NotOpened::Full);
        }
        self.sessions.last_number = self.sessions.last_number.saturating_add(1);
        let id = SessionId(self.sessions.last_number);
        let due = now.mono.plus(ttl);
        let session = Session {
            name,
            user: user.into(),
            ttl,
            since: now.mono,
            reading: 0,
            reader: None,
            ready: false,
            connection: None,
            cursor: 0,
            due,
            away: false,
            waits: BTreeSet::new(),
            settling: None,
            listed: false,
            outbox: Outbox::default(),
        };
        self.sessions.all.insert(id, session);
        self.sessions.names.insert(name, id);
        self.agenda.add_alarm(due, id);
        Ok(id)
    }

    /// The session of that name, if it is this user's.
    #[must_use]
    pub fn session(&self, name: &[u8], user: &[u8]) -> Option<SessionId> {
        let id = *self.sessions.names.get(name)?;
        let session = self.sessions.get(id)?;
        (*session.user == *user || Bug::ForeignSession.is_planted()).then_some(id)
    }

    /// A client reads: what it acknowledges is dropped, and what comes after is for it. A client
    /// that is still blocked in an earlier call is given back. On the same connection a call goes
    /// on where the one before ended; `None` is no connection that it could be the same as.
    ///
    /// # Errors
    ///
    /// If it acknowledges what was never written.
    pub fn begin_reading(
        &mut self,
        id: SessionId,
        connection: Option<u64>,
        ack: u64,
        now: Now,
    ) -> Result<(Option<Reading>, Option<P>), AckAhead> {
        let Some(session) = self.sessions.get_mut(id) else { return Ok((None, None)) };
        if ack > session.outbox.written {
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
    /// behind it.
    pub fn sent(&mut self, reading: Reading, up_to: u64, now: Now) {
        let Some(session) = self.sessions.get_mut(reading.session) else { return };
        if session.reading == reading.number && session.reader.is_none() {
            session.cursor = session.cursor.max(up_to);
            self.live_on(reading.session, now);
        }
    }

    /// A reply was written to its connection, with the outcomes up to this one: from here on only
    /// their leases end the grants in it.
    pub fn heard(&mut self, reading: Reading, up_to: u64) {
        let Some(session) = self.sessions.get_mut(reading.session) else { return };
        let outbox = &mut session.outbox;
        let new = outbox.after(outbox.written).take_while(|(number, _)| *number <= up_to);
        let granted: Vec<_> = new.filter_map(|(_, outcome)| grant_of(outcome)).collect();
        outbox.written = outbox.written.max(up_to.min(outbox.last()));
        for (key, owner, granted) in granted {
            if !Bug::WrittenTakenBack.is_planted() {
                self.delivered(key.borrow(), granted.id, &owner, granted.token);
            }
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
            self.live_on(id, now);
            return Some((reading, client));
        }
        None
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
    /// blocked any more, are away.
    pub fn connection_closed(&mut self, connection: u64, now: Now) {
        let all = (connection, SessionId(0))..=(connection, SessionId(u64::MAX));
        let read: Vec<_> = self.sessions.connections.range(all).map(|(_, id)| *id).collect();
        for id in read {
            let session = self.sessions.get(id).filter(|session| session.reader.is_none());
            if let Some(number) = session.map(|session| session.reading) {
                drop(self.reader_gone(Reading { session: id, number }, now));
            }
        }
    }

    /// Ends a session; gives back the reader that is blocked.
    pub fn close_session(&mut self, id: SessionId) -> Option<P> {
        let mut session = self.sessions.all.remove(&id)?;
        self.sessions.names.remove(&session.name);
        if let Some(connection) = session.connection {
            self.sessions.connections.remove(&(connection, id));
        }
        self.agenda.drop_alarm(session.due, id);
        self.sessions.waits = self.sessions.waits.saturating_sub(session.waits.len());
        if session.away {
            self.sessions.away = self.sessions.away.saturating_sub(1);
        }
        let reader = session.reader.take();
        self.sessions.remains.push_back((session.waits, session.outbox));
        reader
    }

    /// Ends all sessions; gives back the readers that are blocked.
    pub fn close_all_sessions(&mut self) -> Vec<P> {
        let all: Vec<_> = self.sessions.iter().map(|(id, _)| id).collect();
        all.into_iter().filter_map(|id| self.close_session(id)).collect()
    }

    /// A session is due: its reader's time is over, or its own is. Says whether there was one.
    pub fn session_due(&mut self, now: Now) -> bool {
        let Some(id) = self.agenda.first_alarm(now) else { return false };
        let Some(session) = self.sessions.get(id) else { return false };
        if session.reader.is_some() {
            self.sessions.wake(id);
            self.live_on(id, now);
        } else if Bug::SessionOutlives.is_planted() {
            self.live_on(id, now);
        } else {
            count(&mut self.counters.sessions_gone);
            drop(self.close_session(id));
        }
        true
    }

    /// All readers that are blocked are told how things stand.
    pub fn wake_readers(&mut self) {
        let all: Vec<_> = self.sessions.iter().map(|(id, _)| id).collect();
        all.into_iter().for_each(|id| self.sessions.wake(id));
    }

    /// Whether a session has waits.
    #[must_use]
    pub fn has_waits(&self, id: SessionId) -> bool {
        self.sessions.get(id).is_some_and(|session| !session.waits.is_empty())
    }

    /// All sessions, the one that was opened first first.
    pub fn sessions(&self) -> impl Iterator<Item = SessionView<'_, P>> {
        self.sessions.all.values().map(Session::view)
    }

    /// One session.
    #[must_use]
    pub fn view_session(&self, id: SessionId) -> Option<SessionView<'_, P>> {
        self.sessions.get(id).map(Session::view)
    }

    /// The session has its time to live from now on.
    fn live_on(&mut self, id: SessionId, now: Now) {
        if let Some(ttl) = self.sessions.get(id).map(|session| session.ttl) {
            self.alarm(id, now.mono.plus(ttl));
        }
    }

    fn alarm(&mut self, id: SessionId, due: MonoMillis) {
        if let Some(session) = self.sessions.get_mut(id) {
            let before = std::mem::replace(&mut session.due, due);
            self.agenda.drop_alarm(before, id);
            self.agenda.add_alarm(due, id);
        }
    }
}

/// A later call reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaterReader;

fn grant_of(outcome: &Outcome) -> Option<(LockKey, Rc<[u8]>, Granted)> {
    match outcome.ending {
        Ending::Granted(granted) => Some((outcome.key.clone(), Rc::clone(&outcome.owner), granted)),
        Ending::Open
        | Ending::TimedOut
        | Ending::Cancelled
        | Ending::Replaced
        | Ending::Dismissed(_) => None,
    }
}

impl<P> Session<P> {
    fn view(&self) -> SessionView<'_, P> {
        SessionView {
            name: &self.name,
            user: &self.user,
            reader: self.reader.as_ref(),
            waits: self.waits.len(),
            outcomes: self.outbox.len(),
            since: self.since,
            away: self.away,
        }
    }
}
