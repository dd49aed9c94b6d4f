//! With the safeguards that a failure needs there is no bad state; without one of them the hole
//! that is known to be there is found.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and what it has explored is shown"
)]

mod explore;

use explore::{has_hole, is_safe};
use kvlock_model::World;

const ONE: &str = "one believes";

#[test]
fn one_server_and_careful_clients_are_safe() {
    is_safe(World::calm());
}

#[test]
fn a_lease_counted_from_the_answer_is_a_hole() {
    has_hole(World { from_sending: false, ..World::calm() }, ONE);
}

#[test]
fn a_waiter_that_confirms_nothing_is_a_hole() {
    let three = World { clients: 3, times: [1, 0, 0], ..World::calm() };
    has_hole(World { offer: false, ..three.clone() }, ONE);
    is_safe(three);
}

#[test]
fn a_shorter_renewal_that_arrives_late_is_a_hole_unless_it_is_counted_on() {
    has_hole(World { counts_late: false, ..World::late() }, ONE);
    is_safe(World::late());
}

#[test]
fn a_primary_that_dies_with_its_grants_is_a_hole_unless_they_are_confirmed_or_waited_out() {
    has_hole(World::failover(), ONE);
    is_safe(World { confirmed: 1, ..World::failover() });
    is_safe(World { quarantine: true, ..World::failover() });
}

#[test]
fn a_stale_replica_is_a_hole_unless_all_confirm() {
    let two = World { servers: 3, times: [1, 0, 0], ..World::failover() };
    has_hole(World { confirmed: 1, ..two.clone() }, ONE);
    is_safe(World { confirmed: 1, freshest: true, ..two.clone() });
    is_safe(World { confirmed: 2, ..two });
}

#[test]
fn a_primary_that_is_cut_off_is_a_hole_unless_everything_is_confirmed() {
    let cut = World { only_when_dead: false, confirmed: 1, ..World::failover() };
    // A lease long enough for a renewal in its middle to matter.
    let long = World { lease: 2, ..cut.clone() };
    has_hole(World { renewals_confirmed: false, ..long }, "believed is held");
    is_safe(cut);
}

#[test]
fn waiting_a_lease_out_is_a_hole_if_the_primary_before_goes_on() {
    let cut = World { only_when_dead: false, quarantine: true, ..World::failover() };
    let cut = World { ticks: 6, times: [1, 0, 0], ..cut };
    has_hole(cut.clone(), ONE);
    is_safe(World { min_replicas: true, ..cut });
}

#[test]
fn a_promoted_replica_without_a_floor_is_a_hole() {
    has_hole(World { floor: false, ..World::failover() }, "tokens grow");
}

#[test]
fn a_resource_that_does_not_look_is_a_hole() {
    let writing = World { times: [1, 0, 1], ..World::calm() };
    has_hole(World { fencing: false, ..writing.clone() }, "no stale write");
    is_safe(writing);
}
