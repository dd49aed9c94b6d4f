//! `kvlock.quarantine-ms` in a cluster. Other tests of this option are in `transcripts/quarantine.txt` and
//! `transcripts/promotions.txt`.

use crate::asking::{LONG, acquire, token};
use harness::cluster::Cluster;
use harness::{Connection, Kind, Options, Server, Value, cmd, observe, wait};
use std::time::Duration;

/// Longest wait for an effect of a failover.
const CHANGE: Duration = Duration::from_secs(30);

fn set(control: &mut Connection, ms: u64) {
    let set = control.call(cmd!["CONFIG", "SET", "kvlock.quarantine-ms", ms.to_string()]);
    assert_eq!(set, Value::Status("OK".into()));
}

fn left(control: &mut Connection) -> i64 {
    observe::info_number(control, "kvlock_quarantine_left_ms")
}

/// Options for a server with a long quarantine. The test ends the quarantine.
fn options(kind: &Kind) -> Options {
    Server::options().kind(kind).module_config("quarantine-ms", LONG)
}

#[test]
fn a_failover_in_a_cluster_begins_a_quarantine() {
    let cluster = Cluster::start_with(&options(&Kind::chosen()), 3, 1);
    let home = cluster.node_for("k");
    set(&mut home.connect(), 0);
    token(&acquire(&mut home.connect(), "k", "alice"));
    let replica = cluster.replica_of(home);
    let control = &mut replica.connect();
    observe::wait_for_replica(&mut home.connect(), control);
    assert_eq!(left(control), 0);
    // A coordinated failover begins a quarantine too: the server does not report whether a failover is
    // coordinated.
    cluster.fail_over(home);
    wait::until("it has the slot", CHANGE, || match left(control) {
        0 => Err("no quarantine".to_owned()),
        _ => Ok(()),
    });
    wait::until("it serves the lock", CHANGE, || {
        match control.call(cmd!["LOCK.RENEW", "k", "alice", LONG]) {
            Value::Integer(_) => Ok(()),
            other => Err(other.to_string()),
        }
    });
    assert_eq!(acquire(control, "other{k}", "bob"), Value::Nil);
    set(control, 0);
    token(&acquire(control, "other{k}", "bob"));
}
