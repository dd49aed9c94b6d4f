//! Two sessions of one client take the same place in a queue from each other, repeatedly. Each time the old
//! session gets an outcome. Waits and outcomes together must not exceed the limit.

use super::stranger::Stranger;
use super::{Fault, by_stranger};
use harness::resp::ReceiveError;
use harness::{cmd, observe};

pub(super) const FAULTS: &[Fault] =
    &[by_stranger("places taken over again and again", 3, |it| it.take_places_over())];

/// Number of waits for which there is room during this fault.
const MORE: i64 = 300;

/// Limit of waits at other times.
const USUAL: i64 = 10_000;

/// Number of waits that are sent; more than there is room for.
const WAITS: usize = 1_000;

/// Number of commands that are sent before their replies are read.
const AT_ONCE: usize = 100;

impl Stranger<'_> {
    fn take_places_over(&mut self) -> Result<(), ReceiveError> {
        // The limit counts what the other clients keep, too.
        let (kept, _) = self.count_kept()?;
        let limit = kept + MORE;
        self.send(cmd!["CONFIG", "SET", "kvlock.max-waiters", limit])?;
        // Meanwhile there may have come more than the limit: it ends no wait.
        let (kept, _) = self.count_kept()?;
        let taken = self.take_over(limit.max(kept));
        self.send(cmd!["CONFIG", "SET", "kvlock.max-waiters", USUAL])?;
        taken
    }

    fn take_over(&mut self, limit: i64) -> Result<(), ReceiveError> {
        let mut sessions = Vec::new();
        for _ in 0..2 {
            let opened = self.ask(cmd!["SESSION.OPEN", 60_000])?;
            if opened.is_error() {
                return Ok(());
            }
            sessions.push(opened[0].text());
        }
        let key = "scratch-places";
        self.ask(cmd!["LOCK.ACQUIRE", key, "holder", 5_000])?;
        let wait = |number: usize| {
            cmd!["LOCK.WAIT", key, "waiter", 1_000, 0, "SESSION", sessions[number % sessions.len()]]
        };
        let waits: Vec<_> = (0..WAITS).map(wait).collect();
        for some in waits.chunks(AT_ONCE) {
            let connection = self.connection()?;
            connection.send_all(some);
            for _ in some {
                connection.receive(observe::PATIENCE)?;
            }
        }
        // Each observer may get a change to read. There may be more observers than at the beginning.
        let (kept, observers) = self.count_kept()?;
        let most = limit + observers;
        if kept > most {
            self.round
                .log
                .surprise(format!("{kept} waits and outcomes are kept, and the limit is {most}"));
        }
        for session in &sessions {
            self.send(cmd!["SESSION.CLOSE", session])?;
        }
        self.send(cmd!["DEL", key])
    }

    /// Number of waits, observers and outcomes that the server keeps, and number of the observers alone.
    fn count_kept(&mut self) -> Result<(i64, i64), ReceiveError> {
        let info = self.ask(cmd!["INFO", "everything"])?.text();
        let number = |field: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            line.and_then(|number| number.trim().parse::<i64>().ok()).unwrap_or(0)
        };
        let observers = number("kvlock_observers");
        let kept = number("kvlock_waiters") + observers + number("kvlock_unread_outcomes");
        Ok((kept, observers))
    }
}
