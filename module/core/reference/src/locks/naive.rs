//! The simplest model of locks: a lock is its holder or sharers, and a list of waiters. It is slow, and
//! shares only types and constants with the table.

use std::collections::{BTreeMap, BTreeSet};

use kvlock_core::{Counters, GrantId, Limits, Now};

use super::names::{Key, Owner, ResultKey};
use super::ops::Request;

/// Reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted { token: u64, holds: u64 },
    Nil,
    Mismatch,
    TooManyHolds,
    Upgrade,
    NotALock,
    TryAgain,
    TooFarAhead(u64),
    Left(u64),
    Lease(u64),
    Blocked,
    QueueFull,
    Draining,
    Yes,
    No,
}

/// A reply to a waiting client. Clients are numbered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sent {
    /// The client's owner was granted the lock: client, owner, token, and end of the lease.
    Granted(u64, String, u64, u64),
    /// The client's wait ended without a grant.
    Out(u64),
}

pub type Outcome = (Answer, Vec<Sent>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Contains the token of an earlier grant, if one is left.
    Free(Option<u64>),
    Held {
        owner: Owner,
        holds: u64,
        /// Number of shared holds that the owner has besides.
        shared: u64,
        token: Option<u64>,
    },
    /// Shared by the owners in [`Lock::shares`] whose leases have not ended. Contains the token, if
    /// there is one.
    Shared(Option<u64>),
    Other,
}

/// The latest turn of Redisson at one lock.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub released: u64,
    pub rounds: u64,
    pub since: u64,
    pub is_heard: bool,
    /// Number of moments of this turn that have not begun.
    pub left: u64,
}

#[derive(Clone, Debug)]
pub struct Wait {
    pub owner: Owner,
    pub client: u64,
    pub since: u64,
    pub end: Option<u64>,
    pub shared: bool,
    pub lease: u64,
    /// The result that is accepted instead of the lock.
    pub unless: Option<ResultKey>,
    /// `true` if the lock became free and the result was not checked since.
    pub looks_for_result: bool,
    /// Number of its place. Places are numbered as they are taken, from 0.
    pub place: usize,
}

#[derive(Clone, Debug)]
pub struct Lock {
    pub what: What,
    /// Hold count and lease end of each sharer. Expired sharers stay in the map.
    pub shares: BTreeMap<Owner, (u64, u64)>,
    /// Expiry of the key on the wall clock.
    pub until: Option<u64>,
    pub queue: Vec<Wait>,
    /// `true` if the lock is free because its key expired.
    pub lapsed: bool,
    /// `true` if a grant to a waiter is put off: see [`Naive::put_off`].
    pub put_off: bool,
    /// End of the moment in which the lock is left free for Redisson.
    pub moment: Option<u64>,
    /// `None` until the first turn.
    pub turn: Option<Turn>,
}

/// A grant to a waiter.
#[derive(Clone, Debug)]
pub struct Grant {
    pub id: Option<GrantId>,
    pub key: Key,
    pub owner: Owner,
    pub token: u64,
    /// `true` if its reply was written, it was taken back, or its owner has used it.
    pub settled: bool,
}

#[derive(Clone, Debug)]
pub struct Naive {
    pub locks: Vec<Lock>,
    pub grants: Vec<Grant>,
    pub counters: Counters,
    pub limits: Limits,
    /// Other servers may have issued tokens up to this one; `None` while that is unknown.
    pub floor: Option<u64>,
    pub now: Now,
    /// Length of a quarantine, and the start of the current one.
    pub quarantine: (u64, Option<u64>),
    /// Whether there are turns of Redisson, and the number of its processes that listen.
    pub turns: (bool, u64),
    /// End of each moment. It stays in the list until that time, even if a client took the lock.
    pub moments: Vec<u64>,
    /// The results that exist, each in its database.
    pub results: BTreeSet<(i32, ResultKey)>,
    /// Clients that were answered `ready` in this step.
    pub ready: Vec<u64>,
    /// Number of places ever taken.
    pub places: usize,
    last_token: u64,
    /// While a set of locks is acquired: the largest token that its keys have, and the new token of the
    /// set once it is issued.
    pub of_set: Option<(Option<u64>, Option<u64>)>,
}

impl Naive {
    pub fn new(keys: usize, limits: Limits, now: Now) -> Self {
        let free = |_| Lock {
            what: What::Free(None),
            shares: BTreeMap::new(),
            until: None,
            queue: Vec::new(),
            lapsed: false,
            put_off: false,
            moment: None,
            turn: None,
        };
        Self {
            locks: (0..keys).map(free).collect(),
            grants: Vec::new(),
            counters: Counters::default(),
            limits,
            floor: Some(0),
            now,
            quarantine: (0, None),
            turns: (false, 0),
            moments: Vec::new(),
            results: BTreeSet::new(),
            ready: Vec::new(),
            places: 0,
            last_token: 0,
            of_set: None,
        }
    }

    pub fn waiters(&self) -> usize {
        self.locks.iter().map(|lock| lock.queue.len()).sum()
    }

    pub fn wall(&self) -> u64 {
        self.now.unix_us / 1000
    }

    /// Returns the token of a new grant: the largest of the last token plus 1, the floor plus 1, the
    /// stored token plus 1, and the time in microseconds. If there is a stored token but the floor is
    /// unknown, returns the stored token plus 1.
    pub fn next_token(&mut self, stored: Option<u64>) -> u64 {
        if let (None, Some(stored)) = (self.floor, stored) {
            self.last_token = self.last_token.max(stored + 1);
            return stored + 1;
        }
        let before = [Some(self.last_token), self.floor, stored];
        let above_all = before.into_iter().flatten().max().unwrap() + 1;
        self.last_token = above_all.max(self.now.unix_us);
        self.last_token
    }

    /// Returns the token of a new grant. All locks of a set are granted with the same one.
    pub fn token_of_grant(&mut self, stored: Option<u64>) -> u64 {
        let Some((of_keys, issued)) = self.of_set else { return self.next_token(stored) };
        let token = issued.unwrap_or_else(|| self.next_token(of_keys));
        self.of_set = Some((of_keys, Some(token)));
        token
    }

    /// Returns the token of a lock after a request to raise it to at least `at_least`. Refuses a token
    /// that is more than a day ahead of the clock, unless one that large was issued or reserved.
    pub fn raised(&mut self, token: Option<u64>, at_least: u64) -> Result<Option<u64>, Answer> {
        if token.is_some_and(|token| token >= at_least) {
            return Ok(token);
        }
        let day = self.now.unix_us + 24 * 60 * 60 * 1_000_000;
        let most = day.max(self.last_token).max(self.floor.unwrap_or(0));
        if at_least > most {
            return Err(Answer::TooFarAhead(most));
        }
        if self.floor.is_none() {
            return Err(Answer::TryAgain);
        }
        if token.is_none() {
            return Ok(Some(self.next_token(Some(at_least - 1))));
        }
        self.last_token = self.last_token.max(at_least);
        Ok(Some(at_least))
    }

    /// Returns whether a token would be a guess, so that nothing may be granted.
    pub fn lacks_token_bound(&self, stored: Option<u64>) -> bool {
        self.floor.is_none() && stored.is_none()
    }

    /// Returns whether a quarantine is on, so that nothing new is granted.
    pub fn in_quarantine(&self) -> bool {
        self.quarantine_end().is_some_and(|end| end > self.now.mono.0)
    }

    pub fn quarantine_end(&self) -> Option<u64> {
        self.quarantine.1.map(|since| since + self.quarantine.0)
    }

    /// Ends the quarantine if its time has passed. From then on the waiters must be served.
    pub fn end_quarantine(&mut self) {
        if self.quarantine.1.is_some() && !self.in_quarantine() {
            self.quarantine.1 = None;
            self.locks.iter_mut().for_each(|lock| lock.put_off = false);
        }
    }

    /// If a lock has a waiter, and the first waiter can be granted it, returns the token that is
    /// stored.
    pub fn can_be_had(&self, key: Key) -> Option<Option<u64>> {
        let lock = &self.locks[key];
        let head = lock.queue.first()?;
        match lock.what {
            What::Free(stored) => Some(stored),
            What::Shared(token) if head.shared || self.last_end(key).is_none() => Some(token),
            What::Held { .. } | What::Shared(_) | What::Other => None,
        }
    }

    /// Returns whether the first waiter must be granted the lock now.
    pub fn owes(&self, key: Key) -> bool {
        let stored = self.can_be_had(key);
        stored.is_some_and(|stored| !self.lacks_token_bound(stored))
            && !self.in_quarantine()
            && !self.is_left_to_redisson(key)
    }

    /// Updates for each lock whether a grant is put off: a waiter could have the lock, but may not
    /// be granted it yet. The grant follows with a later look.
    pub fn put_off(&mut self) {
        for key in 0..self.locks.len() {
            let owes = self.owes(key);
            let waited_for = self.can_be_had(key).is_some();
            let lock = &mut self.locks[key];
            lock.put_off = waited_for && (lock.put_off || !owes);
        }
    }

    /// Makes a new exclusive grant. Returns its token.
    pub fn grant(&mut self, key: Key, owner: Owner, lease: u64, stored: Option<u64>) -> u64 {
        let token = self.token_of_grant(stored);
        self.counters.granted += 1;
        let until = Some(self.wall() + lease);
        let lock = &mut self.locks[key];
        (lock.until, lock.lapsed) = (until, false);
        lock.what = What::Held { owner, holds: 1, shared: 0, token: Some(token) };
        lock.shares.clear();
        token
    }

    /// Takes the lock from its holder. Grants it to the waiters at the head at once if that is allowed.
    /// Otherwise the lock becomes free.
    pub fn pass_on(&mut self, key: Key, stored: Option<u64>) -> Vec<Sent> {
        let nobody = self.locks[key].queue.is_empty() || self.in_quarantine();
        let served = if nobody || self.lacks_token_bound(stored) || self.is_left_to_redisson(key) {
            None
        } else {
            self.hand_to_head(key, stored)
        };
        served.unwrap_or_else(|| {
            self.locks[key].what = What::Free(None);
            self.locks[key].shares.clear();
            self.locks[key].until = None;
            self.begin_turn_if_due(key);
            Vec::new()
        })
    }

    /// Records that the owner of a grant has used it.
    pub fn settle(&mut self, key: Key, owner: Owner, token: Option<u64>) {
        for grant in &mut self.grants {
            // Another client may have written the token of one lock into another.
            let is_it = key == grant.key && owner == grant.owner && token == Some(grant.token);
            grant.settled |= is_it;
        }
    }

    pub fn note_grant(&mut self, key: Key, owner: Owner, token: u64) {
        self.settle(key, owner, Some(token));
        self.grants.push(Grant { id: None, key, owner, token, settled: false });
    }

    pub fn acquire(&mut self, key: Key, request: &Request) -> Answer {
        let answer = self.try_acquire(key, request);
        self.counters.refused += u64::from(answer == Answer::Nil);
        answer
    }

    pub fn try_acquire(&mut self, key: Key, request: &Request) -> Answer {
        let queued = !self.locks[key].queue.is_empty();
        match self.locks[key].what {
            What::Other => Answer::NotALock,
            What::Held { owner, holds, shared, token } if owner == request.owner => {
                let had = if request.shared { shared } else { holds };
                match self.reenter(key, request, had, token) {
                    Ok((now, token)) => {
                        let end = self.wall() + request.lease;
                        let lock = &mut self.locks[key];
                        lock.until = lock.until.map(|until| until.max(end));
                        let (holds, shared) =
                            if request.shared { (holds, now) } else { (now, shared) };
                        lock.what = What::Held { owner, holds, shared, token: Some(token) };
                        Answer::Granted { token, holds: now }
                    }
                    Err(answer) => answer,
                }
            }
            What::Shared(token) => self.ask_for_shared(key, request, token),
            What::Free(_) | What::Held { .. } if request.holds > Some(1) => Answer::Mismatch,
            What::Held { .. } => Answer::Nil,
            What::Free(_) if queued || self.in_quarantine() || self.is_left_to_redisson(key) => {
                Answer::Nil
            }
            What::Free(stored) if self.lacks_token_bound(stored) => Answer::TryAgain,
            What::Free(stored) => self.take(key, request, stored),
        }
    }

    /// Re-enters a lock. Returns the hold count and the token.
    pub fn reenter(
        &mut self,
        key: Key,
        request: &Request,
        had: u64,
        token: Option<u64>,
    ) -> Result<(u64, u64), Answer> {
        let repeated = request.holds == Some(had);
        if !repeated && request.holds.is_some_and(|n| n != had + 1) {
            return Err(Answer::Mismatch);
        }
        if !repeated && had >= u64::from(u32::MAX) {
            return Err(Answer::TooManyHolds);
        }
        if self.lacks_token_bound(token) {
            return Err(Answer::TryAgain);
        }
        self.counters.repeated += u64::from(repeated);
        self.counters.reentered += u64::from(!repeated);
        self.settle(key, request.owner, token);
        let token = token.unwrap_or_else(|| self.next_token(None));
        Ok((if repeated { had } else { had + 1 }, token))
    }

    pub fn wait(
        &mut self,
        key: Key,
        request: &Request,
        timeout: Option<u64>,
        client: u64,
    ) -> Outcome {
        let answer = self.try_acquire(key, request);
        if answer != Answer::Nil {
            return (answer, Vec::new());
        }
        if self.limits.draining {
            return (Answer::Draining, Vec::new());
        }
        let (all, since) = (self.waiters(), self.now.mono.0);
        let queue = &mut self.locks[key].queue;
        let wait = Wait {
            owner: request.owner,
            client,
            since,
            end: timeout.map(|timeout| since + timeout),
            shared: request.shared,
            lease: request.lease,
            unless: request.unless,
            looks_for_result: false,
            place: self.places,
        };
        if let Some(taken) = queue.iter_mut().find(|wait| wait.owner == request.owner) {
            let old = std::mem::replace(taken, wait);
            (taken.since, taken.place) = (old.since, old.place);
            return (Answer::Blocked, vec![Sent::Out(old.client)]);
        }
        if all >= self.limits.waiters || queue.len() >= self.limits.waiters_per_key {
            return (Answer::QueueFull, Vec::new());
        }
        queue.push(wait);
        self.places += 1;
        self.counters.waiters_peak = self.counters.waiters_peak.max(all + 1);
        (Answer::Blocked, Vec::new())
    }
}
