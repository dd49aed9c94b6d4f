//! All sessions, and the lists of sessions with work to do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use crate::free::free_one_of;
use crate::ids::{SessionId, SessionName, WaiterId};
use crate::key::LockKey;
use crate::outbox::{Changed, Outbox, Outcome};
use crate::session::{Bell, Session};

#[derive(Debug)]
pub(crate) struct Sessions<P> {
    pub(crate) all: BTreeMap<SessionId, Session<P>>,
    pub(crate) names: BTreeMap<SessionName, SessionId>,
    /// Sessions by the open connection over which they were last read.
    pub(crate) connections: BTreeSet<(u64, SessionId)>,
    /// Closed connections. Some of their sessions may still have to be marked as away.
    pub(crate) closed: VecDeque<u64>,
    /// Sessions whose blocked reader must be answered.
    pub(crate) ready: VecDeque<SessionId>,
    /// Sessions whose bell must be rung. Each session with a due bell is on the list once.
    pub(crate) bells: VecDeque<SessionId>,
    /// Sessions that went away or came back and whose waiters have not all been moved, and sessions
    /// with acknowledged outcomes to drop.
    pub(crate) unsettled: VecDeque<SessionId>,
    /// Waits and outcomes of sessions that have ended, still to be cleaned up.
    pub(crate) remains: VecDeque<(BTreeSet<WaiterId>, Outbox)>,
    pub(crate) last_number: u64,
    pub(crate) waits: usize,
    pub(crate) away: usize,
    /// Number of outcomes kept, including those in `remains`.
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
            bells: VecDeque::new(),
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
    /// Removes all sessions and returns them. Numbering continues.
    pub(crate) fn begin_anew(&mut self) -> Self {
        let anew = Self { last_number: self.last_number, ..Self::default() };
        std::mem::replace(self, anew)
    }

    /// Frees one entry. Returns `None` if nothing is left, otherwise the client, if the entry was a
    /// blocked reader.
    pub(crate) fn free_one(&mut self) -> Option<Option<P>> {
        if let Some((waits, outbox)) = self.remains.front_mut() {
            if !free_one_of(&mut [waits, outbox]) {
                self.remains.pop_front();
            }
            return Some(None);
        }
        let Some(mut first) = self.all.first_entry() else {
            let Self { names, connections, closed, ready, bells, unsettled, .. } = self;
            let more = free_one_of(&mut [names, connections, closed, ready, bells, unsettled]);
            return more.then_some(None);
        };
        let Session { reader, waits, bound, outbox, .. } = first.get_mut();
        if let Some(reader) = reader.take() {
            return Some(Some(reader));
        }
        if !free_one_of(&mut [waits, bound, outbox]) {
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

    /// Returns whether the session has ended. Its waits may not have been cleaned up yet.
    pub(crate) fn is_gone(&self, id: SessionId) -> bool {
        self.get(id).is_none()
    }

    /// Returns whether nothing may be granted through the session: it is away, or has ended.
    pub(crate) fn is_away(&self, id: SessionId) -> bool {
        let away = self.get(id).is_some_and(|session| session.away);
        away || self.is_gone(id)
    }

    pub(crate) fn join(&mut self, id: SessionId, waiter: WaiterId) {
        if self.all.get_mut(&id).is_some_and(|session| session.waits.insert(waiter)) {
            self.waits = self.waits.saturating_add(1);
        }
    }

    pub(crate) fn leave(&mut self, id: SessionId, waiter: WaiterId) {
        if self.all.get_mut(&id).is_some_and(|session| session.waits.remove(&waiter)) {
            self.waits = self.waits.saturating_sub(1);
        }
    }

    /// Adds an outcome for the session's reader. If the session has ended, drops the outcome.
    pub(crate) fn post(&mut self, id: SessionId, outcome: Outcome) {
        let Some(session) = self.all.get_mut(&id) else { return };
        session.outbox.push(outcome);
        self.outcomes = self.outcomes.saturating_add(1);
        self.ring(id);
        self.wake(id);
    }

    /// Adds a change of an observed lock.
    pub(crate) fn post_change(&mut self, id: SessionId, key: LockKey, changed: Changed) {
        let Some(session) = self.all.get_mut(&id) else { return };
        let before = session.outbox.len();
        session.outbox.push_change(key, Rc::default(), changed);
        let more = session.outbox.len().saturating_sub(before);
        self.outcomes = self.outcomes.saturating_add(more);
        self.ring(id);
        self.wake(id);
    }

    /// Drops the change that is kept for an observer, if there is one.
    pub(crate) fn forget_change(&mut self, id: SessionId, observer: WaiterId) {
        if self.all.get_mut(&id).is_some_and(|session| session.outbox.forget_change(observer)) {
            self.outcomes = self.outcomes.saturating_sub(1);
        }
    }

    /// Puts the session on the list of readers to answer, if its reader is blocked.
    pub(crate) fn wake(&mut self, id: SessionId) {
        if let Some(session) = self.all.get_mut(&id)
            && session.reader.is_some()
            && !std::mem::replace(&mut session.ready, true)
        {
            self.ready.push_back(id);
        }
    }

    /// Puts the session on the list of bells to ring, if it has a bell that is quiet.
    fn ring(&mut self, id: SessionId) {
        if let Some(session) = self.all.get_mut(&id)
            && session.bell == Bell::Quiet
        {
            session.bell = Bell::Due;
            self.bells.push_back(id);
        }
    }

    /// Records that the session is read, so that its bell may ring again.
    pub(crate) fn rearm_bell(&mut self, id: SessionId) {
        if let Some(session) = self.all.get_mut(&id)
            && session.bell == Bell::Rung
        {
            session.bell = Bell::Quiet;
        }
    }

    /// Makes the bell due if the reply to a call has left outcomes.
    pub(crate) fn ring_for_the_rest(&mut self, id: SessionId) {
        if self.all.get(&id).is_some_and(|session| session.unread().is_some()) {
            self.ring(id);
        }
    }

    /// Records the connection over which the session is read.
    pub(crate) fn connect(&mut self, id: SessionId, connection: Option<u64>) {
        let Some(session) = self.all.get_mut(&id) else { return };
        let before = std::mem::replace(&mut session.connection, connection);
        if let Some(before) = before {
            self.connections.remove(&(before, id));
        }
        self.connections.extend(connection.map(|connection| (connection, id)));
    }

    /// Drops up to `most` acknowledged outcomes. The rest is dropped later.
    pub(crate) fn prune(&mut self, id: SessionId, most: usize) {
        if let Some(session) = self.all.get_mut(&id) {
            self.outcomes = self.outcomes.saturating_sub(session.outbox.prune(most));
            if session.outbox.has_acknowledged() {
                self.list(id);
            }
        }
    }

    /// Puts the session on the list of sessions with work to do.
    pub(crate) fn list(&mut self, id: SessionId) {
        if let Some(session) = self.all.get_mut(&id)
            && !std::mem::replace(&mut session.listed, true)
        {
            self.unsettled.push_back(id);
        }
    }

    /// Takes the next session off the list of sessions with work to do.
    pub(crate) fn next_listed(&mut self) -> Option<SessionId> {
        let id = self.unsettled.pop_front()?;
        if let Some(session) = self.all.get_mut(&id) {
            session.listed = false;
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Ending;
    use crate::outcome::Limits;
    use crate::table::Table;
    use crate::types::{Millis, MonoMillis, Now};

    const NOW: Now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };

    fn open(table: &mut Table<u32>, name: u8) -> SessionId {
        table.open_session([name; 32], b"user", Millis(9), NOW).expect("there is room")
    }

    fn timed_out() -> Outcome {
        let key = LockKey { db: 0, name: b"k".as_slice().into(), kind: crate::key::Kind::Lock };
        Outcome { key, owner: b"ann".as_slice().into(), ending: Ending::TimedOut }
    }

    #[test]
    fn a_session_is_on_the_list_once() {
        let mut table = Table::new(Limits::UNLIMITED);
        let id = open(&mut table, 1);
        let sessions = &mut table.sessions;
        sessions.list(id);
        sessions.list(id);
        assert_eq!((sessions.next_listed(), sessions.next_listed()), (Some(id), None));
        sessions.list(id);
        assert_eq!(sessions.next_listed(), Some(id));
    }

    #[test]
    fn numbers_of_sessions_are_never_used_twice() {
        let mut table = Table::<u32>::new(Limits::UNLIMITED);
        let first = open(&mut table, 1);
        drop(table.sessions.begin_anew());
        assert!(open(&mut table, 1) > first);
    }

    #[test]
    fn everything_of_a_session_is_freed_in_small_steps_and_its_reader_returned() {
        let mut table = Table::new(Limits::UNLIMITED);
        let ids = [1, 2].map(|name| open(&mut table, name));
        for id in ids {
            table.sessions.post(id, timed_out());
            table.sessions.post(id, timed_out());
            table.sessions.join(id, WaiterId(7));
        }
        table.sessions.get_mut(ids[0]).expect("it is open").reader = Some(70);
        // Two outcomes and a wait of this session remain.
        assert_eq!(table.close_session(ids[1]), None);
        let mut freed = table.sessions.begin_anew();
        let mut steps = Vec::new();
        while let Some(step) = freed.free_one() {
            let left = freed.remains.iter().map(|(waits, outbox)| waits.len() + outbox.len());
            let left = left.sum::<usize>() + freed.get(ids[0]).map_or(0, |it| it.outbox.len());
            steps.push((left, step));
        }
        let left: Vec<_> = steps.iter().map(|(left, _)| *left).collect();
        assert!(left.windows(2).all(|pair| pair[0] <= pair[1] + 1), "{left:?}");
        assert_eq!((left.first(), left.last()), (Some(&4), Some(&0)), "{left:?}");
        let readers: Vec<_> = steps.iter().filter_map(|(_, reader)| *reader).collect();
        assert_eq!((readers, freed.len()), (vec![70], 0));
    }
}
