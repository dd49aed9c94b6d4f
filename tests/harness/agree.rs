//! Checks that two servers have the same data, and that a server has had no crash or panic.

use crate::server::Server;
use crate::{Connection, Value, cmd, wait};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Longest time until a write has arrived at the other server.
const SOON: Duration = Duration::from_secs(5);

/// The fields and values of a hash, sorted by field.
pub fn hash(connection: &mut Connection, key: &str) -> BTreeMap<String, String> {
    let all = connection.call(cmd!["HGETALL", key]);
    all.elements().chunks_exact(2).map(|pair| (pair[0].text(), pair[1].text())).collect()
}

/// Waits until [`data`] is the same on both servers: replicated commands may still be in flight. Panics after
/// five seconds.
pub fn expect_same_data(one: &Server, other: &Server) {
    wait::until("both have the same data", SOON, || {
        let (ours, theirs) = (data(one), data(other));
        if ours == theirs { Ok(()) } else { Err(format!("{ours:?}, but there {theirs:?}")) }
    });
}

/// A digest of the whole data set, and the keys of the databases 0 to 3 with their expiry times.
pub fn data(server: &Server) -> Vec<String> {
    let connection = &mut server.connect();
    let mut data = vec![connection.run("DEBUG DIGEST").text()];
    for db in 0..4 {
        connection.call(cmd!["SELECT", db]);
        let mut keys: Vec<_> = connection.run("KEYS *").elements().to_vec();
        keys.sort_by_key(Value::text);
        for key in keys {
            let end = connection.call(cmd!["PEXPIRETIME", key.bytes()]).integer();
            data.push(format!("{db} {} until {end}", key.text()));
        }
    }
    data
}

/// Returns whether two servers have different data, as returned by [`data`]. Expiry times are not part of the
/// digest, so they are compared for each key that both servers list. A key that one server does not list is no
/// difference if the digests are equal: it expired before that server's keys were listed.
#[must_use]
pub fn differ(one: &[String], other: &[String]) -> bool {
    fn key(line: &str) -> Option<(&str, &str)> {
        line.rsplit_once(" until ")
    }
    let ends: HashMap<_, _> = other.iter().filter_map(|line| key(line)).collect();
    let moved = |(name, end)| ends.get(name).is_some_and(|there| *there != end);
    one.first() != other.first() || one.iter().filter_map(|line| key(line)).any(moved)
}

/// Asserts that the server is alive and that its log has no crash, failed assertion or panic.
pub fn expect_unharmed(server: &Server) {
    server.assert_alive();
    let log = server.log();
    for mark in ["BUG REPORT", "ASSERTION FAILED", "panic", "crashed"] {
        assert!(!log.contains(mark), "{mark} in the log:\n{log}");
    }
}

#[cfg(test)]
mod tests {
    use super::differ;

    #[test]
    fn a_key_that_expires_between_two_lists_is_no_difference() {
        let data = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let before = data(&["digest", "0 k until 1000", "0 l until 2000"]);
        assert!(!differ(&before, &before));
        assert!(!differ(&before, &data(&["digest", "0 l until 2000"])));
        assert!(!differ(&data(&["digest", "0 l until 2000"]), &before));
        assert!(differ(&before, &data(&["another", "0 k until 1000", "0 l until 2000"])));
        assert!(differ(&before, &data(&["digest", "0 k until 1001", "0 l until 2000"])));
    }
}
