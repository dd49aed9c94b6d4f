//! The limits and the other settings: `kvlock.*`.

use crate::asking::{LONG, acquire, arrival, error, token, wait_in_line};
use harness::{Connection, Server, Value, cmd};

fn config(connection: &mut Connection, name: &str) -> String {
    let reply = connection.call(cmd!["CONFIG", "GET", format!("kvlock.{name}")]);
    match &reply {
        Value::Map(pairs) => pairs[0].1.text(),
        _ => reply[1].text(),
    }
}

fn set(connection: &mut Connection, name: &str, value: &str) -> Value {
    connection.call(cmd!["CONFIG", "SET", format!("kvlock.{name}"), value])
}

fn queue_full(reply: &Value) {
    assert!(error(reply).starts_with("QUEUEFULL "), "{reply}");
}

#[test]
fn settings_have_their_defaults() {
    let server = Server::start();
    let connection = &mut server.connect();
    for (name, value) in [
        ("max-lease-ms", "86400000"),
        ("max-waiters", "1000000"),
        ("max-waiters-per-key", "1000000"),
        ("max-blocked", "10000"),
        ("max-sessions", "10000"),
        ("max-bound", "1000000"),
        ("redisson-channel", "auto"),
        ("drain", "no"),
        ("quarantine-ms", "0"),
    ] {
        assert_eq!(config(connection, name), value, "{name}");
    }
}

#[test]
fn settings_are_taken_from_the_arguments_of_the_module() {
    let server = Server::options()
        .module_config("max-lease-ms", 5000)
        .module_config("max-waiters", 7)
        .module_config("max-waiters-per-key", 3)
        .module_config("redisson-channel", "no")
        .module_config("quarantine-ms", 86_400_000)
        .start();
    let connection = &mut server.connect();
    for (name, value) in [
        ("max-lease-ms", "5000"),
        ("max-waiters", "7"),
        ("max-waiters-per-key", "3"),
        ("redisson-channel", "no"),
        ("quarantine-ms", "86400000"),
    ] {
        assert_eq!(config(connection, name), value, "{name}");
    }
}

#[test]
fn values_out_of_range_are_refused_and_change_nothing() {
    let server = Server::start();
    let connection = &mut server.connect();
    for (name, bad) in [
        ("max-lease-ms", ["0", "-1", "x", "99999999999999999999"]),
        ("max-waiters", ["-1", "x", "0", "99999999999999999999"]),
        ("max-waiters-per-key", ["-1", "x", "0", "99999999999999999999"]),
        ("redisson-channel", ["maybe", "", "1", "autoo"]),
        ("drain", ["maybe", "", "2", "y"]),
        ("quarantine-ms", ["-1", "x", "", "86400001"]),
    ] {
        let before = config(connection, name);
        for value in bad {
            assert!(set(connection, name, value).is_error(), "{name} {value}");
        }
        assert_eq!(config(connection, name), before, "{name}");
    }
}

#[test]
fn the_longest_lease_is_what_the_setting_says() {
    let server = Server::start();
    let connection = &mut server.connect();
    assert_eq!(set(connection, "max-lease-ms", "5000"), Value::Status("OK".into()));
    token(&connection.run("LOCK.ACQUIRE k alice 5000"));
    for command in
        ["LOCK.ACQUIRE k alice 5001", "LOCK.WAIT k alice 5001 0", "LOCK.RENEW k alice 5001"]
    {
        assert_eq!(
            error(&connection.run(command)),
            "ERR invalid lease-ms: must be between 1 and 5000",
            "{command}"
        );
    }
}

#[test]
fn a_lower_limit_does_not_shorten_a_lease_that_runs() {
    let server = Server::start();
    let connection = &mut server.connect();
    acquire(connection, "k", "alice");
    set(connection, "max-lease-ms", "1000");
    assert!(connection.run("PTTL k").integer() > 60_000);
}

#[test]
fn a_key_takes_only_so_many_waiters() {
    let server = Server::options().module_config("max-waiters-per-key", 2).start();
    let mut control = server.connect();
    let mut waiters = [server.connect(), server.connect(), server.connect()];
    acquire(&mut control, "k", "alice");
    acquire(&mut control, "other", "alice");
    for (waiter, owner) in waiters.iter_mut().zip(["bob", "carol"]) {
        wait_in_line(waiter, &mut control, "k", owner);
    }
    queue_full(&control.call(cmd!["LOCK.WAIT", "k", "dave", LONG, LONG]));
    // A wait that need not wait is not refused, and other keys have a line of their own.
    assert_eq!(control.call(cmd!["LOCK.WAIT", "k", "alice", LONG, LONG])[1], Value::Integer(2));
    wait_in_line(&mut waiters[2], &mut control, "other", "dave");
    // Taking one's own place over needs no room.
    let mut again = server.connect();
    wait_in_line(&mut again, &mut control, "k", "carol");
    assert_eq!(arrival(&mut waiters[1]).code(), "UNBLOCKED");
    // A place that becomes free can be had.
    assert_eq!(control.run("LOCK.CANCEL k bob"), Value::Integer(1));
    wait_in_line(&mut waiters[1], &mut control, "k", "erin");
    queue_full(&control.call(cmd!["LOCK.WAIT", "k", "dave", LONG, LONG]));
}

#[test]
fn a_server_takes_only_so_many_waiters() {
    let server = Server::options().module_config("max-waiters", 2).start();
    let mut control = server.connect();
    let mut waiters = [server.connect(), server.connect(), server.connect()];
    acquire(&mut control, "k", "alice");
    acquire(&mut control, "other", "alice");
    for (waiter, key) in waiters.iter_mut().zip(["k", "other"]) {
        wait_in_line(waiter, &mut control, key, "bob");
    }
    queue_full(&control.call(cmd!["LOCK.WAIT", "k", "carol", LONG, LONG]));
    assert_eq!(set(&mut control, "max-waiters", "3"), Value::Status("OK".into()));
    wait_in_line(&mut waiters[2], &mut control, "k", "carol");
    // A lower limit sends nobody away.
    assert_eq!(set(&mut control, "max-waiters", "1"), Value::Status("OK".into()));
    assert_eq!(control.run("LOCK.INFO k").field("waiters"), &Value::Integer(2));
    let [first, second, third] = &mut waiters;
    assert_eq!(control.run("LOCK.RELEASE k alice"), Value::Integer(0));
    token(&arrival(first));
    queue_full(&control.call(cmd!["LOCK.WAIT", "other", "dave", LONG, LONG]));
    assert!(!second.has_unread() && !third.has_unread());
}
