//! All sessions, and the lists of those of which something is to be done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use crate::forget::Free as _;
use crate::key::LockKey;
use crate::outbox::{Changed, Outbox, Outcome};
use crate::planted::Bug;
use crate::queue::WaiterId;
use crate::session::{Session, SessionId, SessionName};

/// All sessions.
#[derive(Debug)]
pub(crate) struct Sessions<P> {
    pub(crate) all: BTreeMap<SessionId, Session<P>>,
    pub(crate) names: BTreeMap<SessionName, SessionId>,
    /// Those that were read last through a connection that is still there.
    pub(crate) connections: BTreeSet<(u64, SessionId)>,
    /// Closed connections whose sessions are not all away yet.
    pub(crate) closed: VecDeque<u64>,
    /// Those whose blocked reader has something to hear.
    pub(crate) ready: VecDeque<SessionId>,
    /// Those that went away or came back, and whose waiters have not all followed; and those with
    /// outcomes to drop.
    pub(crate) unsettled: VecDeque<SessionId>,
    /// What sessions that are gone have left behind.
    pub(crate) remains: VecDeque<(BTreeSet<WaiterId>, Outbox)>,
    pub(crate) last_number: u64,
    pub(crate) waits: usize,
    pub(crate) away: usize,
    /// How many outcomes are kept, with those of sessions that are gone.
    pub(crate) outcomes: usize,
}

impl<P> Default for Sessions<P> {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            names: BTreeMap::new(),
            connections: BTreeSet::new(),
            closed: VecDeque::new(),
            ready: VecDeque::new(),
            unsettled: VecDeque::new(),
            remains: VecDeque::new(),
            last_number: 0,
            waits: 0,
            away: 0,
            outcomes: 0,
        }
    }
}

impl<P> Sessions<P> {
    /// Begins anew without sessions; returns what there was. Numbers continue.
    pub(crate) fn begin_anew(&mut self) -> Self {
        let anew = Self { last_number: self.last_number, ..Self::default() };
        std::mem::replace(self, anew)
    }

    /// Frees an entry; returns the client if that was a blocked reader. `None` if nothing is left.
    pub(crate) fn free_one(&mut self) -> Option<Option<P>> {
        if let Some((waits, outbox)) = self.remains.front_mut() {
            if !waits.free_one() && !outbox.free_one() {
                self.remains.pop_front();
            }
            return Some(None);
        }
        let Some(mut first) = self.all.first_entry() else {
            let more = self.names.free_one()
                || self.connections.free_one()
                || self.closed.free_one()
                || self.ready.free_one()
                || self.unsettled.free_one();
            return more.then_some(None);
        };
        let session = first.get_mut();
        if let Some(reader) = session.reader.take() {
            return Some(Some(reader));
        }
        let more =
            session.waits.free_one() || session.bound.free_one() || session.outbox.free_one();
        if !more {
            first.remove();
        }
        Some(None)
    }

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

    /// Says whether it is gone, though what it has left may be there yet.
    pub(crate) fn is_gone(&self, id: SessionId) -> bool {
        self.get(id).is_none()
    }

    /// Says whether nobody can be given anything through it: it is away, or gone.
    pub(crate) fn is_away(&self, id: SessionId) -> bool {
        let away = self.get(id).is_some_and(|session| session.away);
        (away || self.is_gone(id)) && !Bug::AwayGranted.is_planted()
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

    /// Keeps a change for an observer.
    pub(crate) fn post_change(&mut self, id: SessionId, key: LockKey, changed: Changed) {
        let Some(session) = self.all.get_mut(&id) else { return };
        let before = session.outbox.len();
        session.outbox.push_change(key, Rc::default(), changed);
        let more = session.outbox.len().saturating_sub(before);
        self.outcomes = self.outcomes.saturating_add(more);
        self.wake(id);
    }

    /// Drops what is kept for an observer.
    pub(crate) fn forget_change(&mut self, id: SessionId, observer: WaiterId) {
        if self.all.get_mut(&id).is_some_and(|session| session.outbox.forget_change(observer)) {
            self.outcomes = self.outcomes.saturating_sub(1);
        }
    }

    /// The blocked reader has something to hear.
    pub(crate) fn wake(&mut self, id: SessionId) {
        if let Some(session) = self.all.get_mut(&id)
            && session.reader.is_some()
            && !std::mem::replace(&mut session.ready, true)
        {
            self.ready.push_back(id);
        }
    }

    /// It is read through this connection from now on.
    pub(crate) fn connect(&mut self, id: SessionId, connection: Option<u64>) {
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
