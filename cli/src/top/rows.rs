//! The lines of the table: what is known of each lock, put together.

use super::Seen;
use crate::watched::Entry;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the table is sorted by; the most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Waiters,
    Longest,
    HandOffs,
    Waited,
    Name,
}

/// A lock.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) key: Vec<u8>,
    pub(super) is_semaphore: bool,
    pub(super) owner: Vec<u8>,
    pub(super) waiters: u64,
    pub(super) longest_ms: u64,
    /// How many got it by waiting since it has a place in the profile.
    hand_offs: u64,
    /// The same, a second.
    pub(super) rate: f64,
    pub(super) waited_ms: u64,
    /// How long it was held on average by those who handed it on.
    pub(super) held_ms: Option<u64>,
}

/// All locks that somebody waits for or that have cost something, of those whose name contains this.
pub(super) fn rows(now: &Seen, before: Option<&Seen>, filter: &str, sort: Sort) -> Vec<Row> {
    let mut found = BTreeMap::<Vec<u8>, Row>::new();
    for lock in now.waited_for.iter().flatten() {
        let row = row_of(&mut found, lock);
        row.owner = lock.bytes("owner");
        row.waiters = lock.number("waiters").unwrap_or_default();
        row.longest_ms = lock.number("longest-wait").unwrap_or_default();
    }
    let earlier: BTreeMap<_, _> = before
        .and_then(|before| before.costs.as_ref())
        .into_iter()
        .flatten()
        .map(|cost| (cost.bytes("key"), cost.number("hand-offs").unwrap_or_default()))
        .collect();
    let elapsed = before.map_or(Duration::ZERO, |before| now.at.duration_since(before.at));
    for cost in now.costs.iter().flatten() {
        let row = row_of(&mut found, cost);
        row.is_semaphore = cost.text("kind") == "semaphore";
        row.waited_ms = cost.number("waited").unwrap_or_default();
        row.hand_offs = cost.number("hand-offs").unwrap_or_default();
        let held = cost.number("held").filter(|_| !row.is_semaphore);
        row.held_ms = held.and_then(|held| held.checked_div(row.hand_offs));
        // Less than before: the profile was begun anew.
        let before = earlier.get(&row.key).filter(|_| before.is_some());
        let since =
            before.map(|before| row.hand_offs.checked_sub(*before).unwrap_or(row.hand_offs));
        row.rate = a_second(since.unwrap_or_default(), elapsed);
    }
    let is_meant = |row: &Row| String::from_utf8_lossy(&row.key).contains(filter);
    let mut rows: Vec<_> = found.into_values().filter(is_meant).collect();
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

/// So many in that time, a second.
#[expect(clippy::cast_precision_loss, reason = "a rate on a screen has three digits")]
pub(super) fn a_second(many: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { many as f64 / elapsed.as_secs_f64() }
}
