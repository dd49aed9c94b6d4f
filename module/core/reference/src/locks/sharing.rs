//! The model of shared locks.

use kvlock_core::{RUN_MAX, Share};

use super::naive::{Answer, Naive, Sent, What};
use super::names::{Key, Owner};
use super::ops::Request;

impl Naive {
    /// Hold count and lease end of an owner's share, unless the share has expired.
    pub fn share_of(&self, key: Key, owner: Owner) -> Option<(u64, u64)> {
        let lock = &self.locks[key];
        let (holds, until) = lock.shares.get(owner).copied()?;
        let end = lock.until.map_or(until, |end| end.min(until));
        (until >= self.wall()).then_some((holds, end))
    }

    /// Latest lease end of an unexpired sharer; `None` if all have expired.
    pub fn last_end(&self, key: Key) -> Option<u64> {
        let lock = &self.locks[key];
        let ends = lock.shares.values().map(|(_, until)| *until);
        let last = ends.filter(|until| *until >= self.wall()).max()?;
        Some(lock.until.map_or(last, |until| until.min(last)))
    }

    /// Grants a lock that has no unexpired holder to a request.
    pub fn take(&mut self, key: Key, request: &Request, stored: Option<u64>) -> Answer {
        let (owner, lease) = (request.owner, request.lease);
        if !request.shared {
            let token = self.grant(key, owner, lease, stored);
            return Answer::Granted { token, holds: 1 };
        }
        let token = self.token_of_grant(stored);
        self.begin_sharing(key, Some(token), None);
        self.join(key, owner, lease);
        Answer::Granted { token, holds: 1 }
    }

    pub fn begin_sharing(&mut self, key: Key, token: Option<u64>, until: Option<u64>) {
        let lock = &mut self.locks[key];
        lock.what = What::Shared(token);
        lock.shares.clear();
        lock.lapsed = false;
        // Without a given expiry the first sharer's lease sets it.
        lock.until = Some(until.unwrap_or(0));
    }

    fn join(&mut self, key: Key, owner: Owner, lease: u64) -> u64 {
        self.counters.granted += 1;
        self.counters.granted_shared += 1;
        let until = self.wall() + lease;
        let lock = &mut self.locks[key];
        lock.shares.insert(owner, (1, until));
        lock.until = lock.until.map(|end| end.max(until));
        until
    }

    /// Grants the lock to waiters at the head of the queue that want to share it, at most [`RUN_MAX`].
    pub fn let_in(&mut self, key: Key, token: u64) -> Vec<Sent> {
        let mut told = Vec::new();
        let most = if self.in_quarantine() { 0 } else { RUN_MAX };
        while told.len() < most && self.answer_ready_at_head(key) && self.locks[key].queue[0].shared
        {
            let head = self.locks[key].queue.remove(0);
            let until = self.join(key, head.owner, head.lease);
            self.counters.handed_off += 1;
            self.note_grant(key, head.owner, token);
            told.push(Sent::Granted(head.client, head.owner.into(), token, until));
        }
        told
    }

    /// Returns the token of a shared period. If the token was lost, issues and stores a new one.
    pub fn token_of_period(&mut self, key: Key, token: Option<u64>) -> u64 {
        let token = token.unwrap_or_else(|| self.next_token(None));
        self.locks[key].what = What::Shared(Some(token));
        token
    }

    pub fn ask_for_shared(&mut self, key: Key, request: &Request, token: Option<u64>) -> Answer {
        let queued = !self.locks[key].queue.is_empty();
        match self.share_of(key, request.owner) {
            Some(_) if !request.shared => Answer::Upgrade,
            Some((had, until)) => match self.reenter(key, request, had, token) {
                Ok((holds, new)) => {
                    self.token_of_period(key, Some(new));
                    let end = self.wall() + request.lease;
                    if holds == had && end <= until && token.is_some() {
                        return Answer::Granted { token: new, holds };
                    }
                    let (token, until) = (new, until.max(end));
                    let lock = &mut self.locks[key];
                    lock.shares.insert(request.owner, (holds, until));
                    lock.until = lock.until.map(|end| end.max(until));
                    Answer::Granted { token, holds }
                }
                Err(answer) => answer,
            },
            None if request.holds > Some(1) => Answer::Mismatch,
            None if queued || self.in_quarantine() => Answer::Nil,
            None if !request.shared
                && (self.last_end(key).is_some() || self.is_left_to_redisson(key)) =>
            {
                Answer::Nil
            }
            None if self.lacks_token_bound(token) => Answer::TryAgain,
            None if !request.shared => self.take(key, request, token),
            None => {
                let token = self.token_of_period(key, token);
                self.join(key, request.owner, request.lease);
                Answer::Granted { token, holds: 1 }
            }
        }
    }

    /// Sets the number of holds of one mode that an owner keeps after a release. Returns the
    /// grants to waiters.
    pub fn leave_with(&mut self, key: Key, by: Owner, of_shared: bool, left: u64) -> Vec<Sent> {
        match self.locks[key].what {
            What::Held { owner, holds, token, .. } if of_shared => {
                self.locks[key].what = What::Held { owner, holds, shared: left, token };
                Vec::new()
            }
            What::Held { owner, shared, token, .. } if left > 0 => {
                self.locks[key].what = What::Held { owner, holds: left, shared, token };
                Vec::new()
            }
            What::Held { shared, token, .. } if shared > 0 => {
                self.downgrade(key, by, shared, token)
            }
            What::Shared(_) if left > 0 => {
                let (_, until) = self.share_of(key, by).unwrap();
                self.locks[key].shares.insert(by, (left, until));
                Vec::new()
            }
            What::Shared(token) => {
                self.counters.released += 1;
                self.stop_sharing(key, by, token, true)
            }
            What::Held { token, .. } => {
                self.counters.released += 1;
                self.released(key, token)
            }
            What::Free(_) | What::Other => unreachable!("it is held"),
        }
    }

    pub fn stop_sharing(
        &mut self,
        key: Key,
        by: Owner,
        token: Option<u64>,
        releases: bool,
    ) -> Vec<Sent> {
        if self.locks[key].shares.len() == 1 {
            let gone = if releases { Self::released } else { Self::pass_on };
            return gone(self, key, token);
        }
        self.locks[key].shares.remove(by);
        self.look(key, kvlock_core::Cause::Release)
    }

    fn downgrade(&mut self, key: Key, by: Owner, shared: u64, token: Option<u64>) -> Vec<Sent> {
        self.counters.downgraded += 1;
        let until = self.locks[key].until;
        let fresh = if self.lacks_token_bound(token) { None } else { Some(self.next_token(token)) };
        self.begin_sharing(key, fresh, until);
        self.locks[key].until = until;
        let end = until.unwrap_or(Share::ENDLESS.0);
        self.locks[key].shares.insert(by, (shared, end));
        fresh.map_or_else(Vec::new, |token| self.let_in(key, token))
    }
}
