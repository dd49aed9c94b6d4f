//! With the safeguards for a failure, no bad state is reachable. Without one of them, the known violation is
//! found.

#![allow(missing_docs, reason = "these are tests")]

use kvlock_model::worlds::{Row, SMALL};

fn are_right(wanted: impl Fn(&&Row) -> bool) {
    let rows = SMALL.iter().filter(wanted);
    let wrong: Vec<_> = rows.filter(|row| !row.explore().1).map(|row| row.name).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn nothing_bad_is_reachable_by_leases_and_failovers_with_every_safeguard() {
    are_right(|row| row.is_safe() && !row.has_sessions());
}

#[test]
fn nothing_bad_is_reachable_by_sessions_with_every_safeguard() {
    are_right(|row| row.is_safe() && row.has_sessions());
}

#[test]
fn the_hole_is_found_where_one_is_off() {
    are_right(|row| !row.is_safe());
}
