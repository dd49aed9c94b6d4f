//! Temporary changes of options of the server and of the module.

use super::stranger::Stranger;
use super::{Fault, by_stranger};
use harness::resp::ReceiveError;
use harness::{Connection, Server, cmd};
use std::thread::sleep;
use std::time::Duration;

pub(super) const FAULTS: &[Fault] = &[by_stranger("CONFIG SET", 8, |it| it.configure())];

/// Options, with their temporary and their normal value.
const OPTIONS: [(&str, &str, &str); 13] = [
    ("kvlock.drain", "yes", "no"),
    ("kvlock.max-waiters-per-key", "3", "10000"),
    ("kvlock.max-waiters", "2", "10000"),
    ("kvlock.max-blocked", "2", "10000"),
    ("kvlock.redisson-turn", "no", "share"),
    ("kvlock.max-sessions", "1", "10000"),
    ("kvlock.redisson-channel", "both", "auto"),
    ("min-replicas-to-write", "5", "0"),
    ("maxmemory-policy", "allkeys-lru", "noeviction"),
    ("maxmemory-clients", "10gb", "0"),
    ("notify-keyspace-events", "KEA", ""),
    ("hz", "100", "10"),
    ("lazyfree-lazy-expire", "yes", "no"),
];

/// Restores the options in [`OPTIONS`], and ends a pause of clients. Ignores errors.
pub(crate) fn settle(server: &Server) {
    let Ok(mut connection) = Connection::open(server.port()) else { return };
    let usual = OPTIONS.map(|(name, _, usual)| cmd!["CONFIG", "SET", name, usual]);
    for command in usual.into_iter().chain([cmd!["CLIENT", "UNPAUSE"]]) {
        let _gone = connection.ask(command);
    }
}

impl Stranger<'_> {
    fn configure(&mut self) -> Result<(), ReceiveError> {
        let (name, value, usual) = *self.random.pick(&OPTIONS);
        self.send(cmd!["CONFIG", "SET", name, value])?;
        sleep(Duration::from_millis(5 + self.random.below(40)));
        self.send(cmd!["CONFIG", "SET", name, usual])
    }
}
