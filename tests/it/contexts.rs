//! Where a command comes from: transactions, scripts, functions, users, odd connections.

use crate::asking::{LONG, acquire, arrival, error, release, state, token, wait_in_line};
use harness::{Connection, Kind, Server, Value, cmd, observe, on_each_server};

const OK: &str = "OK";

fn ok(reply: &Value) {
    assert_eq!(reply, &Value::Status(OK.into()));
}

/// A server of that kind, and two connections: the first has `held` as `alice`.
fn start(kind: &Kind) -> (Server, Connection, Connection) {
    let server = Server::options().kind(kind).start();
    let (mut a, b) = (server.connect(), server.connect());
    acquire(&mut a, "held", "alice");
    (server, a, b)
}

fn in_a_transaction_a_wait_does_not_wait(kind: Kind) {
    let (server, mut a, _) = start(&kind);
    for protocol in [2, 3] {
        let mut b = server.connect_resp(protocol);
        b.run("MULTI");
        for line in [
            "LOCK.WAIT held bob 1000 0",
            "LOCK.WAIT free bob 1000 0",
            "LOCK.WAIT held bob 1000 60000 HOLDS 2",
            "LOCK.RELEASE free bob",
        ] {
            assert_eq!(b.run(line), Value::Status("QUEUED".into()));
        }
        let replies = b.run("EXEC");
        assert_eq!(replies[0], Value::Nil);
        token(&replies[1]);
        assert_eq!(replies[2].code(), "MISMATCH");
        assert_eq!(replies[3], Value::Integer(0));
    }
    assert_eq!(a.run("LOCK.INFO held").field("waiters"), &Value::Integer(0));
    server.assert_alive();
}

fn in_a_script_a_wait_does_not_wait(kind: Kind) {
    let (server, mut a, mut b) = start(&kind);
    let script = "return redis.call('LOCK.WAIT', KEYS[1], 'bob', 1000, 0)";
    assert_eq!(b.call(cmd!["EVAL", script, 1, "held"]), Value::Nil);
    token(&b.call(cmd!["EVAL", script, 1, "free"]));
    let caught = "return redis.pcall('LOCK.WAIT', KEYS[1], 'bob', 0, 0)";
    assert!(error(&b.call(cmd!["EVAL", caught, 1, "held"])).contains("invalid lease-ms"));
    assert_eq!(a.run("LOCK.INFO held").field("waiters"), &Value::Integer(0));
    server.assert_alive();
}

fn in_a_function_a_wait_does_not_wait(kind: Kind) {
    let (server, _, mut b) = start(&kind);
    let library = "#!lua name=l\nredis.register_function('w', function(keys) return redis.call('LOCK.WAIT', keys[1], 'bob', 1000, 0) end)";
    assert_eq!(b.call(cmd!["FUNCTION", "LOAD", library]).text(), "l");
    assert_eq!(b.run("FCALL w 1 held"), Value::Nil);
    token(&b.run("FCALL w 1 free"));
    server.assert_alive();
}

fn a_release_in_a_transaction_or_script_hands_off_after_it(kind: Kind) {
    let (server, mut a, mut b) = start(&kind);
    let mut c = server.connect();
    wait_in_line(&mut b, &mut a, "held", "bob");
    wait_in_line(&mut c, &mut a, "held", "carol");
    a.run("MULTI");
    a.run("LOCK.RELEASE held alice");
    a.run("LOCK.ACQUIRE held alice 1000");
    assert!(!b.has_unread());
    let replies = a.run("EXEC");
    assert_eq!((&replies[0], &replies[1]), (&Value::Integer(0), &Value::Nil));
    let first = token(&arrival(&mut b));
    assert_eq!(
        a.run("EVAL \"return redis.call('LOCK.RELEASE', KEYS[1], 'bob')\" 1 held"),
        Value::Integer(0)
    );
    assert!(token(&arrival(&mut c)) > first);
}

fn a_user_reaches_only_the_keys_and_commands_it_may(kind: Kind) {
    let (server, mut a, _) = start(&kind);
    for rule in [
        "some on nopass ~a:* +@all",
        "reader on nopass %R~* +@all",
        "taker on nopass ~* -@all +lock.acquire +ping",
    ] {
        ok(&a.run(&format!("ACL SETUSER {rule}")));
    }
    let as_user = |name: &str| {
        let mut connection = server.connect();
        ok(&connection.run(&format!("AUTH {name} x")));
        connection
    };
    let denied = |connection: &mut Connection, line: &str| {
        let before = state(&mut server.connect(), "held");
        let text = error(&connection.run(line));
        assert!(text.starts_with("NOPERM ") || line.starts_with("EVAL"), "{line} answers {text}");
        assert_eq!(state(&mut server.connect(), "held"), before, "{line}");
    };
    let all = [
        "LOCK.ACQUIRE held alice 1000",
        "LOCK.WAIT held alice 1000 0",
        "LOCK.RELEASE held alice",
        "LOCK.RENEW held alice 1000",
        "LOCK.CANCEL held alice",
        "LOCK.FORCERELEASE held",
        "LOCK.INFO held",
    ];
    let mut some = as_user("some");
    all.iter().for_each(|line| denied(&mut some, line));
    denied(&mut some, "EVAL \"return redis.call('LOCK.ACQUIRE', 'held', 'alice', 1000)\" 0");
    some.run("MULTI");
    denied(&mut some, "LOCK.ACQUIRE held alice 1000");
    some.run("DISCARD");
    token(&some.run("LOCK.ACQUIRE a:1 alice 1000"));
    assert_eq!(some.run("LOCK.RELEASE a:1 alice"), Value::Integer(0));

    let mut reader = as_user("reader");
    all[..6].iter().for_each(|line| denied(&mut reader, line));
    assert_eq!(reader.run("LOCK.INFO held").field("owner"), &Value::bulk("alice"));

    let mut taker = as_user("taker");
    all[1..].iter().for_each(|line| denied(&mut taker, line));
    token(&taker.run("LOCK.ACQUIRE held alice 1000"));
}

fn clients_that_want_no_replies_get_none_and_still_act(kind: Kind) {
    let (server, mut a, mut b) = start(&kind);
    b.send(cmd!["CLIENT", "REPLY", "OFF"]);
    b.send(cmd!["LOCK.ACQUIRE", "free", "bob", LONG]);
    b.send(cmd!["LOCK.ACQUIRE", "held", "bob", LONG]);
    b.send(cmd!["LOCK.WAIT", "held", "bob", LONG, LONG]);
    observe::wait_for_waiters(&mut a, "held", 1);
    assert_eq!(a.run("LOCK.RELEASE held alice"), Value::Integer(0));
    assert_eq!(a.run("LOCK.INFO held").field("owner"), &Value::bulk("bob"));
    assert_eq!(a.run("LOCK.INFO free").field("owner"), &Value::bulk("bob"));
    b.send(cmd!["CLIENT", "REPLY", "ON"]);
    assert_eq!(arrival(&mut b), Value::Status(OK.into()));
    // A skipped reply is that of the wait itself, not of what follows.
    b.send(cmd!["CLIENT", "REPLY", "SKIP"]);
    b.send(cmd!["LOCK.WAIT", "held", "carol", LONG, LONG]);
    observe::wait_for_waiters(&mut a, "held", 1);
    b.send(cmd!["PING"]);
    assert_eq!(a.run("LOCK.RELEASE held bob"), Value::Integer(0));
    assert_eq!(a.run("LOCK.INFO held").field("owner"), &Value::bulk("carol"));
    server.assert_alive();
}

fn what_is_pipelined_behind_a_wait_follows_it(kind: Kind) {
    let (_server, mut a, mut b) = start(&kind);
    let id = b.client_id();
    b.send(cmd!["LOCK.WAIT", "held", "bob", LONG, LONG]);
    b.send(cmd!["LOCK.RELEASE", "held", "bob"]);
    b.send(cmd!["LOCK.WAIT", "held", "bob", LONG, 1]);
    b.send(cmd!["PING"]);
    observe::wait_until_blocked(&mut a, id);
    assert_eq!(release(&mut a, "held", "alice"), Value::Integer(0));
    let first = token(&arrival(&mut b));
    assert_eq!(arrival(&mut b), Value::Integer(0));
    assert!(token(&arrival(&mut b)) > first);
    assert_eq!(arrival(&mut b), Value::Status("PONG".into()));
}

on_each_server!(
    in_a_transaction_a_wait_does_not_wait,
    in_a_script_a_wait_does_not_wait,
    in_a_function_a_wait_does_not_wait,
    a_release_in_a_transaction_or_script_hands_off_after_it,
    a_user_reaches_only_the_keys_and_commands_it_may,
    clients_that_want_no_replies_get_none_and_still_act,
    what_is_pipelined_behind_a_wait_follows_it,
);
