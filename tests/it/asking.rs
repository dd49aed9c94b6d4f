//! Short forms of requests that many tests make.

use harness::{Connection, Value, cmd, observe};
use std::time::Duration;

/// A time in milliseconds that is longer than any test: for leases and timeouts that must not pass.
pub(crate) const LONG: u64 = 600_000;

/// Longest time for an effect that should be immediate.
pub(crate) const SOON: Duration = Duration::from_secs(5);

pub(crate) fn acquire(connection: &mut Connection, key: &str, owner: &str) -> Value {
    connection.call(cmd!["LOCK.ACQUIRE", key, owner, LONG])
}

pub(crate) fn release(connection: &mut Connection, key: &str, owner: &str) -> Value {
    connection.call(cmd!["LOCK.RELEASE", key, owner])
}

/// Sends `LOCK.WAIT`, and returns when the client is blocked.
pub(crate) fn wait_in_queue(
    connection: &mut Connection,
    control: &mut Connection,
    key: &str,
    owner: &str,
) {
    let id = connection.client_id();
    connection.send(cmd!["LOCK.WAIT", key, owner, LONG, LONG]);
    observe::wait_until_blocked(control, id);
}

/// The next reply, which must arrive soon.
pub(crate) fn arrival(connection: &mut Connection) -> Value {
    connection.receive(SOON).unwrap_or_else(|why| panic!("nothing arrived: {why}"))
}

/// The token of a grant; any other reply fails the test.
pub(crate) fn token(reply: &Value) -> i64 {
    let [token, holds] = reply.elements() else { panic!("not a grant: {reply}") };
    assert!(holds.integer() >= 1, "not a grant: {reply}");
    token.integer()
}
