//! The lock table: what a command does to a lock and its holder.
//!
//! Each operation is given what the key holds and returns what to answer and what to write. It
//! validates first and changes the table last, so that nothing is half done. What concerns those
//! who wait is in `waiting.rs`.

use std::hash::RandomState;

use hashbrown::HashSet;

use crate::agenda::Agenda;
use crate::lock::{
    Acquire, AcquireReply, Holding, Observed, Reentry, Release, ReleaseReply, RenewReply,
};
use crate::outcome::{Cause, Change, Counters, Limits};
use crate::planted::Bug;
use crate::queue::{KeyRef, Queues};
use crate::token::{Token, TokenSource};
use crate::types::{Millis, Now, UnixMillis};

/// All queues, what is due when, and the tokens. `P` is a client to answer.
#[derive(Debug)]
pub struct Table<P> {
    pub(crate) queues: Queues<P>,
    pub(crate) agenda: Agenda,
    pub(crate) tokens: TokenSource,
    /// Tokens of hand-offs whose reply is not written yet, and whose owner did nothing since.
    pub(crate) in_flight: HashSet<Token, RandomState>,
    /// How many may wait.
    pub limits: Limits,
    /// Look at each lock that is waited for at least this often: for keyspaces that can change
    /// without anybody telling.
    pub look_every: Option<Millis>,
    pub(crate) counters: Counters,
}

/// Everything known about one lock at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// Which lock.
    pub key: KeyRef<'a>,
    /// What its key holds.
    pub seen: Observed<'a>,
    /// What time it is.
    pub now: Now,
    /// Tokens up to this one may have been issued by another server; 0 if none. `None` if that
    /// cannot be known yet: then nothing is granted whose token would be a guess.
    pub floor: Option<u64>,
}

impl Situation<'_> {
    /// Whether a token for this lock would be a guess, where `stored` is the believed one.
    pub(crate) fn must_guess(&self, stored: Option<Token>) -> bool {
        self.floor.is_none() && stored.is_none()
    }
}

impl<P> Table<P> {
    /// An empty table.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            queues: Queues::default(),
            agenda: Agenda::default(),
            tokens: TokenSource::default(),
            in_flight: HashSet::default(),
            limits,
            look_every: None,
            counters: Counters::default(),
        }
    }

    /// Says whether the head of the queue must be served before anything else is done with this
    /// lock: it is free although somebody waits (I8).
    #[must_use]
    pub fn owes_a_grant(&self, at: &Situation<'_>) -> bool {
        matches!(at.seen, Observed::Free { .. })
            && self.queues.find(at.key).is_some()
            && !Bug::Overtaking.is_planted()
    }

    /// Takes the lock if it is free and nobody waits for it, or counts a reentry.
    pub fn acquire(
        &mut self,
        at: &Situation<'_>,
        request: &Acquire<'_>,
    ) -> (AcquireReply, Change<P>) {
        let outcome = self.try_acquire(at, request);
        if outcome.0 == AcquireReply::Refused {
            self.counters.refused += 1;
        }
        outcome
    }

    /// As [`Self::acquire`], without counting a refusal.
    pub(crate) fn try_acquire(
        &mut self,
        at: &Situation<'_>,
        request: &Acquire<'_>,
    ) -> (AcquireReply, Change<P>) {
        match &at.seen {
            Observed::NotALock { .. } => (AcquireReply::NotALock, Change::None),
            Observed::Held(holding) if holding.owner == request.owner => {
                self.reenter(at, holding, request)
            }
            Observed::Free { .. } | Observed::Held(_) if request.holds.is_some_and(|n| n > 1) => {
                (AcquireReply::Mismatch, Change::None)
            }
            Observed::Held(_) => (AcquireReply::Refused, Change::None),
            Observed::Free { .. } if self.owes_a_grant(at) => (AcquireReply::Refused, Change::None),
            Observed::Free { stored } if at.must_guess(self.believe(*stored)) => {
                (AcquireReply::TryAgain, Change::None)
            }
            Observed::Free { stored } => {
                let token = self.tokens.issue(*stored, at.floor, at.now.unix_us);
                self.counters.granted += 1;
                let until = at.now.unix().plus(request.lease);
                (AcquireReply::Granted { token, holds: 1 }, Change::Take { token, until })
            }
        }
    }

    fn reenter(
        &mut self,
        at: &Situation<'_>,
        holding: &Holding<'_>,
        request: &Acquire<'_>,
    ) -> (AcquireReply, Change<P>) {
        let (holds, until) = match holding.reenter(request, at.now.unix()) {
            Reentry::Holds { holds, until } => (holds, until),
            Reentry::Mismatch => return (AcquireReply::Mismatch, Change::None),
            Reentry::TooManyHolds => return (AcquireReply::TooManyHolds, Change::None),
        };
        let token = self.believe(holding.token);
        if at.must_guess(token) {
            return (AcquireReply::TryAgain, Change::None);
        }
        let more = holds != holding.holds;
        let given = match token {
            Some(_) if !Bug::TokenOnReentry.is_planted() => None,
            Some(_) => Some(self.tokens.issue(holding.token, at.floor, at.now.unix_us)),
            None => Some(self.tokens.issue(None, at.floor, at.now.unix_us)),
        };
        if more {
            self.counters.reentered += 1;
        } else {
            self.counters.repeated += 1;
        }
        self.touched(holding.token);
        let reply = match given.or(token) {
            Some(token) => AcquireReply::Granted { token, holds },
            None => AcquireReply::Refused,
        };
        let change = Change::Update { holds: more.then_some(holds), token: given, until };
        (reply, change.or_none())
    }

    /// Gives back one, some or all holds. The last one hands the lock to the first waiter.
    pub fn release(
        &mut self,
        at: &Situation<'_>,
        owner: &[u8],
        release: Release,
    ) -> (ReleaseReply, Change<P>) {
        let holding = match &at.seen {
            Observed::NotALock { .. } => return (ReleaseReply::NotALock, Change::None),
            Observed::Held(holding)
                if holding.owner == owner || Bug::ReleaseAnyOwner.is_planted() =>
            {
                holding
            }
            Observed::Held(_) | Observed::Free { .. } => {
                return (ReleaseReply::NotHeld, Change::None);
            }
        };
        let Some(left) = holding.left_after(release) else {
            return (ReleaseReply::Mismatch, Change::None);
        };
        self.touched(holding.token);
        let change = if left == holding.holds {
            self.counters.repeated += 1;
            Change::None
        } else if left > 0 {
            Change::Update { holds: Some(left), token: None, until: None }
        } else {
            self.counters.released += 1;
            self.pass_on(at, holding.token, Cause::Release)
        };
        (ReleaseReply::Left(left), change)
    }

    /// Sets the lease of the holder to start anew. Unlike a reentry it may shorten it.
    pub fn renew(
        &mut self,
        at: &Situation<'_>,
        owner: &[u8],
        lease: Millis,
    ) -> (RenewReply, Change<P>) {
        let holding = match &at.seen {
            Observed::NotALock { .. } => return (RenewReply::NotALock, Change::None),
            Observed::Held(holding)
                if holding.owner == owner || Bug::RenewAnyOwner.is_planted() =>
            {
                holding
            }
            Observed::Held(_) | Observed::Free { .. } => {
                return (RenewReply::NotHeld, Change::None);
            }
        };
        let until = at.now.unix().plus(lease);
        self.touched(holding.token);
        self.look_no_later_than(at.key, after(until), Cause::Expiry);
        let change = Change::Update { holds: None, token: None, until: Some(until) };
        (RenewReply::Lease(lease), change)
    }

    /// Takes the lock from whoever holds it and hands it on. `None` if the key is not a lock,
    /// otherwise whether somebody held it.
    pub fn force_release(&mut self, at: &Situation<'_>) -> (Option<bool>, Change<P>) {
        match &at.seen {
            Observed::NotALock { .. } => (None, Change::None),
            Observed::Free { .. } => (Some(false), Change::None),
            Observed::Held(holding) => {
                self.counters.forced_releases += 1;
                (Some(true), self.pass_on(at, holding.token, Cause::Forced))
            }
        }
    }

    /// Says that the reply of a hand-off was written: from here on only its lease ends it.
    pub fn delivered(&mut self, token: Token) {
        self.land(token);
    }

    /// Takes a hand-off off the list of those under way; says whether it was on it.
    fn land(&mut self, token: Token) -> bool {
        let was_there = self.in_flight.remove(&token);
        let room = self.in_flight.capacity();
        if room > 64 && self.in_flight.len() < room / 8 {
            self.in_flight.shrink_to(self.in_flight.len() * 2);
        }
        was_there
    }

    /// Takes back a hand-off whose client was gone before it was answered, and passes the lock
    /// on; unless its owner has shown since that it is alive, or the lock is no longer that grant.
    pub fn take_back(&mut self, at: &Situation<'_>, owner: &[u8], token: Token) -> Change<P> {
        let untouched = self.land(token);
        match &at.seen {
            Observed::Held(holding)
                if untouched && holding.owner == owner && holding.token == Some(token) =>
            {
                self.counters.grants_taken_back += 1;
                self.pass_on(at, Some(token), Cause::TakenBack)
            }
            Observed::Held(_) | Observed::Free { .. } | Observed::NotALock { .. } => Change::None,
        }
    }

    /// The token in a hash, unless it cannot be one that a server of ours has written.
    #[must_use]
    pub fn believe(&self, stored: Option<Token>) -> Option<Token> {
        self.tokens.believe(stored)
    }

    /// The owner of a grant did something with it, so it must have learned of it.
    fn touched(&mut self, token: Option<Token>) {
        if !self.in_flight.is_empty()
            && let Some(token) = token
        {
            self.land(token);
        }
    }

    /// The lock leaves its holder: to the first waiter, else to nobody.
    fn pass_on(&mut self, at: &Situation<'_>, stored: Option<Token>, cause: Cause) -> Change<P> {
        self.hand_to_head(at, stored, cause).map_or(Change::Free, Change::HandOff)
    }

    /// Sees to it that this lock, if somebody waits for it, is looked at by then.
    pub(crate) fn look_no_later_than(&mut self, key: KeyRef<'_>, due: UnixMillis, cause: Cause) {
        if let Some(id) = self.queues.find(key) {
            let planned = self.queues.queue(id).and_then(|queue| queue.look);
            if planned.is_none_or(|planned| due < planned) {
                self.plan_look(id, Some(due), cause);
            }
        }
    }
}

/// The first moment at which the server takes a key that expires at `until` for expired.
pub(crate) fn after(until: UnixMillis) -> UnixMillis {
    until.plus(Millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Situation<'static> = Situation {
        key: KeyRef { db: 0, name: b"k" },
        seen: Observed::Free { stored: None },
        now: Now { unix_us: 1_000_000, mono: crate::MonoMillis(0) },
        floor: None,
    };
    const REQUEST: Acquire<'static> = Acquire { owner: b"a", lease: Millis(10), holds: None };

    fn table() -> Table<()> {
        Table::new(Limits { waiters: 9, waiters_per_key: 9, draining: false })
    }

    #[test]
    fn without_a_floor_no_token_is_guessed() {
        let (reply, change) = table().acquire(&AT, &REQUEST);
        assert_eq!((reply, change), (AcquireReply::TryAgain, Change::None));
    }

    #[test]
    fn without_a_floor_the_token_in_the_hash_is_enough() {
        let stored = Token::from_stored(5_000_000);
        let at = Situation { seen: Observed::Free { stored }, ..AT };
        let (reply, _) = table().acquire(&at, &REQUEST);
        let AcquireReply::Granted { token, .. } = reply else { panic!("{reply:?}") };
        assert_eq!(token.value(), 5_000_001);
    }
}
