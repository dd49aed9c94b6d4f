//! While nothing may be written: in pauses, and with a disk that fails. Most of it is in
//! `transcripts/pauses.txt` and `refused_writes.txt`.

use crate::stage::{LONG, SOON, Stage};
use harness::{Kind, Server, Value, cmd, observe, on_each_server, wait};

fn pauses_one_after_another_under_load_lose_nothing(kind: Kind) {
    let server = Server::options().kind(&kind).append_only("everysec").start();
    let mut control = server.connect();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let server = &server;
                scope.spawn(move || {
                    let mut connection = server.connect();
                    for turn in 0..60 {
                        let owner = format!("{client}:{turn}");
                        let reply = connection.call(cmd!["LOCK.WAIT", "k", owner, 20, 5000]);
                        assert!(!reply.is_nil() && !reply.is_error(), "{reply}");
                        if turn % 3 > 0 {
                            connection.call(cmd!["LOCK.RELEASE", "k", owner]);
                        }
                    }
                })
            })
            .collect();
        while clients.iter().any(|client| !client.is_finished()) {
            control.run("CLIENT PAUSE 30 WRITE");
            observe::wait_for_next_cron(&mut control);
        }
    });
    server.assert_alive();
}

fn a_failing_disk_refuses_a_lock_and_its_waiters(kind: Kind) {
    let mut stage = Stage::new(&kind);
    // A folder in the place of the snapshot lets every snapshot fail, also for root.
    std::fs::create_dir(stage.server.dir().join("dump.rdb")).unwrap();
    stage.run("CONFIG SET stop-writes-on-bgsave-error no");
    stage.run("CONFIG SET save \"3600 1000000\"");
    assert!(!stage.run("BGSAVE").is_error());
    wait::until("the snapshot has failed", SOON, || {
        match observe::info_field(&mut stage.eye, "rdb_last_bgsave_status") {
            Some(status) if status == "err" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    stage.hold("k", "alice", LONG);
    let mut waiters = ["bob", "carol"].map(|owner| stage.wait("k", owner));
    stage.let_the_lease_end_after("CONFIG SET stop-writes-on-bgsave-error yes");
    for waiter in &mut waiters {
        assert_eq!(waiter.connection.receive(SOON).unwrap().code(), "MISCONF");
    }
    assert_eq!((stage.run("EXISTS k"), stage.counted("waiters")), (Value::Integer(0), 0));
    for line in ["ACQUIRE k bob 1000", "WAIT k bob 1000 0", "RENEW k bob 1000"] {
        assert_eq!(stage.run(&format!("LOCK.{line}")).code(), "MISCONF", "{line}");
    }
    stage.run("CONFIG SET stop-writes-on-bgsave-error no");
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    stage.release("k", "alice");
    stage.granted(&mut bob);
    stage.check();
}

on_each_server!(
    pauses_one_after_another_under_load_lose_nothing,
    a_failing_disk_refuses_a_lock_and_its_waiters,
);
