//! A table with a simulated server, the model, and the comparison of both.

use kvlock_core::{
    Cause, Change, GrantId, HandOff, Limits, Millis, MonoMillis, Observed, Share, Situation, Table,
    Token, UnixMillis, WaiterId,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::naive::{Naive, Sent, What};
use super::names::{KEYS, Key, Owner, owner_named};
use super::ops::Request;
use crate::sim::{Asked, Clock, Keyspace, Name, first_look, key_ref};

/// A client to answer. Each has its own number and cannot be copied, so it leaves the table at most once.
#[derive(Debug, PartialEq, Eq)]
pub struct Client(pub u64);

#[derive(Debug)]
pub struct World {
    pub table: Table<Client>,
    pub space: Keyspace,
    pub clock: Clock,
    pub names: Vec<Name>,
    pub model: Naive,
    /// Number of clients that have asked to wait.
    pub clients: u64,
    /// Every place that was ever taken.
    pub places: Vec<WaiterId>,
    /// Identifiers of grants that the model does not know yet.
    named: Vec<GrantId>,
    /// For each lock, the token that the next one must exceed.
    pub last_tokens: Vec<u64>,
}

/// Offset of the wall clock at the start, in milliseconds. A walk of a test sets the clock back by less
/// than this, so the clock stays after 1970.
const DATE_MS: i64 = 100_000_000;

impl World {
    /// Returns an empty world. With `look_every`, its table looks at each lock with waiters at least
    /// once in that number of milliseconds.
    pub fn new(look_every: Option<u64>) -> Self {
        let limits = Limits { waiters: 100, waiters_per_key: 100, ..Limits::UNLIMITED };
        let (mut clock, mut table) = (Clock::new(), Table::new(limits));
        clock.pass(0, DATE_MS, &mut table);
        table.look_every = look_every.map(Millis);
        Self {
            table,
            space: Keyspace::default(),
            names: KEYS.map(|(db, key)| (db, key.to_owned())).to_vec(),
            model: Naive::new(KEYS.len(), limits, clock.now()),
            clock,
            clients: 0,
            places: Vec::new(),
            named: Vec::new(),
            last_tokens: vec![0; KEYS.len()],
        }
    }

    /// Calls the table with a key as an owner sees it now.
    pub fn with<T>(
        &mut self,
        key: Key,
        owner: &str,
        ask: impl FnOnce(&mut Table<Client>, &Situation<'_>) -> T,
    ) -> T {
        self.with_asked(key, Asked { owner: owner.as_bytes(), living_at: None }, ask)
    }

    /// Calls the table like [`Self::with`], after a check whether all sharers have expired.
    pub fn with_all<T>(
        &mut self,
        key: Key,
        owner: &str,
        ask: impl FnOnce(&mut Table<Client>, &Situation<'_>) -> T,
    ) -> T {
        let living_at = Some(self.clock.now().unix());
        self.with_asked(key, Asked { owner: owner.as_bytes(), living_at }, ask)
    }

    fn with_asked<T>(
        &mut self,
        key: Key,
        asked: Asked<'_>,
        ask: impl FnOnce(&mut Table<Client>, &Situation<'_>) -> T,
    ) -> T {
        let (now, floor) = (self.clock.now(), self.model.floor);
        let at = self.space.situation(&self.names[key], asked, now, floor);
        ask(&mut self.table, &at)
    }

    /// Calls the table as the module does. An exclusive request needs to know whether all sharers
    /// have expired, unless the lock has a queue.
    pub fn ask_as<T>(
        &mut self,
        key: Key,
        request: &Request,
        ask: impl FnOnce(&mut Table<Client>, &Situation<'_>) -> T,
    ) -> T {
        let in_line = self.table.waiters_of(key_ref(&self.names[key])) > 0;
        if request.shared || in_line {
            self.with(key, request.owner, ask)
        } else {
            self.with_all(key, request.owner, ask)
        }
    }

    pub fn look_at(&mut self, key: Key, cause: Cause) -> Change<Client> {
        if self.with(key, "", |table, at| table.must_find_live_sharers(at)) {
            self.with_all(key, "", |table, at| table.look(at, cause))
        } else {
            self.with(key, "", |table, at| table.look(at, cause))
        }
    }

    /// Applies a change of the table to the key, and returns the replies.
    pub fn apply(
        &mut self,
        key: Key,
        caller: Owner,
        change: Change<Client>,
    ) -> Result<Vec<Sent>, TestCaseError> {
        let change = self.hand_off_without_listeners(key, caller, change);
        let name = &self.names[key];
        let before = self.picture(name);
        self.space.apply(name, caller, self.clock.now(), &change);
        // A change must alter the key, because other clients watch it. Exceptions are a renewal,
        // and a grant of a share that the owner already has.
        let after = self.picture(name);
        let may_be_the_same = matches!(
            change,
            Change::None | Change::Update { holds: None, token: None, until: Some(_), value: None }
        ) || matches!(&change, Change::Share(on) if !on.begins);
        prop_assert!(may_be_the_same || before != after, "{change:?} changes nothing");
        if let Some(token) = change.issued() {
            prop_assert!(token.value() > self.last_tokens[key], "I6");
            self.last_tokens[key] = token.value();
        }
        let hand_offs = match change {
            Change::HandOff(hand_off) => vec![hand_off],
            Change::Share(sharers) => sharers.joined,
            // A look finds out whether the remaining sharers are alive.
            Change::Leave => {
                let change = self.look_at(key, Cause::Release);
                return self.apply(key, "", change);
            }
            Change::None
            | Change::Take { .. }
            | Change::Update { .. }
            | Change::Free
            | Change::GiveWay
            | Change::Beside { .. } => Vec::new(),
        };
        Ok(hand_offs.into_iter().map(|hand_off| self.note(hand_off)).collect())
    }

    fn hand_off_without_listeners(
        &mut self,
        key: Key,
        caller: Owner,
        change: Change<Client>,
    ) -> Change<Client> {
        let (name, listeners, now) =
            (key_ref(&self.names[key]), self.model.turns.1, self.clock.now());
        match change {
            Change::GiveWay if listeners == 0 => {
                return self.with(key, caller, |table, at| table.hand_off_instead_of_turn(at));
            }
            Change::GiveWay => self.table.begin_turn(name, listeners, now),
            Change::Free => self.table.begin_turn_if_due(name, listeners, now),
            Change::None
            | Change::Take { .. }
            | Change::Update { .. }
            | Change::Beside { .. }
            | Change::Leave
            | Change::HandOff(_)
            | Change::Share(_) => {}
        }
        change
    }

    /// Returns the content of a key as text, for comparison.
    fn picture(&self, name: &Name) -> String {
        format!("{:?} {:?}", self.space.observe(name, Asked::NOBODY), self.space.shares(name))
    }

    fn note(&mut self, hand_off: HandOff<Client>) -> Sent {
        self.named.push(hand_off.id);
        let owner = String::from_utf8_lossy(&hand_off.owner).into_owned();
        Sent::Granted(hand_off.client.unwrap().0, owner, hand_off.token.value(), hand_off.until.0)
    }

    /// Gives the model the identifiers of the latest grants, which are in the same order.
    pub fn name_grants(&mut self) {
        let unnamed = self.model.grants.iter_mut().filter(|grant| grant.id.is_none());
        unnamed.zip(self.named.drain(..)).for_each(|(grant, id)| grant.id = Some(id));
    }

    /// Compares everything that can be seen from outside.
    pub fn compare(&self) -> TestCaseResult {
        prop_assert_eq!(self.table.check(), Ok(()));
        for key in 0..KEYS.len() {
            self.compare_lock(key)?;
        }
        let locks = self.model.locks.iter();
        let waited_for = locks.filter(|lock| !lock.queue.is_empty()).count();
        prop_assert_eq!(self.table.waiting_keys(), waited_for);
        prop_assert_eq!(self.table.waiters(), self.model.waiters());
        prop_assert_eq!(self.table.counters(), &self.model.counters);

        let now = self.clock.now();
        let waits = self.model.locks.iter().flat_map(|lock| &lock.queue);
        let end = waits.filter_map(|wait| wait.end).min();
        let end = end.map(|end| MonoMillis(end).since(now.mono));
        let look = first_look(&self.table).map(|look| look.since(now.unix()));
        let quarantine = self.model.quarantine_end().filter(|_| self.model.waiters() > 0);
        let quarantine = quarantine.map(|end| MonoMillis(end).since(now.mono));
        let moment = self.model.moments.iter().min();
        let moment = moment.map(|until| MonoMillis(*until).since(now.mono));
        let due = [end, look, quarantine, moment].into_iter().flatten().min();
        let due = if self.table.has_groups_to_look_at() { Some(Millis(0)) } else { due };
        prop_assert_eq!(self.table.next_due(now), due, "I5");
        let in_vain = waited_for == 0 && moment.is_none() && !self.table.has_groups_to_look_at();
        prop_assert!(due.is_none() || !in_vain, "nobody waits for that");
        Ok(())
    }

    fn compare_lock(&self, key: Key) -> TestCaseResult {
        let (name, lock) = (&self.names[key], &self.model.locks[key]);
        let seen = self.space.observe(name, Asked::NOBODY);
        let shares = lock.shares.iter().map(|(owner, share)| ((*owner).to_owned(), *share));
        prop_assert_eq!(self.space.shares(name), Vec::from_iter(shares));
        let until = lock.until.map(UnixMillis);
        prop_assert_eq!(what(&seen), Some(lock.what), "{:?} is {:?}", name, seen);
        prop_assert_eq!(seen.until(), until.filter(|_| !is_free(&seen)));

        let in_line = self.table.queue_of(key_ref(name));
        let in_line = in_line.map(|waiter| (waiter.owner, waiter.since, waiter.client.unwrap().0));
        let expected = lock.queue.iter();
        let expected = expected.map(|w| (w.owner.as_bytes(), MonoMillis(w.since), w.client));
        prop_assert_eq!(Vec::from_iter(in_line), Vec::from_iter(expected), "I3");
        prop_assert_eq!(self.table.waiters_of(key_ref(name)), lock.queue.len());

        // No waiter is forgotten: a look is planned for the time at which the lock can be granted.
        let now = self.clock.now().unix();
        let last_end = match lock.what {
            What::Shared(_) => {
                let end = self.model.last_end(key).map(UnixMillis);
                end.filter(|end| *end < Share::ENDLESS)
            }
            What::Free(_) | What::Held { .. } | What::Other => seen.until(),
        };
        let can_be_had = if self.model.can_be_had(key).is_some() {
            (!lock.put_off).then_some(now)
        } else {
            last_end.map(|until| until.plus(Millis(1)))
        };
        let regular = self.table.look_every.map(|every| now.plus(every));
        for due in [can_be_had, regular].into_iter().flatten() {
            let look = first_look(&self.table);
            let in_time = lock.queue.is_empty() || look.is_some_and(|look| look <= due);
            prop_assert!(in_time, "looked at {look:?} and not at {due:?}");
        }
        Ok(())
    }
}

fn is_free(seen: &Observed<'_>) -> bool {
    matches!(seen, Observed::Free { .. })
}

/// Returns the state of a lock in the model's form. `None` if the model does not know the owner.
fn what(seen: &Observed<'_>) -> Option<What> {
    Some(match seen {
        Observed::Free { stored } => What::Free(stored.map(Token::value)),
        Observed::NotALock { .. } => What::Other,
        Observed::Shared(sharing) => What::Shared(sharing.token.map(Token::value)),
        Observed::Held(holding) => What::Held {
            owner: owner_named(holding.owner)?,
            holds: holding.holds,
            shared: holding.shared,
            token: holding.token.map(Token::value),
        },
    })
}
