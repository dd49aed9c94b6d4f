//! A model of sessions with lists and loops. A lock is a holder and a list of waiters; a session is a list of
//! all outcomes that it ever had.

use super::ops::{KEYS, SESSIONS};

/// The receiver of a wait's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    Client(u64),
    /// The number of a session, and its generation, which is different each time that a session is
    /// opened.
    Session(usize, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    Granted,
    TimedOut,
    Cancelled,
    Replaced,
}

#[derive(Debug)]
pub struct Wait {
    pub owner: usize,
    pub whom: Whom,
    pub end: Option<u64>,
    /// Number of the place, in order of arrival.
    pub place: u64,
}

/// The outcome of a place: key, owner, and how the wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delivered(pub usize, pub usize, pub What);

#[derive(Debug)]
pub struct Session {
    pub generation: u64,
    pub user: usize,
    pub ttl: u64,
    pub due: u64,
    pub away: bool,
    pub connection: Option<u64>,
    pub cursor: usize,
    /// The blocked client, and whether it must be answered.
    pub reader: Option<(u64, bool)>,
    pub posted: Vec<Delivered>,
    /// Numbers of grants in `posted`, counted from 1, that their owners have not used.
    pub unsent: Vec<usize>,
    /// Number of the latest outcome that was sent, counted from 1.
    pub sent: usize,
    pub acked: usize,
}

#[derive(Debug, Default)]
pub struct Naive {
    /// Holder of each lock.
    pub holders: [Option<usize>; KEYS],
    pub queues: [Vec<Wait>; KEYS],
    /// For each queue, the number of the place that was taken when the queue was last empty.
    pub waited_for_since: [u64; KEYS],
    pub sessions: [Option<Session>; SESSIONS],
    pub generations: u64,
    pub now: u64,
    /// Replies to blocked clients that the table must send too.
    pub told: Vec<(u64, What)>,
}

impl Naive {
    /// Returns the session of a wait. `None` if it has ended, or if a client waits without one.
    pub fn find(&mut self, whom: Whom) -> Option<&mut Session> {
        let Whom::Session(number, generation) = whom else { return None };
        self.sessions[number].as_mut().filter(|session| session.generation == generation)
    }

    fn tell(&mut self, key: usize, wait: &Wait, what: What) {
        if let Whom::Client(client) = wait.whom {
            self.told.push((client, what));
        }
        let Some(session) = self.find(wait.whom) else { return };
        session.posted.push(Delivered(key, wait.owner, what));
        if what == What::Granted {
            session.unsent.push(session.posted.len());
        }
        if let Some((_, ready)) = &mut session.reader {
            *ready = true;
        }
    }

    fn is_away(&self, whom: Whom) -> bool {
        let Whom::Session(number, generation) = whom else { return false };
        let session = self.sessions[number].as_ref().filter(|it| it.generation == generation);
        session.is_none_or(|session| session.away)
    }

    /// Grants each free lock to the first waiter that is not away. Begins with the lock whose queue has
    /// had waiters for the longest time.
    pub fn serve(&mut self) {
        let mut keys: Vec<_> = (0..KEYS).collect();
        keys.sort_by_key(|key| self.waited_for_since[*key]);
        keys.into_iter().for_each(|key| self.serve_one(key));
    }

    fn serve_one(&mut self, key: usize) {
        let first = self.queues[key].iter().position(|wait| !self.is_away(wait.whom));
        if self.holders[key].is_none()
            && let Some(first) = first
        {
            let wait = self.queues[key].remove(first);
            self.holders[key] = Some(wait.owner);
            self.tell(key, &wait, What::Granted);
        }
    }

    /// Queues a wait, or grants it. Returns whether it was granted at once.
    pub fn wait(&mut self, key: usize, wait: Wait) -> bool {
        if self.holders[key] == Some(wait.owner) {
            self.used(key, wait.owner);
            return true;
        }
        if let Some(place) = self.queues[key].iter().position(|other| other.owner == wait.owner) {
            let before = std::mem::replace(&mut self.queues[key][place], wait);
            self.queues[key][place].place = before.place;
            if before.whom != self.queues[key][place].whom {
                self.tell(key, &before, What::Replaced);
            }
            return false;
        }
        if self.holders[key].is_none() && !self.is_in_line(key) {
            self.holders[key] = Some(wait.owner);
            return true;
        }
        if self.queues[key].is_empty() {
            self.waited_for_since[key] = wait.place;
        }
        self.queues[key].push(wait);
        false
    }

    /// Acquires a lock if that is possible at once. Returns whether the owner holds the lock. An owner
    /// that is granted the lock loses its place in the queue.
    pub fn acquire(&mut self, key: usize, owner: usize) -> bool {
        if self.holders[key] == Some(owner) {
            self.used(key, owner);
            return true;
        }
        if self.holders[key].is_some() || self.is_in_line(key) {
            return false;
        }
        self.holders[key] = Some(owner);
        if let Some(place) = self.queues[key].iter().position(|wait| wait.owner == owner) {
            self.leave(key, place, What::Replaced);
        }
        true
    }

    /// Returns whether the queue has a waiter that is not passed over.
    fn is_in_line(&self, key: usize) -> bool {
        self.queues[key].iter().any(|wait| !self.is_away(wait.whom))
    }

    pub fn leave(&mut self, key: usize, place: usize, what: What) {
        let wait = self.queues[key].remove(place);
        self.tell(key, &wait, what);
    }

    /// Records that the owner has used its grant.
    pub fn used(&mut self, key: usize, owner: usize) {
        for session in self.sessions.iter_mut().flatten() {
            let is_it =
                |number: &usize| session.posted[number - 1] == Delivered(key, owner, What::Granted);
            session.unsent.retain(|number| !is_it(number));
        }
    }

    /// Ends sessions. Their waits leave the queues. Then takes back their unused grants that were not
    /// sent, in the order in which the sessions ended. Returns the number of these grants.
    pub fn end(&mut self, numbers: &[usize]) -> u64 {
        let gone = numbers.iter().filter_map(|number| self.sessions[*number].take());
        let mut gone: Vec<_> = gone.collect();
        gone.sort_by_key(|session| (session.due, session.generation));
        let left = |wait: &Wait| {
            let Whom::Session(_, generation) = wait.whom else { return false };
            gone.iter().any(|session| session.generation == generation)
        };
        self.queues.iter_mut().for_each(|queue| queue.retain(|wait| !left(wait)));
        let mut taken_back = 0;
        for session in gone {
            for number in session.unsent {
                let Delivered(key, owner, _) = session.posted[number - 1];
                if number > session.sent && self.holders[key] == Some(owner) {
                    self.holders[key] = None;
                    self.serve_one(key);
                    taken_back += 1;
                }
            }
        }
        taken_back
    }
}
