//! A table with a server around it, the model beside it, and the comparison of both.

use kvlock_core::{
    Change, Limits, Millis, MonoMillis, Observed, Situation, Table, Token, UnixMillis, WaiterId,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::naive::{Naive, Told, What};
use crate::ops::{KEYS, Key, Owner, owner_named};
use crate::sim::{Clock, Keyspace, Name, first_look, key_ref};

/// A client to answer. There is no second one like it, so it cannot leave the table twice.
#[derive(Debug)]
pub(crate) struct Client(pub(crate) u64);

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) table: Table<Client>,
    pub(crate) space: Keyspace,
    pub(crate) clock: Clock,
    pub(crate) names: Vec<Name>,
    pub(crate) model: Naive,
    /// How many clients have asked to wait.
    pub(crate) clients: u64,
    /// Every place that was ever given out.
    pub(crate) places: Vec<WaiterId>,
    last_token: u64,
}

impl World {
    /// An empty table that looks at each lock at least this often, in milliseconds.
    pub(crate) fn new(look_every: Option<u64>) -> Self {
        let limits = Limits { waiters: 100, waiters_per_key: 100, draining: false };
        let clock = Clock::new();
        let mut table = Table::new(limits);
        table.look_every = look_every.map(Millis);
        Self {
            table,
            space: Keyspace::default(),
            names: KEYS.map(|(db, key)| (db, key.to_owned())).to_vec(),
            model: Naive::new(KEYS.len(), limits, clock.now()),
            clock,
            clients: 0,
            places: Vec::new(),
            last_token: 0,
        }
    }

    /// Asks the table something about a key as it is now.
    pub(crate) fn with<T>(
        &mut self,
        key: Key,
        ask: impl FnOnce(&mut Table<Client>, &Situation<'_>) -> T,
    ) -> T {
        let (now, floor) = (self.clock.now(), self.model.floor);
        let at = self.space.situation(&self.names[key], now, floor);
        ask(&mut self.table, &at)
    }

    /// Does to the key what the table says, and finds who is told.
    pub(crate) fn apply(
        &mut self,
        key: Key,
        caller: Owner,
        change: Change<Client>,
    ) -> Result<Vec<Told>, TestCaseError> {
        let name = &self.names[key];
        let before = format!("{:?}", self.space.observe(name));
        self.space.apply(name, caller, &change);
        // Only a renewal may write what is there already: others watch the key.
        let after = format!("{:?}", self.space.observe(name));
        let may_be_the_same = matches!(
            change,
            Change::None | Change::Update { holds: None, token: None, until: Some(_) }
        );
        prop_assert!(may_be_the_same || before != after, "{change:?} changes nothing");
        if let Some(token) = change.issued() {
            prop_assert!(token.value() > self.last_token, "I6");
            self.last_token = token.value();
        }
        let Change::HandOff(hand_off) = change else {
            return Ok(Vec::new());
        };
        Ok(vec![Told::Granted(
            hand_off.client.0,
            String::from_utf8_lossy(&hand_off.owner).into_owned(),
            hand_off.token.value(),
            hand_off.until.0,
        )])
    }

    /// Compares everything that can be seen from outside.
    pub(crate) fn compare(&self) -> TestCaseResult {
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
        let due = [end, look].into_iter().flatten().min();
        prop_assert_eq!(self.table.next_due(now), due, "I5");
        prop_assert!(due.is_none() || waited_for > 0, "nobody waits for that");
        Ok(())
    }

    fn compare_lock(&self, key: Key) -> TestCaseResult {
        let (name, lock) = (&self.names[key], &self.model.locks[key]);
        let seen = self.space.observe(name);
        let until = lock.until.map(UnixMillis);
        prop_assert_eq!(what(&seen), Some(lock.what), "{:?} is {:?}", name, seen);
        prop_assert_eq!(seen.until(), until.filter(|_| !is_free(&seen)));

        let in_line = self.table.queue_of(key_ref(name));
        let in_line = in_line.map(|waiter| (waiter.owner, waiter.since, waiter.client.0));
        let expected = lock.queue.iter();
        let expected = expected.map(|w| (w.owner.as_bytes(), MonoMillis(w.since), w.client));
        prop_assert_eq!(Vec::from_iter(in_line), Vec::from_iter(expected), "I3");
        prop_assert_eq!(self.table.waiters_of(key_ref(name)), lock.queue.len());

        // Whoever waits for a lock is not forgotten: it is looked at when it can be had.
        let now = self.clock.now().unix();
        let can_be_had = if is_free(&seen) {
            (!lock.put_off).then_some(now)
        } else {
            seen.until().map(|until| until.plus(Millis(1)))
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

/// The same in the model's words; `None` if the model does not know such an owner.
fn what(seen: &Observed<'_>) -> Option<What> {
    Some(match seen {
        Observed::Free { stored } => What::Free(stored.map(Token::value)),
        Observed::NotALock { .. } => What::Other,
        Observed::Held(holding) => What::Held {
            owner: owner_named(holding.owner)?,
            holds: holding.holds,
            token: holding.token.map(Token::value),
        },
    })
}
