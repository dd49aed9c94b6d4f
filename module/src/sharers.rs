//! The sharers of a lock: finds out whether any of them is alive, and removes the fields of expired ones.
//!
//! A sharer is alive while its lease lasts. One live sharer is enough to know that the lock is shared, so the
//! one found last is checked first the next time. An expired sharer is removed when it is found, so it is
//! found once.

use std::collections::BTreeMap;

use kvlock_core::{Go, Observed, Share, Sharing, UnixMillis, Wanted};

use crate::operate::Case;
use crate::redis::{Key, Text};
use crate::server::Server;

/// Number of times that a search continues at once after it found expired holders.
pub(crate) const ROUNDS_MAX: usize = 8;

/// Average number of joins and renewals between two sweeps. A sweep checks more fields than are added between
/// two of them.
const SWEEP_EVERY: u64 = 32;

/// Result of a search.
enum Outcome {
    /// A sharer is alive until then, or the search continues then.
    Lives(UnixMillis),
    Nobody,
    NotALock,
}

impl Server {
    /// Finds out whether any sharer of this lock is alive, and records it in `case`. Removes the expired ones
    /// that it finds: the key is open for writing.
    pub(crate) fn find_living(&mut self, case: &mut Case<'_>, key: &Key<'_>, unasked: bool) {
        let Observed::Shared(mut sharing) = case.at.seen else { return };
        case.at.seen = match self.search_living(case, key, &mut sharing, true, unasked) {
            Outcome::Lives(until) => Observed::Shared(Sharing { living: Some(until), ..sharing }),
            Outcome::Nobody => Observed::Free { stored: sharing.token },
            Outcome::NotALock => Observed::NotALock { until: sharing.until },
        }
    }

    /// Returns whether a live sharer prevents an exclusive grant to the first waiter, and records it in `case`.
    /// Writes nothing: expired sharers stay.
    pub(crate) fn is_shared_by_the_living(&mut self, case: &mut Case<'_>) -> bool {
        if !self.table.must_find_the_living(&case.at) {
            return false;
        }
        let Observed::Shared(mut sharing) = case.at.seen else { return false };
        let Some(key) = case.ctx.open_to_read(case.name) else { return false };
        let Outcome::Lives(until) = self.search_living(case, &key, &mut sharing, false, true)
        else {
            return false;
        };
        case.at.seen = Observed::Shared(Sharing { living: Some(until), ..sharing });
        true
    }

    fn search_living(
        &mut self,
        case: &Case<'_>,
        key: &Key<'_>,
        sharing: &mut Sharing<'_>,
        removes: bool,
        unasked: bool,
    ) -> Outcome {
        if let Some(until) = self.ask_witness(case, key) {
            return Outcome::Lives(until);
        }
        let mut next = case.at.now.unix();
        for _ in 0..ROUNDS_MAX {
            let fields = key.fields();
            if unasked
                && let Some(turn) = self.holders.searches.turn(case.at.key, fields, case.at.now)
            {
                next = turn;
                break;
            }
            let go = Go { wanted: Wanted::Anybody, fields, removes, unasked };
            let found = self.holders.go(case.at.key, key, go, case.at.now);
            if found.has_others {
                return Outcome::NotALock;
            }
            if removes {
                self.bury(key, &found.dead);
                sharing.holders -= found.dead.len().min(sharing.holders);
            }
            // Fields with a TTL of their own that is over count, and are not shown.
            let all = found.whole || !removes && found.passed == Some(None);
            match found.living {
                Some((_, until)) => return Outcome::Lives(until),
                None if all || sharing.holders == 0 => return Outcome::Nobody,
                None if found.dead.is_empty() => break,
                None => {}
            }
        }
        Outcome::Lives(next)
    }

    /// Asks the holder that was alive the last time. That it is one of this lock is seen by that
    /// it has a share there.
    fn ask_witness(&mut self, case: &Case<'_>, key: &Key<'_>) -> Option<UnixMillis> {
        let owner = Text::new(self.holders.searches.witness(case.at.key)?);
        let [share] = key.get([owner.lend()]);
        let share = Share::read(share?.lend().bytes())?;
        share.is_live(case.at.now.unix()).then_some(share.until)
    }

    /// Removes some expired sharers, at random joins and renewals. Needed for a lock that is shared all the
    /// time, because such a lock is never searched.
    pub(crate) fn sweep(&mut self, case: &Case<'_>) {
        // The microseconds are as good as a random number: no pattern of commands can evade them.
        let is_due = case.at.now.unix_us.is_multiple_of(SWEEP_EVERY);
        if !is_due {
            return;
        }
        let Some(key) = case.ctx.open_to_write(case.name) else { return };
        let (wanted, fields) = (Wanted::SomeDead, key.fields());
        let go = Go { wanted, fields, removes: true, unasked: false };
        let found = self.holders.go(case.at.key, &key, go, case.at.now);
        if !found.has_others {
            self.bury(&key, &found.dead);
        }
    }

    fn bury(&mut self, key: &Key<'_>, dead: &BTreeMap<Box<[u8]>, u64>) {
        let dead: Vec<_> = dead.keys().map(|owner| Text::new(owner)).collect();
        self.holders.swept += u64::try_from(dead.len()).unwrap_or(0);
        key.unset(dead.iter().map(Text::lend));
    }
}
