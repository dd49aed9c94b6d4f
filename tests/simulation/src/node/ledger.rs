//! Records of a server's waiters and sessions, separate from the module's: order of arrival, unsent outcomes,
//! and locks that are bound to a session.

use crate::judge::Rule;
use crate::redis::Reply;
use crate::sim::Sim;
use crate::wire::{ConnId, Key, Owner, Place, key_of};
use kvlock_core::{Now, SessionName};
use std::collections::{BTreeMap, BTreeSet};

/// Longest time, in milliseconds, by which a session may outlive its ttl: timers fire late, and the server
/// pauses.
const LATE: u64 = 6_000;

/// Parses an outcome from a session's reply: its number in the session, the place, and a grant's token.
fn outcome(entry: &Reply) -> Option<(u64, Place, Option<u64>)> {
    let Reply::List(entry) = entry else { return None };
    let [Reply::Number(seq), _, Reply::Bytes(key), Reply::Bytes(owner), ending @ ..] = &entry[..]
    else {
        return None;
    };
    let token = match ending {
        [Reply::Word("granted"), Reply::Number(token), ..] => Some(*token),
        _ => None,
    };
    Some((*seq, (key_of(key)?, Owner::read(owner)?), token))
}

#[derive(Debug, Default)]
struct Session {
    ttl: u64,
    /// Time from which its ttl counts, on the server's monotonic clock.
    alive: u64,
    /// The connection that read it last; `None` if the server has closed that connection.
    conn: Option<ConnId>,
    blocked: bool,
    away: bool,
    closed: bool,
    /// Number of the last outcome that the client has acknowledged.
    acknowledged: u64,
    /// Number of the last outcome that was acknowledged, or sent over `conn`.
    from: u64,
    told: BTreeMap<u64, Reply>,
    owed: Vec<Place>,
}

impl Session {
    fn is_over(&self, now: Now) -> bool {
        self.closed || (!self.blocked && now.mono.0 >= self.alive + self.ttl)
    }
}

/// The way in which a waiter receives its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// By the reply to its blocked command.
    Reply,
    /// Through its session.
    Session(SessionName),
    /// Through its place at the first lock. A wait for several locks has a place in each queue. Contains the
    /// session of the wait; `None` if the client is blocked.
    Place(Option<SessionName>),
}

impl Via {
    pub(super) fn of(session: Option<SessionName>) -> Self {
        session.map_or(Self::Reply, Self::Session)
    }

    fn session(self) -> Option<SessionName> {
        match self {
            Self::Reply => None,
            Self::Session(session) => Some(session),
            Self::Place(session) => session,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct InLine {
    /// Position in the order of arrival.
    number: u64,
    via: Via,
    shared: bool,
    of_set: bool,
}

/// The binding of a grant to a session.
#[derive(Clone, Copy, Debug)]
struct Bond {
    session: SessionName,
    token: u64,
    /// Number of checks in a row that found the lock held after its session had ended, while the server could
    /// write.
    late: u32,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    sessions: BTreeMap<SessionName, Session>,
    in_line: BTreeMap<Place, InLine>,
    last: u64,
    /// For each owner that has waited for several locks at once: these locks.
    sets: BTreeMap<Owner, BTreeSet<Key>>,
    bonds: BTreeMap<Place, Bond>,
    /// Grants that are or were bound to a session.
    bound: BTreeSet<(Owner, u64)>,
    /// Grants whose outcomes were written to a connection.
    heard: BTreeSet<(Owner, u64)>,
}

impl Ledger {
    pub(super) fn opened(&mut self, name: SessionName, ttl: u64, now: Now) {
        let session = Session { ttl, alive: now.mono.0, ..Session::default() };
        self.sessions.insert(name, session);
    }

    pub(super) fn closed(&mut self, name: &SessionName) {
        if let Some(session) = self.sessions.get_mut(name) {
            session.closed = true;
        }
    }

    /// Checks that a session that is used still exists.
    pub(super) fn uses(&self, sim: &Sim, name: &SessionName, now: Now) {
        let session = self.sessions.get(name);
        let over = session.is_none_or(|session| {
            session.closed || now.mono.0 > session.alive + session.ttl + LATE && !session.blocked
        });
        if over {
            let text = format!("a session is used that is over: {session:?}");
            sim.judge.borrow_mut().fail(Rule::Sessions, text);
        }
    }

    /// Records a waiter: in its old place if it was queued, otherwise at the end.
    pub(super) fn queued(&mut self, place: Place, via: Via, (shared, of_set): (bool, bool)) {
        if of_set {
            self.sets.entry(place.1).or_default().insert(place.0);
        }
        if let Some(line) = self.in_line.get_mut(&place) {
            let before = std::mem::replace(&mut line.via, via);
            if let Via::Session(name) = before
                && before != via
                && let Some(session) = self.sessions.get_mut(&name)
            {
                // The old session must receive the outcome `replaced`.
                session.owed.push(place);
            }
            return;
        }
        self.last += 1;
        self.in_line.insert(place, InLine { number: self.last, via, shared, of_set });
    }

    /// Describes a set of locks that breaks a rule. Its owner holds only some of its locks, waits for only
    /// some of them, or holds a lock while it waits.
    pub(super) fn wrong_set(&self, holds: impl Fn(Place) -> bool) -> Option<String> {
        let mut all = self.sets.iter();
        all.find_map(|(owner, keys)| {
            let places = || keys.iter().map(|key| (*key, *owner));
            let held: Vec<_> = places().filter(|place| holds(*place)).collect();
            let waits: Vec<_> = places().filter(|place| self.in_line.contains_key(place)).collect();
            let in_part = [held.len(), waits.len()].iter().any(|n| ![0, keys.len()].contains(n));
            let both = !held.is_empty() && !waits.is_empty();
            (in_part || both).then(|| format!("{owner:?} holds {held:?} and waits for {waits:?}"))
        })
    }

    /// Removes the set of locks of each owner in these places: the owner has lost it.
    pub(super) fn forgets_set(&mut self, places: &[Place]) {
        places.iter().for_each(|(_, owner)| drop(self.sets.remove(owner)));
    }

    pub(super) fn waiting(&self) -> usize {
        self.in_line.len()
    }

    /// Removes the waiters that are no longer queued at the server.
    pub(super) fn left(&mut self, stays: impl Fn(Place) -> bool) {
        let gone: Vec<Place> =
            self.in_line.keys().copied().filter(|place| !stays(*place)).collect();
        gone.into_iter().for_each(|place| self.leaves(place));
    }

    /// Removes a waiter from its queue. If it waited through a session, the server must still send the
    /// outcome to that session.
    pub(super) fn leaves(&mut self, place: Place) {
        let Some(InLine { via: Via::Session(session), .. }) = self.in_line.remove(&place) else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(&session) {
            session.owed.push(place);
        }
    }

    /// Finds an earlier waiter that was skipped without a reason. One reason is that its session has lost its
    /// connection or has ended. The other reason is that both waiters share and one of them waits for several
    /// locks.
    pub(super) fn skipped_waiter(
        &self,
        (place, shared): (Place, bool),
        stays: impl Fn(Place) -> bool,
        now: Now,
    ) -> Option<Place> {
        let line = self.in_line.get(&place);
        let number = line.map_or(u64::MAX, |line| line.number);
        let of_set = line.is_some_and(|line| line.of_set);
        let is_passed_over = |line: &InLine| {
            let session = line.via.session().and_then(|name| self.sessions.get(&name));
            session.is_some_and(|session| session.away || session.is_over(now))
                || shared && line.shared && (of_set || line.of_set)
        };
        let mut lines = self.in_line.iter();
        let before = lines.find(|(other, line)| {
            other.0 == place.0 && line.number < number && !is_passed_over(line) && stays(**other)
        });
        before.map(|(place, _)| *place)
    }

    /// Returns whether the waiter's session has lost its connection, or is unknown.
    pub(super) fn is_away(&self, place: Place) -> bool {
        let line = self.in_line.get(&place);
        let session = line.and_then(|line| line.via.session());
        session.is_some_and(|name| self.sessions.get(&name).is_none_or(|it| it.away))
    }

    pub(super) fn reads(&mut self, name: &SessionName, conn: ConnId, ack: u64, now: Now) {
        let Some(session) = self.sessions.get_mut(name) else { return };
        let goes_on = session.conn.replace(conn) == Some(conn);
        // A late message over an old connection may acknowledge less than newer messages.
        session.acknowledged = session.acknowledged.max(ack);
        session.from = session.acknowledged.max(if goes_on { session.from } else { 0 });
        session.away = false;
        session.blocked = true;
        session.alive = now.mono.0;
    }

    /// Checks the reply to a reader. It must contain the next outcomes in order. Each is either owed, or was
    /// sent before with the same contents. The reply may be empty only if no outcome is owed.
    pub(super) fn tells(&mut self, sim: &Sim, name: &SessionName, told: &[Reply], now: Now) {
        let Some(session) = self.sessions.get_mut(name) else { return };
        let mut wrong = None;
        for told in told {
            session.from += 1;
            let Some((seq, place, _)) = outcome(told) else {
                wrong = Some(format!("{told:?} is told"));
                continue;
            };
            if seq != session.from {
                wrong = Some(format!("{told:?} is told instead of {}", session.from));
            }
            match session.told.get(&seq) {
                Some(before) if before == told => continue,
                Some(before) => wrong = Some(format!("{told:?} was {before:?} before")),
                None => match session.owed.iter().position(|owed| *owed == place) {
                    Some(at) => {
                        session.owed.swap_remove(at);
                    }
                    None => wrong = Some(format!("{told:?} is told, and nobody waited for it")),
                },
            }
            sim.judge.borrow_mut().counts.outcomes += 1;
            session.told.insert(seq, told.clone());
        }
        if told.is_empty() && !session.owed.is_empty() {
            wrong = Some(format!("nothing is told of {:?}", session.owed));
        }
        session.blocked = false;
        session.alive = now.mono.0;
        if let Some(text) = wrong {
            sim.judge.borrow_mut().fail(Rule::Sessions, text);
        }
    }

    /// Records the grants that were written to a connection, so that the client may rely on them.
    pub(super) fn heard(&mut self, reply: &Reply) {
        let Reply::List(reply) = reply else { return };
        let Some(Reply::List(told)) = reply.get(1) else { return };
        self.heard.extend(
            told.iter()
                .filter_map(outcome)
                .filter_map(|(_, (_, owner), token)| Some((owner, token?))),
        );
    }

    pub(super) fn has_heard(&self, owner: Owner, token: u64) -> bool {
        self.heard.contains(&(owner, token))
    }

    /// Records that a connection is closed.
    pub(super) fn gone(&mut self, conn: ConnId, now: Now) {
        for session in self.sessions.values_mut().filter(|it| it.conn == Some(conn)) {
            session.conn = None;
            session.blocked = false;
            session.away = true;
            session.alive = now.mono.0;
        }
    }

    pub(super) fn bind(&mut self, place: Place, session: SessionName, token: u64) {
        self.bonds.insert(place, Bond { session, token, late: 0 });
        self.bound.insert((place.1, token));
    }

    /// Records that an owner no longer holds a lock. It may acquire it again, not bound and, if others share the
    /// lock, with the same token.
    pub(super) fn unbind(&mut self, place: Place) {
        self.bonds.remove(&place);
    }

    /// Records that an owner acquired or renewed a lock. If the lock's session has ended, the lock is no
    /// longer bound to it.
    pub(super) fn relied_on(&mut self, place: Place, now: Now) {
        let over = |it: &Bond| self.sessions.get(&it.session).is_none_or(|it| it.is_over(now));
        if self.bonds.get(&place).is_some_and(over) {
            self.bonds.remove(&place);
        }
    }

    pub(super) fn was_bound(&self, owner: Owner, token: u64) -> bool {
        self.bound.contains(&(owner, token))
    }

    /// Checks that locks bound to ended sessions are released. Fails if one is still held at the fourth check
    /// in a row during which the server could write.
    pub(super) fn look_at_bonds(
        &mut self,
        sim: &Sim,
        holds: impl Fn(Place, u64) -> bool,
        may_write: bool,
        now: Now,
    ) {
        self.bonds.retain(|place, bond| holds(*place, bond.token));
        for (place, bond) in &mut self.bonds {
            let over = self.sessions.get(&bond.session).is_none_or(|it| it.is_over(now));
            bond.late = if over && may_write { bond.late + 1 } else { 0 };
            if bond.late > 3 {
                let text = format!("{place:?} has outlived its session: {bond:?}");
                sim.judge.borrow_mut().fail(Rule::Sessions, text);
            }
        }
    }

    /// Number of outcomes owed to live sessions.
    pub(super) fn owed(&self, now: Now) -> usize {
        let there = self.sessions.values().filter(|session| !session.is_over(now));
        there.map(|session| session.owed.len()).sum()
    }

    /// Ends all sessions. Locks bound to them now depend on their leases.
    pub(super) fn end_all(&mut self) {
        self.sessions.values_mut().for_each(|session| session.closed = true);
        self.bonds.clear();
    }
}
