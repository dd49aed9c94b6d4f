//! The same for locks that are bound to sessions.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and what it has explored is shown"
)]

mod explore;

use explore::{has_hole, is_safe};
use kvlock_model::bound::{Client, World};

const ONE: &str = "one believes";

#[test]
fn what_is_bound_is_believed_no_longer_than_its_session() {
    is_safe(World::calm());
}

#[test]
fn a_session_counted_from_the_answer_is_a_hole() {
    has_hole(World { from_sending: false, ..World::calm() }, ONE);
}

#[test]
fn a_server_that_ends_a_session_early_is_a_hole() {
    has_hole(World { server_ttl: 1, ..World::calm() }, ONE);
}

#[test]
fn what_stays_when_its_session_is_gone_is_found() {
    has_hole(World { releases: false, ..World::calm() }, "freed with its session");
}

#[test]
fn a_session_that_frees_what_is_bound_to_another_is_a_hole() {
    let clients = vec![Client::BOUND, Client::OTHER];
    let two = World { clients, ticks: 4, ..World::calm() };
    has_hole(World { only_its_own: false, ..two.clone() }, ONE);
    is_safe(two);
}

#[test]
fn a_binding_that_counts_when_it_is_answered_is_a_hole() {
    has_hole(World { binds_before: false, ..World::restart() }, ONE);
}

#[test]
fn a_belief_that_moves_before_the_binding_is_a_hole() {
    // One heartbeat is late, and no binding.
    let twice = Client { opens: 2, beats: 2, ..Client::BOUND };
    let clients = vec![twice, Client::PLAIN];
    let left = World { clients, reads_on: false, ..World::calm() };
    has_hole(World { keeps_the_one_before: false, ..left.clone() }, ONE);
    is_safe(left);
}

#[test]
fn a_heartbeat_of_a_newer_session_is_a_hole_if_it_counts_for_the_one_before() {
    has_hole(World { own_beats: false, ..World::bound_anew() }, ONE);
}

#[test]
fn a_session_that_is_left_while_the_server_has_it_is_a_hole() {
    has_hole(World { reads_on: false, ..World::bound_anew() }, ONE);
    is_safe(World::bound_anew());
}

#[test]
fn a_reader_that_was_the_writer_is_a_hole_unless_it_is_bound_anew() {
    let shares = Client { downgrades: 1, ..Client::BOUND };
    let world = World { clients: vec![shares, Client::PLAIN], ..World::calm() };
    has_hole(World { binds_anew: false, ..world.clone() }, ONE);
    is_safe(world);
}

#[test]
fn after_a_restart_the_lease_counts_until_it_is_bound_anew() {
    is_safe(World::restart());
}
