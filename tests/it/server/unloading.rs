//! The module is loaded, unloaded and loaded again in a server that runs. What it remembers is who
//! waits; locks are data and stay. Nobody is left blocked by a module that is gone.

use crate::stage::{LONG, SOON, expect_unharmed, hash, token_of};
use harness::{Connection, Kind, Server, Value, cmd, module_file, observe, on_each_server, wait};
use std::path::Path;

fn start(kind: &Kind) -> (Server, Connection) {
    let server = Server::options().kind(kind).start();
    let eye = server.connect();
    (server, eye)
}

fn load(eye: &mut Connection, arguments: &[&str]) -> Value {
    let mut command = cmd!["MODULE", "LOAD", module_file::path().to_str().unwrap()];
    command.extend(arguments.iter().map(|argument| argument.as_bytes().to_vec()));
    eye.call(command)
}

fn ok() -> Value {
    Value::Status("OK".into())
}

/// A timer may have to fire first.
fn unload(eye: &mut Connection) {
    wait::until("the module is unloaded", SOON, || match eye.run("MODULE UNLOAD kvlock") {
        reply if reply == ok() => Ok(()),
        refused => Err(refused.to_string()),
    });
}

fn wait_in_line(server: &Server, eye: &mut Connection, owner: &str, timeout_ms: u64) -> Connection {
    let mut waiter = server.connect();
    let id = waiter.client_id();
    waiter.send(cmd!["LOCK.WAIT", "k", owner, LONG, timeout_ms]);
    observe::wait_until_blocked(eye, id);
    waiter
}

fn a_module_with_waiters_stays_and_goes_when_the_last_has_left(kind: Kind) {
    let (server, mut eye) = start(&kind);
    token_of(&eye.run("LOCK.ACQUIRE k alice 600000"));
    for end in ["cancel", "time", "close", "grant"] {
        let timeout = if end == "time" { 300 } else { 600_000 };
        let mut bob = wait_in_line(&server, &mut eye, "bob", timeout);
        let refused = eye.run("MODULE UNLOAD kvlock").to_string();
        assert!(refused.contains("blocked clients"), "{refused}");
        match end {
            "cancel" => {
                assert_eq!(eye.run("LOCK.CANCEL k bob"), Value::Integer(1));
                assert_eq!(bob.receive(SOON).unwrap(), Value::Nil);
            }
            "time" => assert_eq!(bob.receive(SOON).unwrap(), Value::Nil),
            "close" => bob.close(),
            _ => {
                assert_eq!(eye.run("LOCK.RELEASE k alice"), Value::Integer(0));
                token_of(&bob.receive(SOON).unwrap());
            }
        }
        unload(&mut eye);
        assert_eq!(eye.run("LOCK.INFO k").code(), "ERR");
        assert_eq!(load(&mut eye, &[]), ok());
    }
    assert_eq!(eye.run("LOCK.RELEASE k bob"), Value::Integer(0));
    expect_unharmed(&server);
}

fn a_module_that_comes_back_knows_the_locks(kind: Kind) {
    let (server, mut eye) = start(&kind);
    let last = token_of(&eye.run("LOCK.ACQUIRE k alice 600000"));
    let before = (hash(&mut eye, "k"), eye.run("PEXPIRETIME k"));
    for _ in 0..10 {
        unload(&mut eye);
        assert_eq!((hash(&mut eye, "k"), eye.run("PEXPIRETIME k")), before);
        assert_eq!(load(&mut eye, &[]), ok());
        let info = eye.run("LOCK.INFO k");
        assert_eq!(info.field("owner"), &Value::bulk("alice"));
        assert_eq!(info.field("token"), &Value::Integer(last));
        assert_eq!(eye.run("LOCK.ACQUIRE k bob 1000"), Value::Nil);
        let mut bob = wait_in_line(&server, &mut eye, "bob", 0);
        assert_eq!(eye.run("LOCK.CANCEL k bob"), Value::Integer(1));
        assert_eq!(bob.receive(SOON).unwrap(), Value::Nil);
    }
    expect_unharmed(&server);
}

fn a_drained_module_can_be_replaced(kind: Kind) {
    let (server, mut eye) = start(&kind);
    token_of(&eye.run("LOCK.ACQUIRE k alice 600000"));
    eye.run("LOCK.ACQUIRE l alice 600000");
    let mut other = server.connect();
    other.send(cmd!["LOCK.WAIT", "l", "bob", LONG, 0]);
    let mut line: Vec<_> = ["bob", "carol", "dave"]
        .map(|owner| wait_in_line(&server, &mut eye, owner, 0))
        .into_iter()
        .collect();
    observe::wait_for_blocked_clients(&mut eye, 4);
    assert_eq!(eye.run("CONFIG SET kvlock.drain yes"), ok());
    assert_eq!(other.receive(SOON).unwrap().code(), "TRYAGAIN");
    for waiter in &mut line {
        assert_eq!(waiter.receive(SOON).unwrap().code(), "TRYAGAIN");
    }
    assert_eq!(eye.run("LOCK.WAIT k bob 1000 0").code(), "TRYAGAIN");
    token_of(&eye.run("LOCK.WAIT free bob 600000 0"));
    assert_eq!(eye.run("LOCK.RENEW k alice 600000"), Value::Integer(600_000));
    unload(&mut eye);
    assert_eq!(load(&mut eye, &[]), ok());
    assert_eq!(eye.run("CONFIG GET kvlock.drain")[1], Value::bulk("no"));
    let mut bob = wait_in_line(&server, &mut eye, "bob", 0);
    assert_eq!(eye.run("LOCK.RELEASE k alice"), Value::Integer(0));
    token_of(&bob.receive(SOON).unwrap());
    expect_unharmed(&server);
}

fn a_module_that_is_told_nonsense_says_so_and_does_no_harm(kind: Kind) {
    let server = Server::options().kind(&kind).without_module().start();
    let mut eye = server.connect();
    for (arguments, says) in [
        (&["max-waiters", "0"][..], "max-waiters must be a number from 1 to"),
        (&["max-lease-ms", "soon"], "max-lease-ms must be a number"),
        (&["nonsense", "1"], "no option \"nonsense\""),
        (&["drain"], "pairs"),
        (&["max-waiters", "-1"], "max-waiters must be a number"),
        (&["quarantine-ms", "-1"], "quarantine-ms must be a number"),
        (&["redisson-channel", "loud"], "redisson-channel must be one of auto, both, no"),
    ] {
        assert!(load(&mut eye, arguments).is_error(), "{arguments:?}");
        let log = server.log();
        assert!(log.contains(says), "{arguments:?}: {log}");
        assert_eq!(eye.run("LOCK.INFO k").code(), "ERR");
        assert_eq!(eye.run("CONFIG GET kvlock.*"), Value::Array(Vec::new()));
    }
    let path = module_file::path();
    let bad = cmd!["MODULE", "LOADEX", path.to_str().unwrap(), "CONFIG", "kvlock.drain", "maybe"];
    assert!(eye.call(bad).is_error());
    let right = cmd!["MODULE", "LOADEX", path.to_str().unwrap(), "CONFIG", "kvlock.max-waiters", 7];
    assert_eq!(eye.call(right), ok());
    assert_eq!(eye.run("CONFIG GET kvlock.max-waiters")[1], Value::bulk("7"));
    token_of(&eye.run("LOCK.ACQUIRE k alice 600000"));
    let mut bob = wait_in_line(&server, &mut eye, "bob", 0);
    eye.run("DEL k");
    token_of(&bob.receive(SOON).unwrap());
    expect_unharmed(&server);
}

fn a_second_module_of_the_same_name_is_refused_and_the_first_goes_on(kind: Kind) {
    let (server, mut eye) = start(&kind);
    token_of(&eye.run("LOCK.ACQUIRE k alice 600000"));
    let mut bob = wait_in_line(&server, &mut eye, "bob", 0);
    let mut carol = wait_in_line(&server, &mut eye, "carol", 2000);
    // The same file, and another file with the same in it.
    let copy = server.dir().join("another.so");
    std::fs::copy(module_file::path(), &copy).unwrap();
    for path in [module_file::path().as_path(), copy.as_path() as &Path] {
        let path = path.to_str().unwrap();
        assert!(eye.call(cmd!["MODULE", "LOAD", path]).is_error());
        assert!(eye.call(cmd!["MODULE", "LOAD", path, "drain", "yes"]).is_error());
    }
    assert_eq!(eye.run("LOCK.INFO k").field("waiters"), &Value::Integer(2));
    assert_eq!(carol.receive(SOON).unwrap(), Value::Nil);
    assert_eq!(eye.run("LOCK.RELEASE k alice"), Value::Integer(0));
    token_of(&bob.receive(SOON).unwrap());
    assert_eq!(observe::info_number(&mut eye, "kvlock_caught_panics"), 0);
    unload(&mut eye);
    expect_unharmed(&server);
}

on_each_server!(
    a_module_with_waiters_stays_and_goes_when_the_last_has_left,
    a_module_that_comes_back_knows_the_locks,
    a_drained_module_can_be_replaced,
    a_module_that_is_told_nonsense_says_so_and_does_no_harm,
    a_second_module_of_the_same_name_is_refused_and_the_first_goes_on,
);
