//! With the safeguards for a failure, no bad state is reachable. Without one of them, the known violation is
//! found.

use kvlock_model::worlds::{Row, SMALL};

fn are_right(wanted: impl Fn(&&Row) -> bool) {
    let rows = SMALL.iter().filter(wanted);
    let wrong: Vec<_> = rows.filter(|row| !row.explore().1).map(|row| row.name).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn with_every_safeguard_leases_and_failovers_reach_no_violation() {
    are_right(|row| row.is_safe() && !row.has_sessions());
}

#[test]
fn with_every_safeguard_sessions_reach_no_violation() {
    are_right(|row| row.is_safe() && row.has_sessions());
}

#[test]
fn without_a_safeguard_the_violation_is_found() {
    are_right(|row| !row.is_safe());
}
