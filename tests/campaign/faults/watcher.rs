//! A user that may observe locks but change nothing. When its sessions end, the server frees what it kept for
//! them.

use super::stranger::Stranger;
use super::{Fault, by_stranger};
use harness::resp::ReceiveError;
use harness::{Connection, Value, cmd};

pub(super) const FAULTS: &[Fault] =
    &[by_stranger("a user that may only read observes", 4, |it| it.let_a_reader_observe())];

/// The rights of the user `watcher`: it may observe locks, on all keys, through its sessions.
const RIGHTS: [&str; 6] =
    ["%R~*", "-@all", "+lock.observe", "+session.open", "+session.next", "+session.close"];

/// Lengths of the names of keys that do not exist, in bytes. The server may refuse the longest.
const NAMES: [usize; 4] = [10, 1_000, 4_000, 100_000];

/// Number of observations that are requested through each session.
const EACH: u64 = 20;

/// Time to live of the user's sessions, in milliseconds.
const TTL_MS: u64 = 300;

impl Stranger<'_> {
    fn let_a_reader_observe(&mut self) -> Result<(), ReceiveError> {
        self.send([cmd!["ACL", "SETUSER", "watcher", "reset", "on", "nopass"], rights()].concat())?;
        let mut watcher = self.at.connect().ok_or(ReceiveError::Closed)?;
        watcher.ask(cmd!["AUTH", "watcher", "x"])?;
        for _ in 0..1 + self.random.below(4) {
            let Value::Array(opened) = watcher.ask(cmd!["SESSION.OPEN", TTL_MS])? else { break };
            self.observe(&mut watcher, &opened[0].text())?;
        }
        let key = self.lock();
        for command in [
            cmd!["LOCK.ACQUIRE", key, "watcher", 1_000],
            cmd!["LOCK.WAIT", key, "watcher", 1_000, 10],
            cmd!["LOCK.RELEASE", key, "watcher"],
            cmd!["LOCK.FORCERELEASE", key],
            cmd!["LATCH.COUNTDOWN", key, "watcher"],
            cmd!["DEL", key],
        ] {
            let reply = watcher.ask(&command)?;
            if !matches!(&reply, Value::Error { code, .. } if code == "NOPERM") {
                let name = String::from_utf8_lossy(&command[0]).into_owned();
                self.round.log.surprise(format!("a user that may only read, {name}: {reply}"));
            }
        }
        watcher.reset();
        Ok(())
    }

    /// Observes locks through a session, and closes the session or lets it expire.
    fn observe(&mut self, watcher: &mut Connection, session: &str) -> Result<(), ReceiveError> {
        for number in 0..EACH {
            let length = *self.random.pick(&NAMES);
            let key = if number % 2 == 0 {
                self.lock()
            } else {
                format!("{number}{}", "n".repeat(length))
            };
            let what = match watcher.ask(cmd!["LOCK.OBSERVE", key, "SESSION", session])? {
                Value::Error { .. } => "observations refused",
                _ if key.len() > 1_000 => "observations by long names",
                _ => "observations",
            };
            self.round.log.add(what, 1);
        }
        let read = watcher.ask(cmd!["SESSION.NEXT", session, 0, 20])?;
        let told = if let Value::Array(read) = &read { read[1].elements() } else { &[] };
        for change in told.iter().filter(|it| it[4] == Value::bulk("granted")) {
            self.round.log.surprise(format!("an observer was granted something: {change}"));
        }
        if self.random.percent(50) {
            watcher.ask(cmd!["SESSION.CLOSE", session])?;
        }
        Ok(())
    }
}

fn rights() -> Vec<Vec<u8>> {
    RIGHTS.iter().map(|right| right.as_bytes().to_vec()).collect()
}
