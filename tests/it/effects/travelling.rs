//! An exclusive lock is usually replicated as one value in the format of `DUMP`. The replica must then
//! have the same key as if it had received `HSET` and `PEXPIREAT`.

use crate::asking::{LONG, acquire, arrival, release, token};
use harness::agree::{expect_same_data, expect_unharmed, hash};
use harness::{Connection, Kind, Options, Server, Value, cmd, observe, on_each_server};

/// Lengths of owners: the shortest and longest allowed, and lengths around the limits at which servers change
/// the encoding of a hash or of a length.
const LENGTHS: [usize; 6] = [1, 63, 64, 65, 255, 1_024];

/// A server and a replica without the module, which has caught up.
fn pair(server: Options, replica: Options) -> (Server, Server) {
    let server = server.start();
    let replica = replica.without_module().replica_of(&server).start();
    observe::wait_for_replica(&mut server.connect(), &mut replica.connect());
    (server, replica)
}

/// Acquires locks, hands some of them over, and returns their keys. Does so for an owner of each of
/// [`LENGTHS`].
fn some_locks(server: &Server) -> Vec<String> {
    let mut eye = server.connect();
    // The next owner waits, with or without a `VALUE`, and gets the lock from the previous one.
    let pass_on = |key: &str, before: &str, next: &str, says: &[&str]| {
        let (mut eye, mut waiter) = (server.connect(), server.connect());
        let id = waiter.client_id();
        let mut command = cmd!["LOCK.WAIT", key, next, LONG, 0];
        command.extend(says.iter().map(|word| word.as_bytes().to_vec()));
        waiter.send(command);
        observe::wait_until_blocked(&mut eye, id);
        assert_eq!(release(&mut eye, key, before), Value::Integer(0));
        token(&arrival(&mut waiter));
    };
    let mut keys = Vec::new();
    for length in LENGTHS {
        let owner = "o".repeat(length);
        let [taken, handed, passed, again] =
            ["taken", "handed", "passed", "again"].map(|key| format!("{key}{length}"));
        token(&acquire(&mut eye, &taken, &owner));
        token(&acquire(&mut eye, &handed, "alice"));
        pass_on(&handed, "alice", &owner, &[]);
        // The lock passes from that owner to other owners, the last of which sets a `VALUE`.
        token(&acquire(&mut eye, &passed, &owner));
        pass_on(&passed, &owner, "bob", &[]);
        pass_on(&passed, "bob", "carol", &[]);
        pass_on(&passed, "carol", "dave", &["VALUE", "here"]);
        // A lock of Redisson, which has no token.
        eye.call(cmd!["HSET", again, "redisson", "1"]);
        eye.call(cmd!["PEXPIRE", again, LONG]);
        pass_on(&again, "redisson", &owner, &[]);
        eye.call(cmd!["LOCK.ACQUIRE", again, owner, 2 * LONG]);
        keys.extend([taken, handed, passed, again]);
    }
    keys
}

/// The value at a key: its encoding, expiry time and fields; also its bytes, if the encoding has an order.
fn there(connection: &mut Connection, key: &str) -> Vec<String> {
    let form = connection.call(cmd!["OBJECT", "ENCODING", key]).text();
    let end = connection.call(cmd!["PEXPIRETIME", key]).integer().to_string();
    let fields = format!("{:?}", hash(connection, key));
    let dump = connection.call(cmd!["DUMP", key]);
    let dump = if form == "listpack" { format!("{:?}", dump.bytes()) } else { String::new() };
    vec![form, end, fields, dump]
}

/// The values of all these keys on a server.
fn all(server: &Server, keys: &[String]) -> Vec<Vec<String>> {
    let mut connection = server.connect();
    keys.iter().map(|key| there(&mut connection, key)).collect()
}

/// A replica has the same values, and so has a server without the module that reads the files in any format.
/// A server with the module can continue to use the locks.
fn a_replica_and_the_files_have_the_same_locks(kind: Kind) {
    for (files, preamble, end) in [
        (true, "no", "PING"),
        (true, "yes", "PING"),
        (true, "no", "BGREWRITEAOF"),
        (true, "yes", "BGREWRITEAOF"),
        (false, "no", "SAVE"),
    ] {
        let options = || {
            let options = Server::options().kind(&kind).config("sanitize-dump-payload", "yes");
            let options = options.config("aof-use-rdb-preamble", preamble);
            if files { options.append_only("always") } else { options }
        };
        let (server, replica) = pair(options(), options());
        let keys = some_locks(&server);
        expect_unharmed(&server);
        expect_same_data(&server, &replica);
        let ours = all(&server, &keys);
        for (key, ours) in keys.iter().zip(&ours) {
            assert!(ours[1].len() == 13 && ours[2].contains("fencing-token"), "{key}: {ours:?}");
        }
        assert_eq!(all(&replica, &keys), ours, "{preamble} {end}");
        let mut eye = server.connect();
        // While the full synchronisation has a child process, `SAVE` fails and `BGREWRITEAOF` is delayed.
        observe::wait_for_info(&mut eye, "rdb_bgsave_in_progress", 0);
        let reply = eye.run(end);
        assert!(!reply.is_error(), "{end}: {reply}");
        observe::wait_for_info(&mut eye, "aof_rewrite_in_progress", 0);
        server.kill9();
        let plain = options().without_module().dir(server.dir()).start();
        assert_eq!(all(&plain, &keys), ours, "{preamble} {end}");
        plain.kill9();
        let server = options().dir(server.dir()).start();
        assert_eq!(server.connect().run("LOCK.RELEASE passed1 dave"), Value::Integer(0));
    }
}

fn a_replica_of_a_newer_version_has_the_same_locks(kind: Kind) {
    let of = |kind: &Kind| Server::options().kind(kind);
    let (server, replica) = pair(of(&Kind::named("redis-7.0")), of(&kind));
    let keys = some_locks(&server);
    expect_unharmed(&server);
    expect_same_data(&server, &replica);
    let (mut ours, mut theirs) = (server.connect(), replica.connect());
    for key in &keys {
        // A dump contains the version of its format.
        assert_eq!(there(&mut ours, key)[..3], there(&mut theirs, key)[..3], "{key}");
    }
}

/// Effects are replicated as the server's own commands. If one of these is renamed, the module cannot
/// replicate, so it must refuse to load.
fn a_server_that_renamed_a_replicated_command_refuses_the_module(kind: Kind) {
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
    a_server_that_renamed_a_replicated_command_refuses_the_module,
    a_replica_and_the_files_have_the_same_locks,
    a_replica_of_a_newer_version_has_the_same_locks
);
