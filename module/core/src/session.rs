//! Sessions: any number of waits of one client, with all outcomes sent over one connection.
//!
//! ```text
//! LOCK.WAIT … SESSION id ─► queue ──ends──► outbox  7 granted …   8 timeout …   9 granted …
//!                                             acknowledged ▲      sent ▲
//! SESSION.NEXT id 6 … ◄── 7 8 9 … ◄── all outcomes there are when the reply is written
//! ```
//!
//! A wait through a session is a waiter like any other, but has no connection of its own. Its
//! outcome goes to the session's outbox, and from there to the reader (`reading.rs`).

use std::collections::BTreeSet;

use crate::account::{Account, Charge, Kept};
use crate::ids::WaiterId;
use crate::outbox::Outbox;
use crate::outcome::{Full, count};
use crate::table::Table;
use crate::types::{Millis, MonoMillis, Now};

/// Estimated memory of a session.
const SESSION_BYTES: usize = 600;

/// Identifies a session within this server; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub(crate) u64);

/// Name of a session in commands: 32 hex digits that cannot be guessed.
pub type SessionName = [u8; 32];

/// Where the outcome of a wait goes.
#[derive(Debug, PartialEq, Eq)]
pub enum Via<P> {
    /// To a blocked client, as its reply.
    Client(P),
    /// To a session, which keeps it for its reader.
    Session(SessionId),
    /// It has none of its own: it is a further place of this waiter for a set.
    Place(WaiterId),
}

impl<P> Via<P> {
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self {
            Self::Client(_) | Self::Place(_) => None,
            Self::Session(session) => Some(*session),
        }
    }

    pub(crate) fn client(self) -> Option<P> {
        match self {
            Self::Client(client) => Some(client),
            Self::Session(_) | Self::Place(_) => None,
        }
    }
}

impl<P> From<P> for Via<P> {
    fn from(client: P) -> Self {
        Self::Client(client)
    }
}

/// Bell of a session: publishes a message when there are outcomes to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bell {
    /// The session has no bell.
    Absent,
    /// The client has read everything since the last message.
    Quiet,
    /// A message is due; the session is on the list of bells to ring.
    Due,
    /// The message was published, and the session has not been read since.
    Rung,
}

/// Why a session is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// A limit of sessions is reached.
    Full(Full),
    /// The module is being drained.
    Draining,
}

/// What `SESSION.LIST` shows of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionView<'a, P> {
    /// Its name.
    pub name: &'a SessionName,
    /// Its user.
    pub user: &'a [u8],
    /// The client that is blocked in `SESSION.NEXT`.
    pub reader: Option<&'a P>,
    /// Number of waits.
    pub waits: usize,
    /// Number of outcomes that are kept.
    pub outcomes: usize,
    /// Number of locks and permits that are bound to it.
    pub bound: usize,
    /// When it was opened.
    pub since: MonoMillis,
    /// Whether its reader's connection was closed.
    pub away: bool,
}

#[derive(Debug)]
pub(crate) struct Session<P> {
    pub(crate) name: SessionName,
    /// The account of its user, which counts the session too.
    pub(crate) account: Account,
    pub(crate) _charge: Charge,
    pub(crate) ttl: Millis,
    pub(crate) since: MonoMillis,
    /// Number of the latest `SESSION.NEXT` call.
    pub(crate) reading: u64,
    /// The client of that call, while it is blocked.
    pub(crate) reader: Option<P>,
    /// Whether the reader is on the list of readers to answer.
    pub(crate) ready: bool,
    /// The connection of the latest call, and the last outcome that was sent to it.
    pub(crate) connection: Option<u64>,
    pub(crate) cursor: u64,
    /// When the blocked reader's timeout passes; without a blocked reader, when the session ends.
    pub(crate) due: MonoMillis,
    pub(crate) away: bool,
    pub(crate) waits: BTreeSet<WaiterId>,
    /// The bindings: locks and permits that are released when it ends.
    pub(crate) bound: BTreeSet<(u64, u64)>,
    /// Last waiter already moved in or out of line after the session went away or came back. `None`
    /// when all have been moved.
    pub(crate) settling: Option<Option<WaiterId>>,
    /// Whether it is on the list of sessions with work to do.
    pub(crate) listed: bool,
    pub(crate) outbox: Outbox,
    pub(crate) bell: Bell,
}

impl<P> Table<P> {
    /// Opens a session for a user.
    ///
    /// # Errors
    ///
    /// If a limit of sessions is reached, or the module is being drained.
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
            return Err(NotOpened::Full(Full::Server));
        }
        let account = self.accounts.of(user);
        if account.count(Kept::Sessions) >= self.limits.of_user(self.limits.sessions) {
            return Err(NotOpened::Full(Full::User));
        }
        self.sessions.last_number = self.sessions.last_number.saturating_add(1);
        let id = SessionId(self.sessions.last_number);
        let due = now.mono.plus(ttl);
        let session = Session {
            name,
            outbox: Outbox::of(account.clone()),
            _charge: account.charge(Kept::Sessions, SESSION_BYTES),
            account,
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
            bound: BTreeSet::new(),
            settling: None,
            listed: false,
            bell: Bell::Absent,
        };
        self.sessions.all.insert(id, session);
        self.sessions.names.insert(name, id);
        self.agenda.add_alarm(due, id);
        Ok(id)
    }

    /// Gives the session a bell: when there are outcomes to read, a message is due, and no other
    /// until the session is read. See [`crate::Work::Ring`].
    pub fn add_bell(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.bell = Bell::Quiet;
        }
    }

    /// Takes the next bell to ring. Returns the name of its session and the number of the latest
    /// outcome, or `None` if the session has been read or has ended since.
    pub(crate) fn next_bell(&mut self) -> Option<Option<(SessionName, u64)>> {
        let id = self.sessions.bells.pop_front()?;
        let Some(session) = self.sessions.get_mut(id) else { return Some(None) };
        let unread = session.unread();
        session.bell = if unread.is_some() { Bell::Rung } else { Bell::Quiet };
        Some(unread.map(|last| (session.name, last)))
    }

    /// The session of that name, if it belongs to this user.
    #[must_use]
    pub fn session(&self, name: &[u8], user: &[u8]) -> Option<SessionId> {
        let id = *self.sessions.names.get(name)?;
        let session = self.sessions.get(id)?;
        (*session.account.user() == *user).then_some(id)
    }

    /// Ends a session and marks what is bound to it for release. Returns the blocked reader.
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
        self.bindings.orphan(session.bound);
        if !session.waits.is_empty() || session.outbox.len() > 0 {
            self.sessions.remains.push_back((session.waits, session.outbox));
        }
        reader
    }

    /// Handles one session that is due: answers its reader, or ends it. Returns whether one was
    /// due.
    pub fn session_due(&mut self, now: Now) -> bool {
        let Some(id) = self.agenda.first_alarm(now) else { return false };
        let Some(session) = self.sessions.get(id) else { return false };
        if session.reader.is_some() {
            self.sessions.wake(id);
            self.live_on(id, now);
        } else {
            count(&mut self.counters.sessions_gone);
            drop(self.close_session(id));
        }
        true
    }

    /// Whether a session has waits.
    #[must_use]
    pub fn has_waits(&self, id: SessionId) -> bool {
        self.sessions.get(id).is_some_and(|session| !session.waits.is_empty())
    }

    /// All sessions, the oldest first.
    pub fn sessions(&self) -> impl Iterator<Item = SessionView<'_, P>> {
        self.sessions.all.values().map(Session::view)
    }

    /// One session.
    #[must_use]
    pub fn view_session(&self, id: SessionId) -> Option<SessionView<'_, P>> {
        self.sessions.get(id).map(Session::view)
    }

    /// Restarts the session's time to live.
    pub(crate) fn live_on(&mut self, id: SessionId, now: Now) {
        if let Some(ttl) = self.sessions.get(id).map(|session| session.ttl) {
            self.alarm(id, now.mono.plus(ttl));
        }
    }

    pub(crate) fn alarm(&mut self, id: SessionId, due: MonoMillis) {
        if let Some(session) = self.sessions.get_mut(id) {
            let before = std::mem::replace(&mut session.due, due);
            self.agenda.drop_alarm(before, id);
            self.agenda.add_alarm(due, id);
        }
    }
}

impl<P> Session<P> {
    /// Number of the latest outcome, if it has not been sent to the latest reader.
    pub(crate) fn unread(&self) -> Option<u64> {
        self.outbox.after(self.cursor).next().map(|_| self.outbox.last())
    }

    fn view(&self) -> SessionView<'_, P> {
        SessionView {
            name: &self.name,
            user: self.account.user(),
            reader: self.reader.as_ref(),
            waits: self.waits.len(),
            outcomes: self.outbox.len(),
            bound: self.bound.len(),
            since: self.since,
            away: self.away,
        }
    }
}
