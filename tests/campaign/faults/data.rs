//! Actions on all data of a server: the server saves them to disk under load or loads them again, or they are
//! compared with the replica.

use super::stranger::Stranger;
use super::{Fault, by_stranger};
use harness::resp::ReceiveError;
use harness::{cmd, observe};
use std::time::{Duration, Instant};

/// Longest time for a child process of the server to write a few keys to the disk.
const FORK: Duration = Duration::from_secs(30);

/// Longest pause of writes for a comparison with the replica.
const LOOK: Duration = Duration::from_secs(2);

/// Number of comparisons in a row that must all find a difference before one is reported.
const LOOKS: usize = 3;

pub(super) const FAULTS: &[Fault] = &[
    by_stranger("CLIENT PAUSE WRITE, and a look at the replica", 3, |it| it.compare()),
    by_stranger("DEBUG RELOAD, and a full synchronisation", 2, |it| it.reload()),
    by_stranger("BGSAVE", 3, |it| it.fork(cmd!["BGSAVE"])),
    by_stranger("BGREWRITEAOF", 3, |it| it.fork(cmd!["BGREWRITEAOF"])),
];

impl Stranger<'_> {
    /// Makes a child of the server save everything to disk under load, and waits until the child has ended.
    fn fork(&mut self, command: Vec<Vec<u8>>) -> Result<(), ReceiveError> {
        let reply = self.ask(command)?;
        // The server may already run a child process, for a replica that synchronises.
        let at_work = ["in progress", "Another child process is active"];
        let said = reply.to_string();
        if reply.is_error() && !at_work.iter().any(|busy| said.contains(busy)) {
            self.round.log.surprise(format!("cannot fork: {reply}"));
        }
        let end = Instant::now() + FORK;
        while Instant::now() < end {
            let info = self.ask(cmd!["INFO", "persistence"])?.text();
            let at_work = |what| info.contains(&format!("{what}_in_progress:1"));
            if !at_work("rdb_bgsave") && !at_work("aof_rewrite") {
                return Ok(());
            }
        }
        self.round.log.surprise("a child of the server does not end".to_owned());
        Ok(())
    }

    /// Pauses writes, and checks that the replica equals the primary.
    fn compare(&mut self) -> Result<(), ReceiveError> {
        let begun = Instant::now();
        self.send(cmd!["CLIENT", "PAUSE", LOOK.as_millis().to_string(), "WRITE"])?;
        // A difference counts only if it stays: at first, a write may still be in flight.
        let looks = (0..LOOKS).map(|_| self.at.difference());
        let seen: Option<Vec<String>> = looks.take_while(|_| begun.elapsed() < LOOK).collect();
        if let Some(mut seen) = seen.filter(|seen| seen.len() == LOOKS) {
            self.round.log.surprise(seen.swap_remove(0));
        }
        self.send(cmd!["CLIENT", "UNPAUSE"])
    }

    /// Makes the primary load its data again, then makes the replica synchronise, as after a restart. Without
    /// this synchronisation the two could differ. A primary that loads its data skips expired keys, but does
    /// not replicate their deletion.
    fn reload(&mut self) -> Result<(), ReceiveError> {
        self.send(cmd!["DEBUG", "RELOAD"])?;
        self.send(cmd!["DEBUG", "CHANGE-REPL-ID"])?;
        self.ask(cmd!["CLIENT", "KILL", "TYPE", "replica"])?;
        let (primary, replica) = self.at.roles();
        observe::wait_for_replica(&mut primary.connect(), &mut replica.connect());
        Ok(())
    }
}
