//! `kill -9` of a server under load: with a file, without one, and without one but with a
//! quarantine.

use super::trial::Trial;
use harness::Server;
use std::time::Duration;

/// Over after the test.
pub(super) const LONG: Duration = Duration::from_secs(600);

/// Long enough for a start, short enough to be waited for.
pub(super) const SHORT: Duration = Duration::from_secs(2);

#[test]
fn nothing_is_lost_that_is_on_the_disk_before_it_is_answered() {
    let server = Server::options().append_only("always").start();
    let trial = Trial { server: &server, crashes: 20, grants: 500, lease: LONG, to_the_end: false };
    let cost = trial.run(|| {}, || server.kill9());
    println!("appendfsync always: {cost}");
    assert!(cost.standing > 0);
    assert_eq!((cost.lost, cost.twice), (0, 0), "{cost}");
}

/// This is the hole; and the tests here can see it.
#[test]
fn without_a_file_all_is_lost_and_granted_again() {
    let server = Server::start();
    let trial = Trial { server: &server, crashes: 2, grants: 1000, lease: LONG, to_the_end: false };
    let cost = trial.run(|| {}, || server.kill9());
    println!("no file: {cost}");
    assert!(cost.standing > 0);
    assert_eq!((cost.lost, cost.twice), (cost.standing, cost.standing), "{cost}");
}

#[test]
fn without_a_file_a_quarantine_as_long_as_the_leases_grants_nothing_twice() {
    let ms = SHORT.as_millis();
    let server = Server::options().module_config("quarantine-ms", ms).start();
    let trial = Trial { server: &server, crashes: 3, grants: 1000, lease: SHORT, to_the_end: true };
    let cost = trial.run(|| {}, || server.kill9());
    println!("no file, quarantine: {cost}");
    assert!(cost.lost > 0, "{cost}");
    assert_eq!((cost.lost, cost.twice), (cost.standing, 0), "{cost}");
}
