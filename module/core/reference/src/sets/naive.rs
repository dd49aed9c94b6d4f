//! The simplest model of sets of locks: locks with holders, and one list of all waits in order of
//! arrival. A wait is granted if all its locks can be granted and no earlier wait conflicts with it
//! in any of them.

use std::collections::BTreeMap;

use super::ops::{KEYS, Key, Owner, Set};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Contains the number of holds of the first lock.
    Granted(u64),
    Nil,
    Upgrade,
    Blocked,
    Deadlock,
    Left(u64),
    Yes,
    No,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    Free,
    Alone {
        owner: Owner,
        holds: u64,
        shared: u64,
    },
    /// Holds and end of the lease of each sharer.
    Shared(BTreeMap<Owner, (u64, u64)>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    pub held: Held,
    pub until: u64,
}

#[derive(Clone, Debug)]
pub struct Wait {
    pub owner: Owner,
    pub set: Set,
    pub lease: u64,
    pub end: Option<u64>,
    pub client: u64,
    /// `true` if it waits through the session.
    pub through: bool,
}

#[derive(Clone, Debug)]
pub struct Naive {
    pub locks: Vec<Lock>,
    pub waits: Vec<Wait>,
    pub now: u64,
    pub away: bool,
    /// Clients that were answered, and whether the answer is a grant.
    pub told: Vec<(u64, bool)>,
    /// Number of outcomes of the session.
    pub outcomes: usize,
    /// Grants to clients in the last step: client, owner, and the locks that it did not hold before.
    pub granted: Vec<(u64, Owner, Vec<Key>)>,
}

impl Naive {
    pub fn new(now: u64) -> Self {
        let free = Lock { held: Held::Free, until: 0 };
        let locks = vec![free; KEYS.len()];
        Self {
            locks,
            waits: Vec::new(),
            now,
            away: false,
            told: Vec::new(),
            outcomes: 0,
            granted: Vec::new(),
        }
    }

    pub fn counts(&self, wait: &Wait) -> bool {
        !(wait.through && self.away)
    }

    /// Returns whether one of the first `first` waits conflicts with a request for a lock.
    fn is_barred(&self, first: usize, key: Key, shared: bool) -> bool {
        self.waits[..first].iter().any(|wait| {
            let wants = |(other, its): (Key, bool)| other == key && !(its && shared);
            self.counts(wait) && wait.set.wants().any(wants)
        })
    }

    /// Acquires one lock, or returns the refusal.
    fn take(&mut self, key: Key, owner: Owner, shared: bool, lease: u64, barred: bool) -> Answer {
        let (end, now) = (self.now + lease, self.now);
        let had = self.holds_any(owner, key);
        let answer = self.take_one(key, owner, shared, barred, (end, now));
        if matches!(answer, Answer::Granted(_)) && !had {
            // The owner no longer needs a place that is passed over.
            let away = self.away;
            let is_aside = |wait: &Wait| {
                let is_for_it = wait.set.keys.len() == 1 && wait.set.keys[0].0 == key;
                wait.owner == owner && is_for_it && wait.through && away
            };
            self.remove(is_aside);
        }
        answer
    }

    fn take_one(
        &mut self,
        key: Key,
        owner: Owner,
        shared: bool,
        barred: bool,
        (end, now): (u64, u64),
    ) -> Answer {
        let lock = &mut self.locks[key];
        match &mut lock.held {
            Held::Alone { owner: holder, holds, shared: beside } if *holder == owner => {
                let count = if shared { beside } else { holds };
                *count += 1;
                lock.until = lock.until.max(end);
                Answer::Granted(*count)
            }
            Held::Shared(shares) if shares.get(owner).is_some_and(|share| share.1 >= now) => {
                if !shared {
                    return Answer::Upgrade;
                }
                let share = shares.get_mut(owner).unwrap();
                *share = (share.0 + 1, share.1.max(end));
                lock.until = lock.until.max(end);
                Answer::Granted(share.0)
            }
            Held::Free if barred => Answer::Nil,
            Held::Free if shared => {
                lock.held = Held::Shared(BTreeMap::from([(owner, (1, end))]));
                lock.until = end;
                Answer::Granted(1)
            }
            Held::Free => {
                lock.held = Held::Alone { owner, holds: 1, shared: 0 };
                lock.until = end;
                Answer::Granted(1)
            }
            Held::Shared(shares) if shared && !barred => {
                shares.insert(owner, (1, end));
                lock.until = lock.until.max(end);
                Answer::Granted(1)
            }
            Held::Shared(_) | Held::Alone { .. } => Answer::Nil,
        }
    }

    /// Acquires all locks, or none. `first` is the number of earlier waits.
    fn take_all(&mut self, owner: Owner, set: &Set, lease: u64, first: usize) -> Answer {
        let (mut copy, mut answer, mut refused) = (self.clone(), None, false);
        for (key, shared) in set.wants() {
            let barred = self.is_barred(first, key, shared);
            let answer_of_lock = copy.take(key, owner, shared, lease, barred);
            match answer_of_lock {
                Answer::Granted(holds) => answer = answer.or(Some(holds)),
                Answer::Nil => refused = true,
                Answer::Upgrade
                | Answer::Blocked
                | Answer::Deadlock
                | Answer::Left(_)
                | Answer::Yes
                | Answer::No => {
                    return answer_of_lock;
                }
            }
        }
        if refused {
            return Answer::Nil;
        }
        let had_all = set.wants().all(|(key, _)| self.holds_any(owner, key));
        *self = copy;
        if set.keys.len() > 1 && !had_all {
            let away = self.away;
            let is_aside =
                |wait: &Wait| wait.owner == owner && wait.set.is_same(set) && wait.through && away;
            self.remove(is_aside);
        }
        Answer::Granted(answer.unwrap())
    }

    pub fn acquire(&mut self, owner: Owner, set: &Set, lease: u64) -> Answer {
        self.take_all(owner, set, lease, self.waits.len())
    }

    /// Returns the number of holds of an owner in a mode; 0 if it does not hold the lock.
    fn holds(&self, owner: Owner, key: Key, shared: bool) -> u64 {
        match &self.locks[key].held {
            Held::Alone { owner: holder, holds, shared: beside } if *holder == owner => {
                if shared {
                    *beside
                } else {
                    *holds
                }
            }
            Held::Shared(shares) if shared => {
                shares.get(owner).filter(|share| share.1 >= self.now).map_or(0, |share| share.0)
            }
            Held::Free | Held::Alone { .. } | Held::Shared(_) => 0,
        }
    }

    pub fn wait(&mut self, wait: Wait) -> Answer {
        let is_same = |other: &Wait| {
            other.owner == wait.owner
                && if wait.set.keys.len() == 1 {
                    other.set.keys.len() == 1 && other.set.keys[0].0 == wait.set.keys[0].0
                } else {
                    other.set.is_same(&wait.set)
                }
        };
        let same = self.waits.iter().position(is_same);
        let first = wait.set.wants().next().unwrap();
        // A queued wait for a set is granted only in its turn, not when its request is repeated. The
        // repeated request can still be refused with an error.
        let is_set = wait.set.keys.len() > 1;
        let keeps_place = same.is_some() && is_set;
        let aside = !is_set
            && same.is_some_and(|at| !self.counts(&self.waits[at]))
            && !self.is_known(wait.owner, first);
        if !aside {
            let mut tried = self.clone();
            let answer = tried.serve(&wait, self.waits.len());
            let waits =
                answer == Answer::Nil || keeps_place && matches!(answer, Answer::Granted(_));
            if !waits {
                *self = tried;
                return answer;
            }
        }
        if same.is_none() && self.closes_circle(&wait) {
            return Answer::Deadlock;
        }
        if let Some(at) = same {
            let before = std::mem::replace(&mut self.waits[at], wait);
            if before.through && self.waits[at].through {
                return Answer::Blocked;
            }
            self.out(&before);
            return Answer::Blocked;
        }
        let keys: Vec<_> = wait.set.keys.iter().map(|(key, _)| *key).collect();
        let meets = |other: &Wait| {
            other.owner == wait.owner && other.set.keys.iter().any(|(key, _)| keys.contains(key))
        };
        let replaced: Vec<_> = self.waits.extract_if(.., |other| meets(other)).collect();
        replaced.iter().for_each(|wait| self.out(wait));
        self.waits.push(wait);
        Answer::Blocked
    }

    /// Returns whether an owner holds a lock exclusively, or in this mode.
    fn is_known(&self, owner: Owner, (key, shared): (Key, bool)) -> bool {
        let alone = matches!(&self.locks[key].held, Held::Alone { owner: it, .. } if *it == owner);
        alone || self.holds(owner, key, shared) > 0
    }

    fn holds_any(&self, owner: Owner, key: Key) -> bool {
        self.holds(owner, key, false) + self.holds(owner, key, true) > 0
    }

    /// Grants the request of a wait if possible. `first` is the number of earlier waits.
    fn serve(&mut self, wait: &Wait, first: usize) -> Answer {
        let (key, shared) = wait.set.wants().next().unwrap();
        if wait.through && self.holds(wait.owner, key, shared) > 0 {
            self.repeat(wait, first)
        } else {
            self.take_all(wait.owner, &wait.set, wait.lease, first)
        }
    }

    /// Repeats a request through a session: locks that are held get no further hold.
    fn repeat(&mut self, wait: &Wait, before: usize) -> Answer {
        let (mut copy, mut first, mut refused) = (self.clone(), None, false);
        for (key, shared) in wait.set.wants() {
            let had = self.holds(wait.owner, key, shared);
            let barred = self.is_barred(before, key, shared);
            let answer_of_lock = copy.take(key, wait.owner, shared, wait.lease, barred);
            match answer_of_lock {
                Answer::Granted(_) if had > 0 => {
                    copy.set_holds(wait.owner, key, shared, had);
                    first = first.or(Some(had));
                }
                Answer::Granted(holds) => first = first.or(Some(holds)),
                Answer::Nil => refused = true,
                Answer::Upgrade
                | Answer::Blocked
                | Answer::Deadlock
                | Answer::Left(_)
                | Answer::Yes
                | Answer::No => {
                    return answer_of_lock;
                }
            }
        }
        if refused {
            return Answer::Nil;
        }
        *self = copy;
        Answer::Granted(first.unwrap())
    }

    fn set_holds(&mut self, owner: Owner, key: Key, of_shared: bool, count: u64) {
        match &mut self.locks[key].held {
            Held::Alone { holds, shared, .. } => {
                *(if of_shared { shared } else { holds }) = count;
            }
            Held::Shared(shares) => shares.get_mut(owner).unwrap().0 = count,
            Held::Free => unreachable!("it is held"),
        }
    }

    fn out(&mut self, wait: &Wait) {
        if wait.through {
            self.outcomes += 1;
        } else {
            self.told.push((wait.client, false));
        }
    }

    /// Releases one hold of each lock. Returns the holds left of the first lock, if all locks were held.
    pub fn release(&mut self, owner: Owner, set: &Set) -> Answer {
        let (mut first, mut lost) = (None, false);
        for (key, shared) in set.wants() {
            let had = self.holds(owner, key, shared);
            if had == 0 {
                lost = true;
                continue;
            }
            first = first.or(Some(had - 1));
            self.leave(owner, key, shared, had - 1);
        }
        match (first, lost) {
            (Some(left), false) => Answer::Left(left),
            _ => Answer::Nil,
        }
    }

    fn leave(&mut self, owner: Owner, key: Key, shared: bool, left: u64) {
        let lock = &mut self.locks[key];
        match &mut lock.held {
            Held::Alone { holds, shared: beside, .. } if shared => {
                let _ = holds;
                *beside = left;
            }
            Held::Alone { holds, shared: beside, .. } => {
                *holds = left;
                if left == 0 {
                    let beside = *beside;
                    let shares = BTreeMap::from([(owner, (beside, lock.until))]);
                    lock.held = if beside > 0 { Held::Shared(shares) } else { Held::Free };
                }
            }
            Held::Shared(shares) => {
                if left > 0 {
                    shares.get_mut(owner).unwrap().0 = left;
                } else {
                    shares.remove(owner);
                }
            }
            Held::Free => unreachable!("it is held"),
        }
    }

    /// Takes back all holds of a lock from an owner that never received the grant.
    pub fn take_back(&mut self, owner: Owner, key: Key) {
        match &mut self.locks[key].held {
            Held::Alone { owner: holder, .. } if *holder == owner => {
                self.locks[key].held = Held::Free;
            }
            Held::Shared(shares) => drop(shares.remove(owner)),
            Held::Free | Held::Alone { .. } => {}
        }
    }

    pub fn remove(&mut self, goes: impl Fn(&Wait) -> bool) -> bool {
        let gone: Vec<_> = self.waits.extract_if(.., |wait| goes(wait)).collect();
        gone.iter().for_each(|wait| self.out(wait));
        !gone.is_empty()
    }

    /// Ends the waits and leases whose time has passed. Then dismisses misfits and grants what can be
    /// granted, earlier waits first.
    pub fn settle(&mut self) {
        let now = self.now;
        self.remove(|wait| wait.end.is_some_and(|end| end <= now));
        for lock in &mut self.locks {
            let over = lock.until < now;
            match &mut lock.held {
                Held::Alone { .. } if over => lock.held = Held::Free,
                Held::Shared(shares) => {
                    shares.retain(|_, share| share.1 >= now);
                    if shares.is_empty() {
                        lock.held = Held::Free;
                    }
                }
                Held::Free | Held::Alone { .. } => {}
            }
        }
        self.granted.clear();
        loop {
            let misfits = (0..self.waits.len()).find(|at| self.is_misfit(*at));
            if let Some(at) = misfits {
                let wait = self.waits.remove(at);
                self.out(&wait);
                continue;
            }
            let granted = (0..self.waits.len()).find_map(|at| self.grant(at));
            let Some((at, fresh)) = granted else { return };
            let wait = self.waits.remove(at);
            if wait.through {
                self.outcomes += 1;
            } else {
                self.told.push((wait.client, true));
                self.granted.push((wait.client, wait.owner, fresh));
            }
        }
    }

    /// Returns whether a wait for a set must be dismissed. This is so if the first of its locks
    /// that is refused is one that its owner shares and requests exclusively.
    fn is_misfit(&self, at: usize) -> bool {
        let wait = &self.waits[at];
        let mut tried = self.clone();
        let is_granted = |(key, shared): (Key, bool)| {
            let barred = self.is_barred(at, key, shared);
            tried.take(key, wait.owner, shared, wait.lease, barred)
        };
        let mut answers = wait.set.wants().map(is_granted);
        let refused = answers.find(|answer| !matches!(answer, Answer::Granted(_)));
        wait.set.keys.len() > 1 && self.counts(wait) && refused == Some(Answer::Upgrade)
    }

    /// Grants the request of a wait, if possible. Returns its position, and the locks that its
    /// owner did not hold before.
    fn grant(&mut self, at: usize) -> Option<(usize, Vec<Key>)> {
        let wait = self.waits[at].clone();
        if !self.counts(&wait) {
            return None;
        }
        let fresh = wait.set.keys.iter().map(|(key, _)| *key);
        let fresh = fresh.filter(|key| !self.holds_any(wait.owner, *key)).collect();
        let answer = self.serve(&wait, at);
        matches!(answer, Answer::Granted(_)).then_some((at, fresh))
    }
}
