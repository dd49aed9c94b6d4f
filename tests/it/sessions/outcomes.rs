//! Each place in line has one outcome, whatever happens to it and whoever asks twice.

use super::{Party, words};
use crate::stage::{LONG, Stage};
use harness::{Kind, cmd, on_each_server};

fn each_place_has_one_outcome(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    let mut granted = 0;
    for (number, end) in
        ["LOCK.RELEASE k alice", "DEL k", "LOCK.FORCERELEASE k", "LOCK.CANCEL k bob", "FLUSHALL"]
            .into_iter()
            .enumerate()
    {
        stage.hold("k", "alice", LONG);
        party.queue("k", "bob");
        // Asked again it is the same place.
        party.queue("k", "bob");
        stage.run(end);
        let told = party.read_next(granted);
        let what = if end.starts_with("LOCK.CANCEL") { "cancelled" } else { "granted" };
        assert_eq!(words(&told), [("bob", what)], "{end}");
        granted = number as i64 + 1;
        assert_eq!(told[0].number, granted);
        if what == "granted" {
            stage.granted_unseen();
            stage.expect_holder("k", "bob", 1, told[0].token);
        }
        stage.run("LOCK.FORCERELEASE k");
        assert_eq!(party.read(granted), [], "{end}");
    }
    assert_eq!((stage.counted("session_waits"), stage.counted("unread_outcomes")), (0, 0));
    stage.check();
}

/// A million outcomes that nobody reads are no way around the limits.
fn what_is_kept_for_readers_takes_the_room_of_waiters(kind: Kind) {
    let mut stage = Stage::with(&kind, |options| options.module_config("max-waiters", 5));
    let mut party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    for number in 0..5 {
        let owner = format!("owner{number}");
        party.queue("k", &owner);
        stage.run(&format!("LOCK.CANCEL k {owner}"));
    }
    let ask = cmd!["LOCK.WAIT", "k", "late", LONG, 0, "SESSION", party.id];
    assert_eq!(party.connection.call(&ask).code(), "QUEUEFULL");
    assert_eq!(party.read(0).len(), 5);
    assert_eq!(party.connection.call(&ask).code(), "QUEUEFULL");
    assert_eq!(party.read(5), []);
    party.queue("k", "late");
    stage.check();
}

on_each_server!(each_place_has_one_outcome, what_is_kept_for_readers_takes_the_room_of_waiters,);
