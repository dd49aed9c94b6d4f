//! What a table forgets when its server becomes a replica.
//!
//! All waits, sessions, grants in flight and observers are moved aside in one step. No decision
//! uses them after that, and they are freed one entry at a time. Numbering continues, so that an
//! old number never matches anything new.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::agenda::Agenda;
use crate::bound::Bindings;
use crate::flight::Flights;
use crate::outbox::Untold;
use crate::queue::Queues;
use crate::sessions::Sessions;
use crate::sweep::Sweep;
use crate::table::Table;

/// Data discarded at one role change, still to be freed.
#[derive(Debug)]
pub(crate) struct Discarded<P> {
    queues: Queues<P>,
    sessions: Sessions<P>,
    bindings: Bindings,
    agenda: Agenda,
    in_flight: Flights,
    sweeps: VecDeque<Sweep>,
    untold: VecDeque<Untold>,
}

/// A collection that can be freed one entry at a time.
pub(crate) trait Free {
    /// Frees one entry. Returns false if there was none.
    fn free_one(&mut self) -> bool;
}

impl<K: Ord, V> Free for BTreeMap<K, V> {
    fn free_one(&mut self) -> bool {
        self.pop_first().is_some()
    }
}

impl<T: Ord> Free for BTreeSet<T> {
    fn free_one(&mut self) -> bool {
        self.pop_first().is_some()
    }
}

impl<T> Free for VecDeque<T> {
    fn free_one(&mut self) -> bool {
        self.pop_front().is_some()
    }
}

impl<P> Discarded<P> {
    /// Frees one entry. Returns the client if the entry was a blocked one, and `None` if nothing is
    /// left.
    fn free_one(&mut self) -> Option<Option<P>> {
        if let Some(freed) = self.sessions.free_one() {
            return Some(freed);
        }
        let more = self.queues.free_one()
            || self.bindings.free_one()
            || self.agenda.free_one()
            || self.in_flight.free_one()
            || self.sweeps.free_one()
            || self.untold.free_one();
        more.then_some(None)
    }
}

impl<P> Table<P> {
    /// Forgets all waits, sessions, bindings, observers and grants in flight. Returns the blocked
    /// waiters, in order of arrival. Blocked readers follow from [`Self::free_one`].
    ///
    /// Numbering, the token source, the limits and the counters stay.
    pub fn forget(&mut self) -> Vec<P> {
        let blocked = self.dismiss_all();
        self.turns.begin_anew();
        self.watches.begin_anew();
        self.discarded.push_back(Discarded {
            queues: self.queues.begin_anew(),
            sessions: self.sessions.begin_anew(),
            bindings: self.bindings.begin_anew(),
            agenda: std::mem::take(&mut self.agenda),
            in_flight: std::mem::take(&mut self.in_flight),
            sweeps: std::mem::take(&mut self.sweeps),
            untold: std::mem::take(&mut self.untold),
        });
        blocked
    }

    /// Frees one discarded entry. Returns the client if the entry was a blocked reader, and `None`
    /// if nothing is left.
    pub fn free_one(&mut self) -> Option<Option<P>> {
        let discarded = self.discarded.front_mut()?;
        let freed = discarded.free_one();
        if freed.is_none() {
            self.discarded.pop_front();
            return Some(None);
        }
        freed
    }
}
