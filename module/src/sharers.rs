//! Searches the sharers of a lock for a live one, and removes the fields of expired ones.
//!
//! A sharer is alive while its lease lasts. A search ends at the first live sharer that it finds, and the
//! next search checks this sharer first. A search that may write removes each
//! expired sharer that it finds.

use std::collections::BTreeMap;

use kvlock_core::{Observed, SearchPart, Share, Sharing, UnixMillis, Wanted};

use crate::holders::ROUNDS_MAX;
use crate::operate::Case;
use crate::redis::{Key, Text};
use crate::server::Server;

/// Average number of changes of a share (joins, re-entries, renewals, releases of some holds) between two
/// sweeps. A sweep checks more fields than the joins among them add.
const SWEEP_EVERY: u64 = 32;

/// Result of a search.
enum Outcome {
    /// A sharer is alive until this time, or the search is not finished and continues at this time.
    Lives(UnixMillis),
    Nobody,
    NotALock,
}

impl Server {
    /// Searches for a live sharer of this lock, and records the result in `case`. Removes the expired sharers
    /// that it finds, so `key` must be open for writing. `rounds` is the number of parts that are left for the
    /// command.
    pub(crate) fn find_live(
        &mut self,
        case: &mut Case<'_>,
        key: &Key<'_>,
        unasked: bool,
        rounds: &mut usize,
    ) {
        let Observed::Shared(sharing) = case.at.seen else { return };
        case.at.seen = match self.search_live(case, key, (true, unasked), rounds) {
            Outcome::Lives(until) => Observed::Shared(Sharing { living: Some(until), ..sharing }),
            Outcome::Nobody => Observed::Free { stored: sharing.token },
            Outcome::NotALock => Observed::NotALock { until: sharing.until },
        }
    }

    /// Returns whether a live sharer prevents an exclusive grant to the first waiter. Also `true` if the
    /// search is not finished. When it returns `true`, it records in `case` the end of the sharer's lease,
    /// or the time of the next search. Writes nothing: expired sharers stay in the hash.
    pub(crate) fn has_live_sharers(&mut self, case: &mut Case<'_>) -> bool {
        if !self.table.must_find_live_sharers(&case.at) {
            return false;
        }
        let Observed::Shared(sharing) = case.at.seen else { return false };
        let Some(key) = case.ctx.open_to_read(case.name) else { return false };
        let how = (false, true);
        let outcome = self.search_live(case, &key, how, &mut { ROUNDS_MAX });
        let Outcome::Lives(until) = outcome else { return false };
        case.at.seen = Observed::Shared(Sharing { living: Some(until), ..sharing });
        true
    }

    fn search_live(
        &mut self,
        case: &Case<'_>,
        key: &Key<'_>,
        (removes, unasked): (bool, bool),
        rounds: &mut usize,
    ) -> Outcome {
        if let Some(until) = self.ask_witness(case, key) {
            return Outcome::Lives(until);
        }
        let mut next = case.at.now.unix();
        for _ in 0..(*rounds).max(1) {
            *rounds = rounds.saturating_sub(1);
            let fields = key.fields();
            if unasked
                && let Some(turn) = self.holders.searches.turn(case.at.key, fields, case.at.now)
            {
                next = turn;
                break;
            }
            let part = SearchPart { wanted: Wanted::Anybody, fields, removes, unasked };
            let found = self.holders.search(case.at.key, key, part, case.at.now);
            if found.has_others {
                return Outcome::NotALock;
            }
            if removes {
                self.bury(key, &found.dead);
            }
            let all = found.whole || !removes && found.passed == Some(None);
            match found.living {
                Some((_, until)) => return Outcome::Lives(until),
                None if all => return Outcome::Nobody,
                None if found.dead.is_empty() => break,
                None => {}
            }
        }
        Outcome::Lives(next)
    }

    /// Returns the end of the lease of the sharer that was found alive last. `None` if it has no live share
    /// in this hash.
    fn ask_witness(&mut self, case: &Case<'_>, key: &Key<'_>) -> Option<UnixMillis> {
        let owner = Text::new(self.holders.searches.witness(case.at.key)?);
        let [share] = key.get([owner.lend()]);
        let share = Share::read(share?.lend().bytes())?;
        share.is_live(case.at.now.unix()).then_some(share.until)
    }

    /// Called after a change of a share: in some of these calls, chosen at random, removes some expired
    /// sharers. Needed for a lock that is always shared: a search of such a lock ends at the first live
    /// sharer, before it has found all expired ones.
    pub(crate) fn sweep(&mut self, case: &Case<'_>) {
        // The microseconds serve as a random number: no pattern of commands can avoid every sweep.
        let is_due = case.at.now.unix_us.is_multiple_of(SWEEP_EVERY);
        if !is_due {
            return;
        }
        let Some(key) = case.ctx.open_to_write(case.name) else { return };
        let (wanted, fields) = (Wanted::SomeDead, key.fields());
        let part = SearchPart { wanted, fields, removes: true, unasked: false };
        let found = self.holders.search(case.at.key, &key, part, case.at.now);
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
