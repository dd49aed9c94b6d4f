//! Changes of the server's role. A server that becomes a primary begins a quarantine (see
//! `quarantine.rs`), unless the length of quarantines is zero.
//!
//! When the server becomes a replica, all blocked waiters are removed. All other waits, sessions,
//! bindings and grants in flight are set aside: no later decision uses them, and they are freed
//! one entry at a time. Numbering continues, so that an old number never matches anything new.

use crate::account::Accounts;
use crate::discarded::Discarded;
use crate::outcome::count;
use crate::table::Table;
use crate::types::{Millis, Now};

impl<P> Table<P> {
    /// Length of quarantines; zero disables them.
    #[must_use]
    pub fn quarantine(&self) -> Millis {
        self.quarantine.length
    }

    /// Sets the length of quarantines. A current quarantine then ends that long after it began. Until
    /// [`Self::end_quarantine`] has ended it, another length can extend it again.
    pub fn set_quarantine(&mut self, length: Millis) {
        self.quarantine.length = length;
    }

    /// Begins a quarantine, because the server starts to grant and may not know all earlier grants.
    /// A current quarantine starts again. If the length of quarantines is zero, none begins.
    pub fn begin_quarantine(&mut self, now: Now) {
        if self.quarantine.length.0 > 0 {
            count(&mut self.counters.quarantines);
        }
        self.quarantine.since = Some(now.mono);
        self.end_quarantine(now);
    }

    /// Ends the quarantine because the server stops granting.
    pub fn lift_quarantine(&mut self) {
        self.quarantine.since = None;
    }

    /// If the time of the quarantine has passed, ends it and plans a look at each key with waiters.
    pub fn end_quarantine(&mut self, now: Now) {
        if self.quarantine.is_over(now.mono) {
            self.quarantine.since = None;
            self.look_at_all_soon(None, now);
        }
    }

    /// Time until the quarantine ends; `None` if there is none.
    #[must_use]
    pub fn quarantine_left(&self, now: Now) -> Option<Millis> {
        let end = self.quarantine.end().filter(|_| self.quarantine.is_on(now))?;
        Some(end.since(now.mono))
    }

    /// Time until the quarantine ends; `None` if there is no quarantine or no waiter.
    pub(crate) fn quarantine_due(&self, now: Now) -> Option<Millis> {
        let end = self.quarantine.end().filter(|_| self.queues.waiters() > 0)?;
        Some(end.since(now.mono))
    }

    /// Forgets all waits, sessions, bindings, observers, turns of Redisson and grants in flight.
    /// Returns the clients that were blocked as waiters, in order of arrival. [`Self::free_one`]
    /// returns the blocked readers.
    ///
    /// Numbering, the token source, the limits and the counters stay.
    pub fn forget(&mut self) -> Vec<P> {
        let blocked = self.dismiss_all();
        self.turns.begin_anew();
        // What is forgotten counts for no limit.
        self.accounts = Accounts::default();
        self.discarded.push_back(Discarded {
            queues: self.queues.begin_anew(),
            sessions: self.sessions.begin_anew(),
            bindings: self.bindings.begin_anew(),
            watched: self.watches.begin_anew(),
            agenda: std::mem::take(&mut self.agenda),
            in_flight: std::mem::take(&mut self.in_flight),
            sweeps: std::mem::take(&mut self.sweeps),
            unsent: std::mem::take(&mut self.unsent),
        });
        blocked
    }

    /// Frees one discarded entry. Returns `None` if nothing is left, otherwise the client, if the
    /// entry was a blocked reader.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Limits;
    use crate::types::MonoMillis;

    fn at(ms: u64) -> Now {
        Now { unix_us: 1_000_000_000, mono: MonoMillis(ms) }
    }

    fn table(length: u64) -> Table<()> {
        let mut table = Table::new(Limits { waiters: 9, waiters_per_key: 9, ..Limits::UNLIMITED });
        table.set_quarantine(Millis(length));
        table
    }

    fn left(table: &Table<()>, ms: u64) -> Option<u64> {
        table.quarantine_left(at(ms)).map(|left| left.0)
    }

    #[test]
    fn a_quarantine_lasts_its_duration_whatever_the_clock() {
        let mut table = table(100);
        assert_eq!(table.quarantine(), Millis(100));
        assert_eq!(left(&table, 5), None, "nothing has begun");
        table.begin_quarantine(at(5));
        assert_eq!(left(&table, 5), Some(100));
        let much_later = Now { unix_us: u64::MAX, ..at(104) };
        assert_eq!(table.quarantine_left(much_later), Some(Millis(1)));
        assert_eq!(left(&table, 105), None);
    }

    #[test]
    fn without_a_duration_there_is_no_quarantine_then_or_later() {
        let mut table = table(0);
        table.begin_quarantine(at(5));
        assert_eq!(left(&table, 5), None);
        table.set_quarantine(Millis(100));
        assert_eq!(left(&table, 6), None);
        assert_eq!(table.counters().quarantines, 0);
    }

    #[test]
    fn another_duration_moves_the_end() {
        let mut table = table(100);
        table.begin_quarantine(at(0));
        table.set_quarantine(Millis(300));
        assert_eq!(left(&table, 100), Some(200));
        table.set_quarantine(Millis(150));
        assert_eq!(left(&table, 100), Some(50));
        // The server takes back an option of a command that it refuses.
        for length in [60, 0] {
            table.set_quarantine(Millis(length));
            assert_eq!(left(&table, 100), None);
            table.set_quarantine(Millis(150));
            assert_eq!(left(&table, 100), Some(50));
        }
        // A quarantine that has ended does not begin again.
        table.set_quarantine(Millis(60));
        table.end_quarantine(at(100));
        table.set_quarantine(Millis(300));
        assert_eq!(left(&table, 101), None);
    }

    #[test]
    fn zero_ends_a_quarantine_and_a_promotion_begins_another() {
        let mut table = table(100);
        table.begin_quarantine(at(0));
        table.set_quarantine(Millis(0));
        table.end_quarantine(at(10));
        table.set_quarantine(Millis(100));
        assert_eq!(left(&table, 20), None);
        table.begin_quarantine(at(30));
        table.begin_quarantine(at(40));
        assert_eq!(left(&table, 40), Some(100));
        table.lift_quarantine();
        assert_eq!(left(&table, 41), None);
        assert_eq!(table.counters().quarantines, 3);
    }
}
