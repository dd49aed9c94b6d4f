//! Reads the state that a server shows, and waits for it.
//!
//! Every function takes a connection that is not blocked. None of them needs the module unless its comment
//! says that it does.

use crate::resp::{Connection, Value};
use crate::{cmd, wait};
use std::time::Duration;

/// Longest wait of the functions here, except [`let_pass`]. The functions that wait for a replica wait up to
/// three times as long.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A field of `INFO`, such as `blocked_clients`; `None` when the server has no field of the given name.
pub fn info_field(connection: &mut Connection, field: &str) -> Option<String> {
    let info = connection.call(cmd!["INFO", "everything"]).text();
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned))
}

/// A field of `CLUSTER INFO`.
pub fn cluster_info_field(connection: &mut Connection, field: &str) -> Option<String> {
    let info = connection.run("CLUSTER INFO").text();
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned))
}

/// A field of `INFO` that is a number; fails the test when it is not.
pub fn info_number(connection: &mut Connection, field: &str) -> i64 {
    let text = info_field(connection, field);
    text.as_deref()
        .and_then(|t| t.parse().ok())
        .unwrap_or_else(|| panic!("INFO {field} is {text:?}"))
}

/// Waits until a field of `INFO` is the given number.
pub fn wait_for_info(connection: &mut Connection, field: &str, number: i64) {
    wait::until_is(field, PATIENCE, number, || info_number(connection, field));
}

/// The flags that `CLIENT LIST` shows for a client; `None` when there is no such client.
pub fn client_flags(connection: &mut Connection, id: i64) -> Option<String> {
    let line = connection.call(cmd!["CLIENT", "LIST", "ID", id]).text();
    line.split(' ').find_map(|word| word.strip_prefix("flags=").map(str::to_owned))
}

/// Returns whether the given client is blocked in a command.
pub fn is_blocked(connection: &mut Connection, id: i64) -> bool {
    client_flags(connection, id).is_some_and(|flags| flags.contains('b'))
}

/// Waits until the given client is blocked in a command.
pub fn wait_until_blocked(connection: &mut Connection, id: i64) {
    wait::until("the client is blocked", PATIENCE, || match client_flags(connection, id) {
        Some(flags) if flags.contains('b') => Ok(()),
        other => Err(format!("flags {other:?}")),
    });
}

/// Waits until the server has noticed that the client is gone.
pub fn wait_until_gone(connection: &mut Connection, id: i64) {
    wait::until_is("the client is gone", PATIENCE, None, || client_flags(connection, id));
}

/// Waits until exactly `count` clients are blocked in commands of any kind.
pub fn wait_for_blocked_clients(connection: &mut Connection, count: i64) {
    wait_for_info(connection, "blocked_clients", count);
}

/// Waits until the lock has exactly `count` waiters. Needs the module.
pub fn wait_for_waiters(connection: &mut Connection, key: impl AsRef<[u8]>, count: i64) {
    let question = cmd!["LOCK.INFO", key.as_ref()];
    wait::until("clients wait for the lock", PATIENCE, || {
        let info = connection.call(&question);
        match &info {
            Value::Error { .. } => Err(info.to_string()),
            _ if info.field("waiters").integer() == count => Ok(()),
            _ => Err(info.to_string()),
        }
    });
}

/// Waits until a replica is connected to its primary and has received all of its writes.
pub fn wait_for_replica(primary: &mut Connection, replica: &mut Connection) {
    wait::until("the replica has caught up", 3 * PATIENCE, || {
        let (link, at) =
            (info_field(replica, "master_link_status"), info_field(replica, "slave_repl_offset"));
        let end = info_field(primary, "master_repl_offset");
        let state = format!("link {link:?}, offset {at:?} of {end:?}");
        if link.as_deref() == Some("up") && at == end { Ok(()) } else { Err(state) }
    });
}

/// Waits until the link of a replica to its primary is up. Unlike [`wait_for_replica`], also returns while the
/// primary goes on writing.
pub fn wait_for_replica_link(replica: &mut Connection) {
    wait::until("the replica follows its primary", 3 * PATIENCE, || {
        let link = info_field(replica, "master_link_status");
        if link.as_deref() == Some("up") { Ok(()) } else { Err(format!("{link:?}")) }
    });
}

/// Waits while the server runs for the given time, with all its timers and its cron. Used to show that
/// something does *not* happen. The server measures the time, so a slow test does not shorten it. For
/// primaries only. Also works while clients are paused for writing.
pub fn let_pass(connection: &mut Connection, time: Duration) {
    assert!(time >= Duration::from_millis(1), "zero would be without limit");
    // No server has a thousand replicas, so this returns only at its timeout.
    let reached = connection.call(cmd!["WAIT", 1000, time.as_millis().to_string()]);
    assert!(!reached.is_error(), "{reached}");
}

/// Calls [`let_pass`] for long enough that all due timers fire and the cron runs.
pub fn wait_for_next_cron(connection: &mut Connection) {
    let_pass(connection, Duration::from_millis(150));
}

/// Ends the current quarantine and keeps the option. Most tests do not need the quarantine after a start.
/// Needs the module.
pub fn end_quarantine(connection: &mut Connection) {
    let name = "kvlock.quarantine-ms";
    let length = connection.call(cmd!["CONFIG", "GET", name]);
    connection.call(cmd!["CONFIG", "SET", name, 0]);
    connection.call(cmd!["CONFIG", "SET", name, length[1].text()]);
}

/// State that is left: holds of these locks, and any waiters, blocked clients or caught panics of the server.
/// Empty if nothing is left. Needs the module.
pub fn left_behind<K: AsRef<[u8]>>(connection: &mut Connection, keys: &[K]) -> Vec<String> {
    let mut left = Vec::new();
    for key in keys.iter().map(AsRef::as_ref) {
        let info = connection.call(cmd!["LOCK.INFO", key]);
        let free = matches!(info, Value::Array(_))
            && info.field("state").text() == "free"
            && info.field("waiters") == &Value::Integer(0);
        if !free {
            left.push(format!("{} is left: {info}", key.escape_ascii()));
        }
    }
    for field in ["blocked_clients", "kvlock_waiters", "kvlock_caught_panics"] {
        let count = info_number(connection, field);
        if count != 0 {
            left.push(format!("{field} is {count}"));
        }
    }
    left
}
