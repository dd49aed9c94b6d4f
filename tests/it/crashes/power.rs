//! The power goes while the disk is slow and the file is synced once a second: what was answered
//! meanwhile is lost, and no more.

use super::aftermath::Cost;
use super::killed::{LONG, SHORT};
use super::trial::Trial;
use crate::asking::{acquire, release, token};
use harness::disk::Disk;
use harness::{Options, Server, Value};
use std::cell::Cell;
use std::time::Duration;

/// How long each sync takes: what is answered right before the power goes cannot be safe.
const SYNC: Duration = Duration::from_millis(1500);

fn lose_power(options: Options, lease: Duration, crashes: usize, to_the_end: bool) -> Cost {
    let disk = Disk::new();
    let server = options.append_only("everysec").disk(&disk).start();
    let trial = Trial { server: &server, crashes, grants: 1000, lease, to_the_end };
    let safe = |life: usize| format!("safe:{life}");
    let lives = Cell::new(0);
    let cost = trial.run(
        || {
            token(&acquire(&mut server.connect(), &safe(lives.get()), "alice"));
            lives.set(lives.get() + 1);
            disk.wait_until_synced(&server);
            disk.delay_syncs(SYNC);
        },
        || {
            disk.cut_power(&server);
            disk.delay_syncs(Duration::ZERO);
        },
    );
    assert_eq!(lives.get(), crashes);
    for life in 0..crashes {
        assert_eq!(release(&mut server.connect(), &safe(life), "alice"), Value::Integer(0));
    }
    cost
}

#[test]
fn what_was_not_synced_is_lost_and_granted_again() {
    let cost = lose_power(Server::options(), LONG, 3, false);
    println!("appendfsync everysec, power cut: {cost}");
    assert!(cost.lost > 0 && cost.twice > 0, "{cost}");
}

#[test]
fn a_quarantine_as_long_as_the_leases_grants_nothing_twice() {
    let options = Server::options().module_config("quarantine-ms", SHORT.as_millis());
    let cost = lose_power(options, SHORT, 3, true);
    println!("appendfsync everysec, power cut, quarantine: {cost}");
    assert!(cost.lost > 0, "{cost}");
    assert_eq!(cost.twice, 0, "{cost}");
}
