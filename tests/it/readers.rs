//! Locks that are shared: who dies, leaves or is killed among those who share them, and what
//! replicas, files, other clients and pauses make of it.

use crate::stage::{LONG, SOON, Stage};
use crate::trail::trail;
use harness::{Kind, Server, Value, cmd, on_each_server};

fn release_share(stage: &mut Stage, owner: &str) -> Value {
    stage.eye.call(cmd!["LOCK.RELEASE", "k", owner, "SHARED"])
}

fn effects_of_sharing_are_core_commands_in_one_transaction(kind: Kind) {
    let mut stage = Stage::with_files(&kind);
    stage.run("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut read = 0;
    let begun =
        "{HSET k lock-mode shared fencing-token t# alice 1 #; PEXPIREAT k #; SET kvlock:floor #}";
    for (line, expected) in [
        ("LOCK.ACQUIRE k alice 600000 SHARED", begun),
        ("LOCK.ACQUIRE k bob 900000 SHARED", "{HSET k bob 1 #; PEXPIREAT k #}"),
        ("LOCK.ACQUIRE k carol 60000 SHARED", "HSET k carol 1 #"),
        ("LOCK.RENEW k carol 70000", "HSET k carol 1 #"),
        ("LOCK.ACQUIRE k carol 1000 SHARED", "HSET k carol 2 #"),
        ("LOCK.RELEASE k carol SHARED", "HSET k carol 1 #"),
        ("LOCK.RELEASE k bob SHARED", "{HDEL k bob; PEXPIREAT k #}"),
        ("LOCK.RELEASE k carol SHARED", "HDEL k carol"),
        ("LOCK.RELEASE k alice SHARED", "DEL k"),
        ("LOCK.ACQUIRE k alice 600000", "RESTORE k # alice 1 fencing-token t# REPLACE ABSTTL"),
        ("LOCK.ACQUIRE k alice 60000 SHARED", "HSET k lock-mode exclusive 1"),
        ("LOCK.ACQUIRE k alice 900000 SHARED", "{HSET k lock-mode exclusive 2; PEXPIREAT k #}"),
        ("LOCK.RELEASE k alice SHARED ALL", "HDEL k lock-mode"),
        ("LOCK.ACQUIRE k alice 60000 SHARED", "HSET k lock-mode exclusive 1"),
        (
            "LOCK.RELEASE k alice",
            "{DEL k; HSET k lock-mode shared fencing-token t# alice 1 #; PEXPIREAT k #}",
        ),
    ] {
        assert!(!stage.run(line).is_error(), "{line}");
        let lines = trail(&stage.server);
        assert_eq!(lines[read..], [expected], "after {line}");
        read = lines.len();
    }
    // The last who shares it hands it over, and all who follow come in, at once.
    let mut writer = stage.wait("k", "writer");
    let mut readers = ["bob", "carol"].map(|owner| stage.wait_to_share("k", owner, LONG));
    release_share(&mut stage, "alice");
    (0..4).for_each(|_| stage.granted_unseen());
    stage.granted(&mut writer);
    stage.release("k", "writer");
    let tokens = readers.each_mut().map(|reader| stage.granted_elsewhere(reader));
    assert_eq!(tokens[0], tokens[1]);
    let begun = "HSET k lock-mode shared fencing-token t# bob 1 # carol 1 #; PEXPIREAT k #";
    let expected = [
        "RESTORE k # writer 1 fencing-token t# REPLACE ABSTTL".to_owned(),
        format!("{{DEL k; {begun}}}"),
    ];
    assert_eq!(trail(&stage.server)[read..], expected);
    stage.check();
}

fn who_dies_among_many_frees_its_share_and_the_last_one_the_lock(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("DEBUG SET-ACTIVE-EXPIRE 0");
    // More than fit into the small form of a hash; the longest lease is given back.
    for reader in 0..600 {
        stage.share("k", &format!("reader-{reader}"), 300 + reader % 3);
    }
    stage.share("k", "long", LONG);
    let mut writer = stage.wait("k", "writer");
    assert_eq!(release_share(&mut stage, "long"), Value::Integer(0));
    stage.granted(&mut writer);
    stage.check();
}

fn a_lock_whose_hundreds_of_readers_are_dead_is_free_for_the_first_who_asks(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for reader in 0..600 {
        stage.share("k", &format!("reader-{reader}"), 100);
    }
    stage.share("k", "long", LONG);
    release_share(&mut stage, "long");
    let end = stage.run("TIME")[0].text().parse::<i64>().unwrap() * 1000 + 1200;
    stage.wait_past(end);
    stage.hold("k", "writer", LONG);
    stage.check();
}

fn a_lock_that_is_always_shared_keeps_few_of_the_dead(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.share("k", "long", LONG);
    for reader in 0..6_000 {
        stage.share("k", &format!("reader-{reader}"), 1);
    }
    let left = stage.run("HLEN k").integer();
    assert!(left < 3_000, "{left} of 6000 dead readers are left");
    assert!(stage.counted("swept") > 3_000);
    assert_eq!(stage.run("LOCK.INFO k HOLDERS 1000").field("mode"), &Value::bulk("shared"));
    stage.check();
}

fn hundreds_who_wait_to_share_come_in_together_and_stop_at_the_next_writer(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut readers: Vec<_> =
        (0..200).map(|n| stage.wait_to_share("k", &format!("reader-{n}"), LONG)).collect();
    let mut writer = stage.wait("k", "writer");
    let mut late = stage.wait_to_share("k", "late", LONG);
    stage.release("k", "alice");
    let tokens: Vec<_> = readers.iter_mut().map(|r| stage.granted_elsewhere(r)).collect();
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    stage.expect_in_line(&mut [&mut writer, &mut late]);
    for reader in &readers {
        assert_eq!(release_share(&mut stage, &reader.owner), Value::Integer(0));
    }
    assert!(stage.granted(&mut writer) > tokens[0]);
    stage.release("k", "writer");
    stage.granted_elsewhere(&mut late);
    stage.check();
}

const READERS: i64 = 1_000;

/// How many are let in, at most, between two commands of somebody else: a few turns' worth, since
/// his commands may not have arrived in every turn.
const STEP: i64 = 256;

fn a_crowd_of_readers_is_let_in_a_few_at_a_time(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut eye = server.connect();
    eye.run("LOCK.ACQUIRE k writer 600000");
    let mut readers: Vec<_> = (0..READERS).map(|_| server.connect()).collect();
    for (number, reader) in readers.iter_mut().enumerate() {
        reader.send(cmd!["LOCK.WAIT", "k", format!("reader-{number}"), LONG, 0, "SHARED"]);
    }
    harness::observe::wait_for_waiters(&mut eye, "k", READERS);

    // More than the server reads in one turn, so that it looks every turn.
    let looks = 30_000;
    let mut observer = server.connect();
    observer.send_raw("LOCK.INFO k\r\n".repeat(looks).as_bytes());
    eye.send(cmd!["LOCK.RELEASE", "k", "writer"]);
    let mut seen = 0;
    for _ in 0..looks {
        let info = observer.receive(SOON).expect("an answer");
        let mode = info.field("mode");
        let shared = !mode.is_nil() && mode.text() == "shared";
        let inside = if shared { info.field("holders").integer() } else { 0 };
        assert!(inside - seen <= STEP, "{} were let in in one go", inside - seen);
        seen = inside;
    }
    assert_eq!(eye.receive(SOON).expect("released").integer(), 0);
    for reader in &mut readers {
        assert!(!reader.receive(SOON).expect("granted").is_error());
    }
    assert_eq!(eye.run("LOCK.INFO k").field("holders").integer(), READERS);
}

on_each_server!(
    a_crowd_of_readers_is_let_in_a_few_at_a_time,
    effects_of_sharing_are_core_commands_in_one_transaction,
    who_dies_among_many_frees_its_share_and_the_last_one_the_lock,
    a_lock_whose_hundreds_of_readers_are_dead_is_free_for_the_first_who_asks,
    a_lock_that_is_always_shared_keeps_few_of_the_dead,
    hundreds_who_wait_to_share_come_in_together_and_stop_at_the_next_writer,
);
