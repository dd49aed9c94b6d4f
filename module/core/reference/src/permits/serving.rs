//! Serves waiters for permits, and takes back grants that reach no client.

use kvlock_core::{AcquireReply, Cause, Dismissal, PermitsChange, Served};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::world::{Flight, KEY, Key, World};

/// Largest number of grants in one batch.
const BATCH: u64 = 2;

impl World {
    pub fn lost(&mut self, nth: usize) -> TestCaseResult {
        let Flight { id, owner, permits, untouched } = self.flights.remove(nth);
        let had = self.of(owner).map(|(permits, _)| permits);
        let at = self.at(owner);
        let change = self.table.take_permits_back(&at, id, owner.as_bytes(), permits);
        let frees = self.write(owner, change)?;
        self.counters.grants_taken_back += u64::from(untouched && had.is_some());
        let left = had.map(|had| if untouched { had.saturating_sub(permits) } else { had });
        let left = left.filter(|left| *left > 0);
        prop_assert_eq!(self.of(owner).map(|(permits, _)| permits), left);
        if frees { self.serve(Cause::TakenBack) } else { Ok(()) }
    }

    /// Serves waiters from the head of the queue until one has to wait or the batch is full.
    pub fn serve(&mut self, cause: Cause) -> TestCaseResult {
        self.earliest = None;
        let enough = self.counters.granted + BATCH;
        while let Some(first) = self.waits.first() {
            if self.counters.granted == enough {
                self.table.serve_soon(KEY, cause, self.now());
                return Ok(());
            }
            let (owner, permits, lease, holds) =
                (first.owner, first.permits, first.lease, first.holds);
            if self.key == Key::Unset {
                // The waiters are dismissed.
                let client = self.waits.remove(0).client;
                prop_assert_eq!(
                    self.table.dismiss_one_of(KEY, Dismissal::Unset),
                    Some(Some(client))
                );
                continue;
            }
            let (had, until) = self.of(owner).unwrap_or((0, 0));
            let at = self.at_with(owner, permits);
            let free = self.free();
            match self.table.serve_permits(&at, cause) {
                Served::Dismissed(client, why) => {
                    let misfit = Dismissal::Misfit(AcquireReply::Mismatch);
                    let is_misfit = holds.is_some_and(|n| n != had + permits);
                    prop_assert_eq!(why, if is_misfit { misfit } else { Dismissal::TooMany });
                    let too_many = self.limit().is_some_and(|limit| had + permits > limit);
                    prop_assert!(is_misfit || too_many);
                    prop_assert_eq!(client, Some(self.waits.remove(0).client));
                }
                Served::NotYet => {
                    let no_more = free < permits || self.in_quarantine();
                    prop_assert!(no_more, "the first in line could be served");
                    return Ok(());
                }
                Served::Granted(hand_off, share, used) => {
                    prop_assert!(free >= permits, "I12");
                    prop_assert!(
                        holds.is_none_or(|n| n == had + permits),
                        "not what was asked for"
                    );
                    prop_assert!(!self.in_quarantine(), "I13");
                    prop_assert_eq!(hand_off.client, Some(self.waits.remove(0).client));
                    prop_assert_eq!(hand_off.until.0, self.now + lease);
                    let until = until.max(self.now + lease);
                    prop_assert_eq!((share.holds, share.until.0), (had + permits, until));
                    self.write(owner, PermitsChange::Own { share: Some(share), used })?;
                    self.counters.granted += 1;
                    self.counters.handed_off += 1;
                    self.counters.handed_off_by_expiry += u64::from(cause == Cause::Expiry);
                    // This owner has waited again since its last grant, so it has received that grant.
                    self.touch(owner);
                    let id = hand_off.id;
                    self.flights.push(Flight { id, owner, permits, untouched: true });
                }
            }
        }
        Ok(())
    }

    pub fn timer(&mut self) -> TestCaseResult {
        let now = self.now();
        self.table.end_quarantine(now);
        while let Some(client) = self.table.time_out_one(now) {
            let ends = self.waits.iter().map(|wait| wait.end.unwrap_or(u64::MAX));
            let first = ends.enumerate().min_by_key(|(_, end)| *end);
            let Some((place, end)) = first else {
                return Err(TestCaseError::fail("nobody waits"));
            };
            prop_assert!(end <= self.now, "a wait ended early");
            prop_assert_eq!(Some(self.waits.remove(place).client), client);
            self.counters.timeouts += 1;
        }
        prop_assert!(self.waits.iter().all(|wait| wait.end.is_none_or(|end| end > self.now)));
        let mut looks = 0;
        while let Some((key, cause)) = self.table.next_look(now) {
            prop_assert_eq!(key.borrow(), KEY);
            self.serve(cause)?;
            looks += 1;
            prop_assert!(looks < 5, "looks have no end");
        }
        // All due looks were taken. So the first waiter that is left cannot be served now.
        if let Some(first) = self.waits.first() {
            prop_assert!(self.key != Key::Unset, "it is gone, and they wait");
            let no_more =
                self.limit().is_none() || self.free() < first.permits || self.in_quarantine();
            prop_assert!(no_more, "{} are free and {first:?} is the first in line", self.free());
        }
        Ok(())
    }
}
