//! The lifetime of a session: it is opened, kept alive by its reader, and closed.

use std::collections::BTreeSet;

use crate::account::Quota;
use crate::ids::{SessionId, SessionName};
use crate::outbox::Outbox;
use crate::outcome::{Full, count};
use crate::session::{Bell, NotOpened, Session, SessionView};
use crate::table::Table;
use crate::types::{Millis, MonoMillis, Now};

/// Estimated memory of a session, in bytes.
const SESSION_BYTES: usize = 600;

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
        if account.count(Quota::Sessions) >= self.limits.of_user(self.limits.sessions) {
            return Err(NotOpened::Full(Full::User));
        }
        self.sessions.last_number = self.sessions.last_number.saturating_add(1);
        let id = SessionId(self.sessions.last_number);
        let due = now.mono.plus(ttl);
        let session = Session {
            name,
            outbox: Outbox::of(account.clone()),
            _charge: account.charge(Quota::Sessions, SESSION_BYTES),
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

    /// Gives a new session a bell. When an outcome arrives, one message is published; the next one
    /// follows only after a read. See [`crate::Work::Ring`].
    pub fn add_bell(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.bell = Bell::Quiet;
        }
    }

    /// Takes the next bell to ring. Returns `None` if no bell is due, and `Some(None)` if the session
    /// has ended or has no unread outcomes any more. Otherwise returns the name of the session and the
    /// number of its latest outcome.
    pub(crate) fn next_bell(&mut self) -> Option<Option<(SessionName, u64)>> {
        let id = self.sessions.bells.pop_front()?;
        let Some(session) = self.sessions.get_mut(id) else { return Some(None) };
        let unread = session.unread();
        session.bell = if unread.is_some() { Bell::Rung } else { Bell::Quiet };
        Some(unread.map(|last| (session.name, last)))
    }

    /// Returns the session with this name, if it belongs to this user.
    #[must_use]
    pub fn session(&self, name: &[u8], user: &[u8]) -> Option<SessionId> {
        let id = *self.sessions.names.get(name)?;
        let session = self.sessions.get(id)?;
        (*session.account.user() == *user).then_some(id)
    }

    /// Ends a session and marks what is bound to it for release. Returns the reader, if it is blocked.
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

    /// Handles one session that is due: wakes its blocked reader, or ends the session if it has none.
    /// Returns whether a session was due.
    pub fn handle_due_session(&mut self, now: Now) -> bool {
        let Some(id) = self.agenda.first_alarm(now) else { return false };
        let Some(session) = self.sessions.get(id) else { return false };
        if session.reader.is_some() {
            self.sessions.wake(id);
            self.restart_ttl(id, now);
        } else {
            count(&mut self.counters.sessions_gone);
            drop(self.close_session(id));
        }
        true
    }

    /// Returns whether a session has waits.
    #[must_use]
    pub fn has_waits(&self, id: SessionId) -> bool {
        self.sessions.get(id).is_some_and(|session| !session.waits.is_empty())
    }

    /// Returns all sessions, the oldest first.
    pub fn sessions(&self) -> impl Iterator<Item = SessionView<'_, P>> {
        self.sessions.all.values().map(Session::view)
    }

    /// Returns one session.
    #[must_use]
    pub fn view_session(&self, id: SessionId) -> Option<SessionView<'_, P>> {
        self.sessions.get(id).map(Session::view)
    }

    /// Restarts the session's time to live.
    pub(crate) fn restart_ttl(&mut self, id: SessionId, now: Now) {
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
