//! Plans a look at each key with waiters, in one or all databases. A look reads the key and grants
//! what can be granted. This is needed after a flush, a `SWAPDB` or a load, because any key may have
//! changed; after the clock was set back, because planned looks would be too late; and at the end of
//! a quarantine, because grants are possible again.
//!
//! There may be a million of these keys, so looks are planned for some of them at a time.

use std::ops::Bound;

use crate::agenda::Sweep;
use crate::key::Kind;
use crate::outcome::Cause;
use crate::table::Table;
use crate::types::{Millis, Now};

/// Number of queues for which looks are planned at once.
const AT_ONCE: usize = 256;

/// Number of queues for which each later step of a sweep plans looks.
const STEPS: usize = 16;

/// Number of queues at which the time between two regular looks at a key begins to grow.
const REGULAR_LOOKS: usize = 10_000;

impl<P> Table<P> {
    /// Plans an immediate look at every key with waiters or observers in a database, or in all
    /// databases if `None`. If there are many such keys, the looks at some of them are planned by
    /// later pieces of work.
    pub fn look_at_all_soon(&mut self, db: Option<i32>, now: Now) {
        self.sweep(db, Cause::Outside, now);
    }

    /// Like [`Self::look_at_all_soon`], after a flush of a database, or of all databases if `None`.
    /// Observers get the cause `Flush`.
    pub fn flushed(&mut self, db: Option<i32>, now: Now) {
        self.sweep(db, Cause::Flush, now);
    }

    fn sweep(&mut self, db: Option<i32>, cause: Cause, now: Now) {
        self.agenda.asked = now.unix();
        let Some(last) = self.queues.last() else { return };
        let sweep = Sweep { db, after: None, last, cause };
        // This sweep replaces earlier sweeps of the same queues.
        self.sweeps.retain(|other| db.is_some() && other.db != db);
        let rest = self.go_through(sweep, AT_ONCE, now);
        self.sweeps.extend(rest);
    }

    /// Continues one of the sweeps.
    pub(crate) fn sweep_on(&mut self, now: Now) {
        if let Some(sweep) = self.sweeps.pop_front() {
            let rest = self.go_through(sweep, STEPS, now);
            self.sweeps.extend(rest);
        }
    }

    /// Returns whether a sweep is in progress.
    pub(crate) fn is_sweeping(&self) -> bool {
        !self.sweeps.is_empty() && self.queues.count() > 0
    }

    /// Returns the time between two regular looks at a key. This time is `every`, or longer if
    /// there are very many queues.
    pub(crate) fn stretched(&self, every: Millis) -> Millis {
        let rounds = self.queues.count().div_euclid(REGULAR_LOOKS).saturating_add(1);
        Millis(every.0.saturating_mul(u64::try_from(rounds).unwrap_or(u64::MAX)))
    }

    /// Continues a sweep with up to `most` queues. Returns the rest of the sweep.
    fn go_through(&mut self, sweep: Sweep, most: usize, now: Now) -> Option<Sweep> {
        let from = sweep.after.map_or(Bound::Unbounded, Bound::Excluded);
        let some = self.queues.between(from, Bound::Included(sweep.last)).take(most);
        let some: Vec<_> = some.map(|(id, queue)| (id, queue.key.db, queue.key.kind)).collect();
        for (id, db, kind) in &some {
            if sweep.db.is_none_or(|wanted| wanted == *db) {
                let observed = *kind == Kind::Changes;
                let cause = if observed { sweep.cause } else { Cause::Outside };
                self.plan_look(*id, Some(now.unix()), cause);
            }
        }
        let after = some.last().map(|(id, ..)| *id).filter(|_| some.len() == most);
        after.map(|after| Sweep { after: Some(after), ..sweep })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyRef;
    use crate::mode::Want;
    use crate::news::HolderState;
    use crate::outcome::Limits;
    use crate::types::MonoMillis;
    use crate::waiter::Join;
    use crate::work::Work;

    const MANY: usize = 10_000;
    const NOW: Now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };

    /// Returns a table with one waiter for each of `MANY` locks. The locks never expire and alternate
    /// between two databases.
    fn crowd() -> Table<usize> {
        let mut table = Table::new(Limits::UNLIMITED);
        for number in 0..MANY {
            let name = number.to_be_bytes();
            let db = i32::from(number % 2 == 1);
            let join = Join { owner: b"o", want: Want::Exclusive, lease: Millis(9), timeout: None };
            table.enqueue_at(KeyRef::lock(db, &name), NOW, None, &join, number.into());
        }
        table
    }

    fn planned(table: &Table<usize>) -> usize {
        table.agenda.len().1
    }

    #[test]
    fn looks_at_many_locks_are_planned_in_batches() {
        let mut table = crowd();
        table.look_at_all_soon(None, NOW);
        assert!((1..500).contains(&planned(&table)), "{}", planned(&table));
        let mut looked = Vec::new();
        loop {
            let before = planned(&table);
            let Some((key, _)) = table.next_look(NOW) else { break };
            assert!(planned(&table) < before + 20, "{before} and {}", planned(&table));
            looked.push(key.name.to_vec());
        }
        looked.sort();
        let all = (0..MANY).map(|number| number.to_be_bytes().to_vec());
        assert!(looked.into_iter().eq(all), "each once");
        assert_eq!((table.next_due(NOW), table.check()), (None, Ok(())));
    }

    #[test]
    fn only_the_locks_of_a_database_are_looked_at() {
        let mut table = crowd();
        table.look_at_all_soon(Some(1), NOW);
        // The second sweep replaces the first.
        table.look_at_all_soon(Some(1), NOW);
        let looks = std::iter::from_fn(|| table.next_look(NOW));
        let dbs: Vec<_> = looks.map(|(key, _)| key.db).collect();
        assert!(dbs.iter().all(|db| *db == 1));
        assert!((MANY / 2..MANY / 2 + AT_ONCE).contains(&dbs.len()), "{}", dbs.len());
        assert_eq!(table.next_due(NOW), None);
    }

    #[test]
    fn all_pieces_of_a_sweep_are_done() {
        let mut table = crowd();
        table.look_at_all_soon(None, NOW);
        let mut looks = 0;
        while let Some(work) = table.next_work(NOW, true) {
            assert_eq!(table.is_sweeping(), !table.sweeps.is_empty());
            looks += usize::from(matches!(work, Work::Look(..)));
        }
        assert_eq!((looks, table.next_due(NOW)), (MANY, None));
    }

    #[test]
    fn a_sweep_replaces_the_earlier_ones_of_the_same_queues() {
        let mut table = crowd();
        for (db, sweeps) in [(Some(1), 1), (Some(1), 1), (Some(0), 2), (Some(1), 2), (None, 1)] {
            table.look_at_all_soon(db, NOW);
            assert_eq!(table.sweeps.len(), sweeps, "{db:?}");
        }
        table.dismiss_all();
        assert!(!table.is_sweeping(), "no queue is left");
    }

    #[test]
    fn only_observers_are_told_of_a_flush() {
        let mut table = Table::<usize>::new(Limits::UNLIMITED);
        let session = table.open_session([1; 32], b"user", Millis(99), NOW).expect("there is room");
        for db in [0, 1] {
            let key = KeyRef::lock(db, b"k");
            assert!(table.observe(key, NOW, (HolderState::Vacant, None), session).is_ok());
            let join = Join { owner: b"o", want: Want::Exclusive, lease: Millis(9), timeout: None };
            table.enqueue_at(key, NOW, None, &join, 1.into());
        }
        table.flushed(Some(1), NOW);
        let looks = std::iter::from_fn(|| table.next_look(NOW));
        let looks: Vec<_> = looks.map(|(key, cause)| (key.db, key.kind, cause)).collect();
        assert_eq!(looks.len(), 2, "{looks:?}");
        assert!(looks.contains(&(1, Kind::Changes, Cause::Flush)), "{looks:?}");
        assert!(looks.contains(&(1, Kind::Lock, Cause::Outside)), "{looks:?}");
    }

    #[test]
    fn regular_looks_are_limited_in_number() {
        let mut table = crowd();
        assert_eq!(table.stretched(Millis(1_000)), Millis(2_000));
        table.dismiss_all();
        assert_eq!(table.stretched(Millis(1_000)), Millis(1_000));
    }

    #[test]
    fn all_remaining_looks_are_due_at_once_while_anyone_waits() {
        let mut table = crowd();
        table.look_at_all_soon(None, NOW);
        for _ in 0..AT_ONCE / 2 {
            table.next_look(NOW);
        }
        assert_eq!(table.next_due(NOW), Some(Millis(0)));
        assert_eq!(table.dismiss_all().len(), MANY);
        assert_eq!(table.next_due(NOW), None);
    }
}
