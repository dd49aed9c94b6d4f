//! Replicas and the append-only file are told core commands only: what came of a command, never
//! the command, with absolute times, and all that came of one command as one transaction.

use crate::stage::{LONG, SOON, Stage, expect_closed, expect_same_data, hash, kill};
use harness::trail::trail;
use harness::{Kind, Server, Value, cmd, observe, on_each_server};
use nix::sys::signal::Signal;

/// Runs a line and sees what came of it in the file.
struct Scribe {
    stage: Stage,
    read: usize,
}

impl Scribe {
    fn new(kind: &Kind) -> Self {
        let mut stage = Stage::with_files(kind);
        // Only the module ends a lease: then it is known in which transaction.
        stage.run("DEBUG SET-ACTIVE-EXPIRE 0");
        Self { stage, read: 0 }
    }

    fn expect(&mut self, what: &str, expected: &[&str]) {
        let lines = trail(&self.stage.server);
        let new = &lines[self.read..];
        assert_eq!(new, expected, "after {what}");
        self.read = lines.len();
    }

    /// Of each line what is written is behind `=>`.
    fn all(&mut self, table: &str) {
        for row in table.lines() {
            let (line, expected) = row.split_once("=>").expect("what it writes");
            let expected: Vec<_> =
                Some(expected.trim()).filter(|it| !it.is_empty()).into_iter().collect();
            self.writes(line.trim(), &expected);
        }
    }

    fn writes(&mut self, line: &str, expected: &[&str]) {
        let reply = self.stage.run(line);
        assert!(!reply.is_error(), "{line}: {reply}");
        self.expect(line, expected);
    }
}

fn one_command_is_one_transaction_of_core_commands(kind: Kind) {
    let mut scribe = Scribe::new(&kind);
    // The floor of the tokens goes with the first grant.
    scribe.all(
        "LOCK.ACQUIRE k alice 600000 => {RESTORE k # alice 1 fencing-token t# REPLACE ABSTTL; SET kvlock:floor #}
         LOCK.WAIT l alice 600000 0 => RESTORE l # alice 1 fencing-token t# REPLACE ABSTTL
         LOCK.ACQUIRE k alice 1000 => HSET k alice 2
         LOCK.ACQUIRE k alice 900000 => {HSET k alice 3; PEXPIREAT k #}
         LOCK.ACQUIRE k alice 1000 HOLDS 3 =>
         LOCK.ACQUIRE k alice 990000 HOLDS 3 => PEXPIREAT k #
         LOCK.RELEASE k alice => HSET k alice 2
         LOCK.RELEASE k alice HOLDS 2 =>
         LOCK.RENEW k alice 600000 => PEXPIREAT k #
         LOCK.RELEASE k alice ALL => DEL k
         LOCK.FORCERELEASE k =>
         LOCK.FORCERELEASE l => DEL l
         LOCK.RELEASE k alice =>
         LOCK.RENEW k alice 1000 =>
         LOCK.CANCEL k alice =>
         LOCK.INFO k =>
         LOCK.LIST =>",
    );
    // A lock of Redisson gets its token with the first reentry.
    scribe.all(
        "HSET k redisson 1 => HSET k redisson 1
         PEXPIRE k 600000 => PEXPIREAT k #
         LOCK.ACQUIRE k bob 1000 =>
         LOCK.ACQUIRE k redisson 1000 => HSET k redisson 2 fencing-token t#",
    );
    // What a transaction or a script does is one as a whole.
    scribe.all(
        "MULTI =>
         LOCK.RELEASE k redisson ALL =>
         SET x y =>
         LOCK.ACQUIRE k bob 600000 =>
         EXEC => {DEL k; SET x y; RESTORE k # bob 1 fencing-token t# REPLACE ABSTTL}
         EVAL \"redis.call('LOCK.RENEW', 'k', 'bob', 600000) return redis.call('LOCK.RELEASE', 'k', 'bob')\" 1 k => {PEXPIREAT k #; DEL k}",
    );
}

fn effects_of_sharing_are_core_commands_in_one_transaction(kind: Kind) {
    let mut scribe = Scribe::new(&kind);
    scribe.all(
        "LOCK.ACQUIRE k alice 600000 SHARED => {HSET k lock-mode shared fencing-token t# alice 1 #; PEXPIREAT k #; SET kvlock:floor #}
         LOCK.ACQUIRE k bob 900000 SHARED => {HSET k bob 1 #; PEXPIREAT k #}
         LOCK.ACQUIRE k carol 60000 SHARED => HSET k carol 1 #
         LOCK.RENEW k carol 70000 => HSET k carol 1 #
         LOCK.ACQUIRE k carol 1000 SHARED => HSET k carol 2 #
         LOCK.RELEASE k carol SHARED => HSET k carol 1 #
         LOCK.RELEASE k bob SHARED => {HDEL k bob; PEXPIREAT k #}
         LOCK.RELEASE k carol SHARED => HDEL k carol
         LOCK.RELEASE k alice SHARED => DEL k
         LOCK.ACQUIRE k alice 600000 => RESTORE k # alice 1 fencing-token t# REPLACE ABSTTL
         LOCK.ACQUIRE k alice 60000 SHARED => HSET k lock-mode exclusive 1
         LOCK.ACQUIRE k alice 900000 SHARED => {HSET k lock-mode exclusive 2; PEXPIREAT k #}
         LOCK.RELEASE k alice SHARED ALL => HDEL k lock-mode
         LOCK.ACQUIRE k alice 60000 SHARED => HSET k lock-mode exclusive 1
         LOCK.RELEASE k alice => {DEL k; HSET k lock-mode shared fencing-token t# alice 1 #; PEXPIREAT k #}",
    );
    // The last who shares it hands it over, and all who follow come in, at once.
    let stage = &mut scribe.stage;
    let mut writer = stage.wait("k", "writer");
    let mut readers = ["bob", "carol"].map(|owner| stage.wait_to_share("k", owner, LONG));
    let begun = "HSET k lock-mode shared fencing-token t# bob 1 # carol 1 #; PEXPIREAT k #";
    scribe.writes(
        "LOCK.RELEASE k alice SHARED",
        &["RESTORE k # writer 1 fencing-token t# REPLACE ABSTTL"],
    );
    (0..4).for_each(|_| scribe.stage.granted_unseen());
    scribe.stage.granted(&mut writer);
    scribe.writes("LOCK.RELEASE k writer", &[&format!("{{DEL k; {begun}}}")]);
    let tokens = readers.each_mut().map(|reader| scribe.stage.granted_elsewhere(reader));
    assert_eq!(tokens[0], tokens[1]);
    scribe.stage.check();
}

fn effects_of_semaphores_and_latches_are_core_commands_in_one_transaction(kind: Kind) {
    let mut scribe = Scribe::new(&kind);
    scribe.all(
        "SEM.SET s 3 => HSET s lock-mode semaphore 3 0
         SEM.SET s 3 =>
         SEM.SET s 9 NX =>
         SEM.ACQUIRE s alice 2 600000 => HSET s lock-mode semaphore 3 2 alice 2 #
         SEM.ACQUIRE s alice 2 1000 HOLDS 2 =>
         SEM.ACQUIRE s bob 2 1000 =>
         SEM.ACQUIRE s bob 1 600000 => HSET s lock-mode semaphore 3 3 bob 1 #
         SEM.RENEW s bob 700000 => HSET s lock-mode semaphore 3 3 bob 1 #
         SEM.RELEASE s alice => HSET s lock-mode semaphore 3 2 alice 1 #
         SEM.RELEASE s alice => {HDEL s alice; HSET s lock-mode semaphore 3 1}
         SEM.SET s 2 => HSET s lock-mode semaphore 2 1
         LATCH.SET l 3 => HSET l lock-mode latch 3
         LATCH.SET l 5 =>
         LATCH.COUNTDOWN l => HSET l lock-mode latch 2
         LATCH.COUNTDOWN l bob => HSET l lock-mode latch 1 bob counted
         LATCH.COUNTDOWN l bob =>
         LATCH.SET l 1 REPLACE PX 600000 => {DEL l; HSET l lock-mode latch 1; PEXPIREAT l #}
         LATCH.COUNTDOWN l bob => DEL l
         LATCH.WAIT l bob 0 =>
         LATCH.SET l 2 PX 600000 => {HSET l lock-mode latch 2; PEXPIREAT l #}",
    );
    let mut carol = scribe.stage.server.connect();
    carol.send(cmd!["SEM.WAIT", "s", "carol", 2, LONG, 0]);
    observe::wait_for_blocked_clients(&mut scribe.stage.eye, 1);
    let handed_over =
        "{HDEL s bob; HSET s lock-mode semaphore 2 0; HSET s lock-mode semaphore 2 2 carol 2 #}";
    scribe.writes("SEM.RELEASE s bob", &[handed_over]);
    assert_eq!(carol.receive(SOON).unwrap(), Value::Integer(2));
    expect_same_data(&scribe.stage.server, &scribe.stage.replica);
}

fn a_hand_off_is_one_transaction_of_core_commands(kind: Kind) {
    let mut scribe = Scribe::new(&kind);
    let unlink = if kind.name().starts_with("valkey") { "UNLINK" } else { "DEL" };
    let to = |owner: &str| format!("RESTORE k # {owner} 1 fencing-token t# REPLACE ABSTTL");
    // Where the holder is known the hash is changed and not made anew: its field comes last then.
    let on_to = |owner: &str| format!("RESTORE k # fencing-token t# {owner} 1 REPLACE ABSTTL");
    scribe.stage.hold("k", "alice", LONG);
    let [mut bob, mut carol, mut dave, mut erin, mut frank, mut grace] =
        ["bob", "carol", "dave", "erin", "frank", "grace"]
            .map(|owner| scribe.stage.wait("k", owner));
    scribe.expect(
        "waiting",
        &["{RESTORE k # alice 1 fencing-token t# REPLACE ABSTTL; SET kvlock:floor #}"],
    );

    scribe.writes("LOCK.RELEASE k alice", &[&on_to("bob")]);
    scribe.stage.granted(&mut bob);
    scribe.writes("LOCK.FORCERELEASE k", &[&to("carol")]);
    scribe.stage.granted(&mut carol);
    scribe.stage.run("DEL k");
    scribe.stage.granted(&mut dave);
    scribe.expect("DEL", &["DEL k", &to("dave")]);

    scribe.writes("LOCK.RENEW k dave 50", &["PEXPIREAT k #"]);
    scribe.stage.granted(&mut erin);
    scribe.expect("the end of a lease", &[&format!("{{{unlink} k; {}}}", to("erin"))]);

    let kill = kill(&frank);
    scribe.stage.at_once(&["LOCK.RELEASE k erin", &kill]);
    scribe.stage.granted_unseen();
    expect_closed(&mut frank);
    scribe.stage.granted(&mut grace);
    let [lost, passed_on] = ["frank", "grace"].map(on_to);
    scribe.expect("a grant that was taken back", &[&lost, &passed_on]);
    scribe.stage.check();
}

fn a_replica_without_the_module_can_take_over(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let alices = stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    stage.release("k", "alice");
    let bobs = stage.granted(&mut bob);
    stage.check();
    stage.server.kill9();
    let mut new = stage.replica.connect();
    new.run("REPLICAOF NO ONE");
    assert_eq!(hash(&mut new, "k")["bob"], "1");
    // The module may come later.
    let path = harness::module_file::path();
    new.call(cmd!["MODULE", "LOAD", path.to_str().unwrap()]);
    assert_eq!(new.run("LOCK.INFO k").field("token"), &Value::Integer(bobs));
    assert_eq!(new.run("LOCK.RELEASE k alice"), Value::Nil);
    assert_eq!(new.run("LOCK.RELEASE k bob"), Value::Integer(0));
    let carols = new.run("LOCK.ACQUIRE k carol 600000")[0].integer();
    assert!(carols > bobs && bobs > alices);
    let third = Server::options().kind(&kind).without_module().replica_of(&stage.replica).start();
    observe::wait_for_replica(&mut new, &mut third.connect());
    expect_same_data(&stage.replica, &third);
}

fn waiting_for_replicas_covers_a_grant_that_was_waited_for(kind: Kind) {
    let mut stage = Stage::with_files(&kind);
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    stage.replica.signal(Signal::SIGSTOP);
    stage.release("k", "alice");
    stage.granted(&mut bob);
    // Nobody but him has asked for anything since: it is his grant that is not there yet.
    assert_eq!(bob.connection.run("WAIT 1 200"), Value::Integer(0));
    if !kind.is_redis_7_0() {
        let here_and_there = bob.connection.run("WAITAOF 1 0 5000");
        assert_eq!(here_and_there[0], Value::Integer(1), "{here_and_there}");
    }
    stage.run("LOCK.RENEW k bob 50");
    stage.granted(&mut carol);
    assert_eq!(carol.connection.run("WAIT 1 200"), Value::Integer(0));
    stage.replica.signal(Signal::SIGCONT);
    assert_eq!(carol.connection.run("WAIT 1 5000"), Value::Integer(1));
    assert_eq!(hash(&mut stage.replica.connect(), "k")["carol"], "1");
    stage.check();
}

/// What a command does is told to replicas and files as commands of the server. A server on which one
/// of these has another name could not do that: the module must not seem to work there.
fn a_server_that_has_renamed_what_is_replicated_refuses_the_module(kind: Kind) {
    let path = harness::module_file::path();
    for name in
        ["RESTORE", "HSET", "HDEL", "PEXPIREAT", "DEL", "UNLINK", "SET", "PUBLISH", "EXISTS"]
    {
        let renamed = Server::options().kind(&kind).without_module();
        let server = renamed.config("rename-command", format!("{name} \"\"")).start();
        let reply = server.connect().call(cmd!["MODULE", "LOAD", path.to_str().unwrap()]);
        assert!(reply.is_error(), "{name}: {reply}");
        let line = format!("not loaded: this server knows no command \"{name}\"");
        assert!(server.log().contains(&line), "{}", server.log());
        server.assert_alive();
    }
}

on_each_server!(
    a_server_that_has_renamed_what_is_replicated_refuses_the_module,
    waiting_for_replicas_covers_a_grant_that_was_waited_for,
    one_command_is_one_transaction_of_core_commands,
    effects_of_sharing_are_core_commands_in_one_transaction,
    effects_of_semaphores_and_latches_are_core_commands_in_one_transaction,
    a_hand_off_is_one_transaction_of_core_commands,
    a_replica_without_the_module_can_take_over,
);
