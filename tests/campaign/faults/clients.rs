//! Strangers kill clients, delete their user, or make the server evict them. Some do so in the turn of the
//! event loop in which the client is granted a lock.

use super::stranger::Stranger;
use super::{Fault, by_stranger};
use crate::topology::{GUEST, guest};
use crate::workload::client_of;
use harness::observe::PATIENCE;
use harness::resp::ReceiveError;
use harness::{Value, cmd};
use std::thread::sleep;
use std::time::Duration;

pub(super) const FAULTS: &[Fault] = &[
    by_stranger("CLIENT KILL of one", 8, |it| it.kill_one()),
    by_stranger("CLIENT KILL in the turn of a grant", 12, |it| {
        it.strike_while_granted(|id| vec![cmd!["CLIENT", "KILL", "ID", id]])
    }),
    by_stranger("ACL DELUSER in the turn of a grant", 3, |it| {
        it.strike_while_granted(|_| vec![cmd!["ACL", "DELUSER", GUEST], guest()])
    }),
    by_stranger("eviction of clients", 6, |it| it.evict_clients()),
];

impl Stranger<'_> {
    /// Makes the server disconnect the clients that use the most memory. Waiters may be among them.
    fn evict_clients(&mut self) -> Result<(), ReceiveError> {
        self.send(cmd!["CLIENT", "NO-EVICT", "ON"])?;
        let few = 1 + self.random.below(16);
        self.send(cmd!["CONFIG", "SET", "maxmemory-clients", few * 20_000])?;
        sleep(Duration::from_millis(1 + self.random.below(10)));
        self.send(cmd!["CONFIG", "SET", "maxmemory-clients", 0])
    }

    fn kill_one(&mut self) -> Result<(), ReceiveError> {
        let list = self.ask(cmd!["CLIENT", "LIST", "TYPE", "normal"])?.text();
        let me = self.ask(cmd!["CLIENT", "ID"])?.integer().to_string();
        let ids: Vec<&str> = list
            .lines()
            .filter_map(|line| line.strip_prefix("id=")?.split(' ').next())
            .filter(|id| *id != me)
            .collect();
        if ids.is_empty() {
            return Ok(());
        }
        let id = (*self.random.pick(&ids)).to_owned();
        self.ask(cmd!["CLIENT", "KILL", "ID", id]).map(drop)
    }

    /// Releases a lock by force, and in the same turn disconnects the client that would receive the first
    /// waiter's grant. Does nothing if there is no such client.
    fn strike_while_granted(
        &mut self,
        strike: fn(i64) -> Vec<Vec<Vec<u8>>>,
    ) -> Result<(), ReceiveError> {
        let key = self.lock();
        let info = self.ask(cmd!["LOCK.INFO", key, "WAITERS", 1])?;
        let Value::Array(_) = info else { return Ok(()) };
        let head = info.field("queue").elements().first();
        let Some(id) = head.and_then(|head| client_of(&self.round.lines.mailboxes, head)) else {
            return Ok(());
        };
        self.breaks(&[&key], |it| {
            let connection = it.connection()?;
            // A transaction, so that the server releases the lock and disconnects the client in the same
            // turn.
            let mut commands = vec![cmd!["MULTI"], cmd!["LOCK.FORCERELEASE", key]];
            commands.extend(strike(id));
            commands.push(cmd!["EXEC"]);
            commands.iter().for_each(|command| connection.send(command));
            commands.iter().try_for_each(|_| connection.receive(PATIENCE).map(drop))
        })
    }
}
