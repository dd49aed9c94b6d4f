//! A lock that is held alone travels as a whole, as `DUMP` would tell of it: what arrives is what
//! `HSET` and `PEXPIREAT` would have made.

use crate::stage::{LONG, SOON, Stage, hash};
use harness::{Connection, Kind, Options, Server, Value, cmd, observe, on_each_server};

/// Owners as short and as long as they may be, and about as long as what the servers keep in a
/// small form, or write the length of in one byte.
const LENGTHS: [usize; 6] = [1, 63, 64, 65, 255, 1_024];

/// Takes locks, and hands some over: of each kind one for an owner of each length.
fn some_locks(stage: &mut Stage) -> Vec<String> {
    let mut keys = Vec::new();
    for length in LENGTHS {
        let owner = "o".repeat(length);
        let [taken, handed, passed, again] =
            ["taken", "handed", "passed", "again"].map(|key| format!("{key}{length}"));
        stage.hold(&taken, &owner, LONG);
        stage.hold(&handed, "alice", LONG);
        let mut waiter = stage.wait(&handed, &owner);
        stage.release(&handed, "alice");
        stage.granted(&mut waiter);
        // On from that owner, once more, and to one who has something to say.
        stage.hold(&passed, &owner, LONG);
        for (before, next) in [(owner.as_str(), "bob"), ("bob", "carol")] {
            let mut waiter = stage.wait(&passed, next);
            stage.release(&passed, before);
            stage.granted(&mut waiter);
        }
        let mut dave = stage.server.connect();
        let id = dave.client_id();
        dave.send(cmd!["LOCK.WAIT", passed.as_str(), "dave", LONG, 0, "VALUE", "here"]);
        observe::wait_until_blocked(&mut stage.eye, id);
        stage.release(&passed, "carol");
        stage.granted_unseen();
        assert_eq!(dave.receive(SOON).unwrap()[1], Value::Integer(1));
        // One of Redisson's, which has no token.
        stage.eye.call(cmd!["HSET", again.as_str(), "redisson", "1"]);
        stage.eye.call(cmd!["PEXPIRE", again.as_str(), LONG]);
        let mut waiter = stage.wait(&again, &owner);
        stage.eye.call(cmd!["LOCK.RELEASE", again.as_str(), "redisson"]);
        stage.granted(&mut waiter);
        stage.eye.call(cmd!["LOCK.ACQUIRE", again.as_str(), owner.as_str(), 2 * LONG]);
        keys.extend([taken, handed, passed, again]);
    }
    keys
}

/// What a server has at a key: its form, its fields, its end; and to the byte, where the form has
/// an order.
fn there(connection: &mut Connection, key: &str) -> Vec<String> {
    let form = connection.call(cmd!["OBJECT", "ENCODING", key]).text();
    let end = connection.call(cmd!["PEXPIRETIME", key]).integer().to_string();
    let fields = format!("{:?}", hash(connection, key));
    let dump = connection.call(cmd!["DUMP", key]);
    let dump = if form == "listpack" { format!("{:?}", dump.bytes()) } else { String::new() };
    vec![form, end, fields, dump]
}

fn what_arrives_is_what_is_here(kind: Kind) {
    let options = |options: Options| {
        let options = options.append_only("always").config("aof-use-rdb-preamble", "no");
        options.config("sanitize-dump-payload", "yes")
    };
    let mut stage = Stage::with_both(&kind, options);
    let keys = some_locks(&mut stage);
    stage.check();
    let all = |server: &Server| {
        let mut connection = server.connect();
        keys.iter().map(|key| there(&mut connection, key)).collect::<Vec<_>>()
    };
    let ours = all(&stage.server);
    for (key, ours) in keys.iter().zip(&ours) {
        assert!(ours[1].len() == 13 && ours[2].contains("fencing-token"), "{key}: {ours:?}");
    }
    assert_eq!(all(&stage.replica), ours);
    stage.server.kill9();
    let reader = options(Server::options().kind(&kind)).without_module().dir(stage.server.dir());
    assert_eq!(all(&reader.start()), ours);
}

/// However the files were written, a server without the module reads the same, and one with it goes on.
fn what_is_in_the_files_is_what_there_was(kind: Kind) {
    for (files, preamble, end) in [
        (true, "yes", "PING"),
        (true, "no", "BGREWRITEAOF"),
        (true, "yes", "BGREWRITEAOF"),
        (false, "no", "SAVE"),
    ] {
        let options = |options: Options| {
            let options = options.config("aof-use-rdb-preamble", preamble);
            if files { options.append_only("always") } else { options }
        };
        let mut stage = Stage::with_both(&kind, options);
        let keys = some_locks(&mut stage);
        let all = |server: &Server| {
            let mut connection = server.connect();
            keys.iter().map(|key| there(&mut connection, key)).collect::<Vec<_>>()
        };
        let before = all(&stage.server);
        stage.run(end);
        observe::wait_for_info(&mut stage.eye, "aof_rewrite_in_progress", 0);
        stage.server.kill9();
        let again = || options(Server::options().kind(&kind)).dir(stage.server.dir());
        let plain = again().without_module().start();
        assert_eq!(all(&plain), before, "{preamble} {end}");
        plain.kill9();
        let server = again().start();
        assert_eq!(server.connect().run("LOCK.RELEASE passed1 dave"), Value::Integer(0));
    }
}

fn a_replica_of_a_newer_version_has_the_same(kind: Kind) {
    let mut stage = Stage::of_versions(&Kind::named("redis-7.0"), &kind);
    let keys = some_locks(&mut stage);
    stage.check();
    for key in &keys {
        let (ours, theirs) = (there(&mut stage.eye, key), there(&mut stage.replica.connect(), key));
        // The end of a dump is its version.
        assert_eq!(ours[..3], theirs[..3], "{key}");
    }
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
    what_arrives_is_what_is_here,
    what_is_in_the_files_is_what_there_was,
    a_replica_of_a_newer_version_has_the_same
);
