//! The rows of the table: the fields of each lock, combined from several answers.

use super::Snapshot;
use crate::monitor::Entry;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// Column that the table is sorted by: largest value first, names in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Waiters,
    Longest,
    HandOffs,
    Waited,
    Name,
}

/// A lock or a semaphore.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) key: Vec<u8>,
    pub(super) is_semaphore: bool,
    pub(super) owner: Vec<u8>,
    /// Another lock that the first waiter still waits for, if it waits for several locks.
    pub(super) first_waits_for: Vec<u8>,
    pub(super) waiters: u64,
    pub(super) longest_ms: u64,
    /// Hand-offs since the profile began.
    hand_offs: u64,
    /// Hand-offs per second since the previous snapshot.
    pub(super) rate: f64,
    pub(super) waited_ms: u64,
    /// Average time for which the lock was held until a hand-off.
    pub(super) held_ms: Option<u64>,
}

/// Returns a row for each lock and semaphore whose name contains `filter`.
pub(super) fn rows(
    now: &Snapshot,
    before: Option<&Snapshot>,
    filter: &str,
    sort: Sort,
) -> Vec<Row> {
    let mut found = BTreeMap::<Vec<u8>, Row>::new();
    for lock in now.waited_for.iter().flatten() {
        let row = row_of(&mut found, lock);
        row.owner = lock.bytes("owner");
        row.first_waits_for = lock.bytes("first-waits-for");
        row.waiters = lock.number("waiters").unwrap_or_default();
        row.longest_ms = lock.number("longest-wait").unwrap_or_default();
    }
    let earlier: BTreeMap<_, _> = before
        .and_then(|before| before.profile.as_ref())
        .into_iter()
        .flatten()
        .map(|cost| (cost.bytes("key"), cost.number("hand-offs").unwrap_or_default()))
        .collect();
    let elapsed = before.map_or(Duration::ZERO, |before| now.at.duration_since(before.at));
    for cost in now.profile.iter().flatten() {
        let row = row_of(&mut found, cost);
        row.is_semaphore = cost.text("kind") == "semaphore";
        row.waited_ms = cost.number("waited").unwrap_or_default();
        row.hand_offs = cost.number("hand-offs").unwrap_or_default();
        let held = cost.number("held").filter(|_| !row.is_semaphore);
        row.held_ms = held.and_then(|held| held.checked_div(row.hand_offs));
        // A smaller number than before belongs to a new entry, for example after a reset of the profile.
        let before = earlier.get(&row.key).filter(|_| before.is_some());
        let since =
            before.map(|before| row.hand_offs.checked_sub(*before).unwrap_or(row.hand_offs));
        row.rate = per_second(since.unwrap_or_default(), elapsed);
    }
    let matches = |row: &Row| String::from_utf8_lossy(&row.key).contains(filter);
    let mut rows: Vec<_> = found.into_values().filter(matches).collect();
    rows.sort_by(|a, b| {
        let most = match sort {
            Sort::Waiters => {
                Reverse((a.waiters, a.longest_ms)).cmp(&Reverse((b.waiters, b.longest_ms)))
            }
            Sort::Longest => Reverse(a.longest_ms).cmp(&Reverse(b.longest_ms)),
            Sort::HandOffs => b.rate.total_cmp(&a.rate),
            Sort::Waited => Reverse(a.waited_ms).cmp(&Reverse(b.waited_ms)),
            Sort::Name => std::cmp::Ordering::Equal,
        };
        most.then_with(|| a.key.cmp(&b.key))
    });
    rows
}

fn row_of<'a>(found: &'a mut BTreeMap<Vec<u8>, Row>, entry: &Entry) -> &'a mut Row {
    let key = entry.bytes("key");
    found.entry(key.clone()).or_insert_with(|| Row { key, ..Row::default() })
}

/// Returns the number of events per second. 0 without elapsed time.
#[expect(clippy::cast_precision_loss, reason = "a rate on a screen has three digits")]
pub(super) fn per_second(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { count as f64 / elapsed.as_secs_f64() }
}
