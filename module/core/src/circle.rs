//! Deadlocks: circles of owners, in which each owner keeps the previous one from a lock. The owner
//! holds this lock, or has an earlier place in its queue as a waiter for a set of locks.
//!
//! ```text
//! ann holds a, bob holds b
//! LOCK.WAIT a bob …   bob waits
//! LOCK.WAIT b ann …   bob holds b, and waits for a, which ann holds: DEADLOCK
//! ```
//!
//! A wait is refused if a search finds that the wait would complete a circle. The search starts at
//! the wanted locks. The search follows the holders of each lock, and the locks that these owners
//! wait for. No records are kept: the holders are in the keys, and the queues have the waits of
//! each owner. The search is limited, so it may miss a large circle: see [`STEPS`] and [`SHARERS`].

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::ids::WaiterId;
use crate::key::{KeyRef, Kind};
use crate::mode::Want;
use crate::outcome::{Link, WaitReply, count};
use crate::results::{HeldBy, Results};
use crate::table::Table;

/// Largest number of waits, locks and holders that a search looks at. If it finds no circle among
/// these, the wait is allowed.
pub const STEPS: usize = 256;

/// Largest number of owners of a shared lock that a search looks at. Also the largest number of
/// waiters ahead of a waiter that it looks at, to find one that wants the lock exclusively.
pub const SHARERS: usize = 32;

/// A link that was found, and the index of the link that led to it.
struct Found {
    link: Link,
    from: Option<usize>,
}

struct Search<'a> {
    /// The owner that wants to wait.
    owner: &'a [u8],
    /// The first lock that this owner wants.
    asked: KeyRef<'a>,
    keys: Results<'a>,
    found: Vec<Found>,
    met: BTreeSet<Rc<[u8]>>,
    left: usize,
}

impl<P> Table<P> {
    /// Refuses a new wait for these locks if the wait would complete a circle.
    pub(crate) fn unless_in_circle<R>(
        &mut self,
        reply: WaitReply<R>,
        wanted: &[(KeyRef<'_>, Want)],
        owner: &[u8],
        keys: Results<'_>,
    ) -> WaitReply<R> {
        if !matches!(reply, WaitReply::Block) {
            return reply;
        }
        match self.circle(wanted, owner, keys) {
            None => reply,
            Some(links) => {
                count(&mut self.counters.deadlocks);
                WaitReply::Deadlock(links)
            }
        }
    }

    /// Returns the circle that a wait of this owner for these locks would complete.
    fn circle(
        &self,
        wanted: &[(KeyRef<'_>, Want)],
        owner: &[u8],
        keys: Results<'_>,
    ) -> Option<Vec<Link>> {
        let (asked, _) = *wanted.first()?;
        // If there is no other queue, no holder waits for another lock.
        let known = usize::from(wanted.len() == 1 && self.queues.find(asked).is_some());
        if self.queues.count() <= known {
            return None;
        }
        let (found, met) = (Vec::new(), BTreeSet::new());
        let mut search = Search { owner, asked, keys, found, met, left: STEPS };
        for (key, want) in wanted {
            if let Some(last) = self.look_behind(&mut search, *key, *want, None) {
                return Some(search.circle_to(last));
            }
        }
        let mut at = 0;
        while let Some(of) = search.found.get(at).map(|found| Rc::clone(&found.link.owner)) {
            for place in self.queues.places_of_owner(&of) {
                search.left = search.left.checked_sub(1)?;
                if let Some((key, want)) = self.wait_at(place, asked.db)
                    && let Some(last) = self.look_behind(&mut search, key, want, Some((at, place)))
                {
                    return Some(search.circle_to(last));
                }
            }
            at = at.saturating_add(1);
        }
        None
    }

    /// Returns the lock for which a place waits, and the request. `None` if the waiter is passed
    /// over, or if the key is in another database or not a lock.
    fn wait_at(&self, place: WaiterId, db: i32) -> Option<(KeyRef<'_>, Want)> {
        let waiter = self.queues.waiter(place).filter(|_| !self.is_passed_over(place))?;
        let key = self.queues.queue(waiter.queue)?.key.borrow();
        (key.db == db && key.kind == Kind::Lock).then_some((key, waiter.want))
    }

    /// Adds the owners that keep a waiter from a lock: none if the waiter holds the lock. With
    /// `from`, the waiter is the owner of that link and has that place. Without `from`, the waiter
    /// is the owner that wants to wait.
    ///
    /// If the owner that wants to wait holds the lock, returns the link to this owner, which
    /// completes the circle.
    fn look_behind(
        &self,
        search: &mut Search<'_>,
        key: KeyRef<'_>,
        want: Want,
        from: Option<(usize, WaiterId)>,
    ) -> Option<Found> {
        search.left = search.left.checked_sub(1)?;
        let (place, from) = (from.map(|(_, place)| place), from.map(|(at, _)| at));
        let most = search.left.min(SHARERS);
        let HeldBy { owners, is_shared } = search.keys.holders(key.name, search.asked.name, most);
        let of = from.and_then(|from| search.found.get(from));
        let of = of.map_or_else(|| Rc::from(search.owner), |of| Rc::clone(&of.link.owner));
        if owners.iter().any(|holder| **holder == *of) {
            // It gets one hold more of what it holds.
            return None;
        }
        let place = place.unwrap_or(*WaiterId::ALL.end());
        let front = self.in_front(search, key, want, place);
        // Sharers do not hold up a request to share, unless an earlier waiter wants the lock alone.
        let in_the_way = owners.into_iter().filter(|_| !is_shared || front.has_one_alone);
        for owner in in_the_way {
            if let Some(last) = search.add(key, owner.into(), true, from) {
                return Some(last);
            }
        }
        for set in front.sets {
            let owner = self.queues.waiter(set).map(|set| Rc::clone(&set.owner));
            if let Some(last) = owner.and_then(|owner| search.add(key, owner, false, from)) {
                return Some(last);
            }
        }
        None
    }

    /// Returns the waits for sets ahead of a place in a queue. Waits for only this lock need not be
    /// followed, because they depend on the same holders and sets.
    fn in_front(
        &self,
        search: &mut Search<'_>,
        key: KeyRef<'_>,
        want: Want,
        place: WaiterId,
    ) -> Front {
        let mut sets = Vec::new();
        let alone = want != Want::Shared;
        let Some(queue) = self.queues.find(key) else {
            return Front { sets, has_one_alone: alone };
        };
        let before = || self.queues.last_alone_before(queue, place, SHARERS);
        let last_alone = if alone { Some(place) } else { before() };
        // Places beside the line (see `places.rs`) hold up only requests for exclusive holds. The others are
        // not visited: there may be any number of them.
        let beside = last_alone.map(|last| self.queues.sets_beside_before(queue, last));
        let in_line = self.queues.sets_in_line_before(queue, place);
        for id in beside.into_iter().flatten().chain(in_line) {
            let Some(left) = search.left.checked_sub(1) else { break };
            search.left = left;
            sets.extend(Some(id).filter(|id| !self.is_passed_over(*id)));
        }
        Front { sets, has_one_alone: last_alone.is_some() }
    }
}

/// The part of a queue ahead of a place.
struct Front {
    /// Places of waits for sets.
    sets: Vec<WaiterId>,
    /// `true` if the place itself, or a place ahead of it, wants the lock exclusively.
    has_one_alone: bool,
}

impl Search<'_> {
    fn add(
        &mut self,
        key: KeyRef<'_>,
        owner: Rc<[u8]>,
        holds: bool,
        from: Option<usize>,
    ) -> Option<Found> {
        self.left = self.left.saturating_sub(1);
        let link = Link { key: key.to_lock_key(), owner: Rc::clone(&owner), holds };
        let found = Found { link, from };
        if *owner == *self.owner {
            // If the owner only has an earlier place for a set here, that place does not depend on
            // the new wait. So the place completes no circle.
            return Some(found).filter(|_| holds);
        }
        if self.met.insert(owner) {
            self.found.push(found);
        }
        None
    }

    /// Returns the links of a circle in order. `last` is the link that completes the circle.
    fn circle_to(self, last: Found) -> Vec<Link> {
        let mut links = Vec::new();
        let (mut before, mut found) = (last.from, self.found);
        links.push(last.link);
        while let Some(at) = before {
            found.truncate(at.saturating_add(1));
            let Some(one) = found.pop() else { break };
            before = one.from;
            links.push(one.link);
        }
        links.reverse();
        links
    }
}
