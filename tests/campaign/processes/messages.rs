//! A client process's instructions, in its command line, and its reports, one line for each event.
//!
//! Times are read from `CLOCK_MONOTONIC`, which all processes of a machine share, so times of different
//! processes can be compared.

use harness::history::{Call, Outcome, Request};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Now, on the clock that all processes share.
pub(super) fn now() -> Duration {
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    nix::time::clock_gettime(clock).expect("every Linux has it").into()
}

/// Instructions of a client process, which it repeats until it is killed.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Role {
    /// A name under which its counters are also counted; empty for none.
    pub(super) what: String,
    /// The address of the server.
    pub(super) address: String,
    /// The locks that it acquires: a random one each time.
    pub(super) keys: Vec<String>,
    /// The lease of the grants that are renewed.
    pub(super) lease_ms: u64,
    /// Percentage of grants with a shorter lease that is not renewed: the lock is held until the lease has
    /// expired.
    pub(super) fixed: u64,
    /// Upper limit of the random time for which a lock is held, except for the grants of `fixed` and `long`.
    /// `None`: the lock is held until it is lost.
    pub(super) hold_ms: Option<u64>,
    /// Percentage of renewed grants that are held for twice the lease.
    pub(super) long: u64,
    /// Percentage of waits with a timeout. The timeout is at most the lease.
    pub(super) limited: u64,
    /// Number of concurrent tasks, which share one client.
    pub(super) tasks: u64,
    /// Number of threads of the runtime.
    pub(super) threads: usize,
    /// Time for which one of those threads is blocked, in about half of the holds; zero for never.
    pub(super) block_ms: u64,
    /// The port of the store whose counters it increments while it holds a lock.
    pub(super) store: Option<u16>,
    /// Number of writes after each loss of a renewed lock, without a check of the guard.
    pub(super) careless: u64,
    /// `true` if the client measures leases with a clock that is much too slow.
    pub(super) wrong_clock: bool,
    /// The seed of all random choices of the process.
    pub(super) seed: u64,
}

impl Role {
    /// The role of one task that waits for a lock without a limit, and holds it until it is lost.
    pub(super) fn new(keys: Vec<String>, lease_ms: u64) -> Self {
        Self { keys, lease_ms, tasks: 1, threads: 1, ..Self::default() }
    }
}

/// A report of a client process.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Message {
    /// The process is connected. The names of its owners are this text, a colon and a number.
    Ready(String),
    /// The process was granted a lock, or its belief in a grant has changed or ended.
    Tenure(Tenure),
    /// Increments this counter.
    Count(String),
    /// The process saw a violation.
    Violation(String),
}

/// A grant, and what the process did with it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Tenure {
    /// Its number in its process.
    pub(super) number: u64,
    pub(super) key: String,
    pub(super) token: u64,
    /// `true` if its lease is renewed.
    pub(super) watched: bool,
    /// Start of the time in which the process believes that it holds the lock.
    pub(super) from: Duration,
    /// Time at which this belief ends, if the lock is not released or lost, and the process not killed,
    /// earlier. Each renewal moves it.
    pub(super) until: Duration,
    /// Time of the last check that found the guard valid; the work that followed relied on it.
    pub(super) looked: Duration,
    /// Time just before the release was sent.
    pub(super) released: Option<Duration>,
    /// Time at which the guard reported the loss of the lock.
    pub(super) lost: Option<Duration>,
    /// Number of writes, sent after the loss without a check of the guard, that the counter which checks
    /// tokens accepted.
    pub(super) taken: u64,
}

impl Tenure {
    /// End of the belief of its process, which was killed at `killed`.
    pub(super) fn ended(&self, killed: Duration) -> Duration {
        self.released.or(self.lost).unwrap_or(killed).min(self.until)
    }

    /// Returns whether its process can have acted on the grant: a guard may be lost before its process resumes.
    pub(super) fn is_of_use(&self, killed: Duration) -> bool {
        self.from < self.ended(killed)
    }

    /// A call for the [checker](harness::checker): a grant in which its owner believes until the tenure ends.
    pub(super) fn call(&self, process: &str, killed: Duration) -> Call {
        let ended = Some(self.ended(killed)).filter(|_| self.is_of_use(killed));
        let owner = format!("{process}:{}", self.number);
        let request = Request::Acquire { lease: Duration::ZERO, timeout: None };
        // With a belief, the grant counts from its start: no other owner may rely on the lock then. Without
        // one, the grant may be much older than the first check.
        let sent = ended.map_or(Duration::ZERO, |_| self.from);
        let granted = (self.from, Outcome::Granted { token: self.token, holds: 1 });
        Call { valid_until: ended, ..Call::new((&self.key, &owner), request, sent, granted) }
    }

    /// A violation if the process acted on a lock after its belief had ended, or lost a lock before the
    /// lease had expired. In these scenarios no other client takes locks away, and no server fails.
    pub(super) fn violation(&self) -> Option<String> {
        let is_early = self.lost.is_some_and(|at| at < self.until);
        let kind = if self.looked > self.until { Some("Late") } else { is_early.then_some("Loss") };
        kind.map(|kind| format!("{kind}: {self:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_belief_ends_with_a_release_its_lease_or_its_process() {
        let ms = Duration::from_millis;
        for (looked, released, lost, killed, until, kind) in [
            (15, Some(20), None, 30, Some(20), ""),
            (45, None, Some(60), 99, Some(50), ""),
            (15, None, None, 30, Some(30), ""),
            (15, None, None, 10, None, ""),
            (55, Some(60), None, 99, Some(50), "Late"),
            (35, None, Some(40), 99, Some(40), "Loss"),
        ] {
            let tenure = Tenure {
                number: 1,
                key: "k".to_owned(),
                token: 1,
                watched: true,
                from: ms(10),
                until: ms(50),
                looked: ms(looked),
                released: released.map(ms),
                lost: lost.map(ms),
                taken: 0,
            };
            assert_eq!(tenure.call("a", ms(killed)).valid_until, until.map(ms));
            let violation = tenure.violation().unwrap_or_default();
            assert_eq!(violation.split(':').next(), Some(kind), "{violation}");
        }
    }
}
