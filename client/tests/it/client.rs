//! The client crate on real servers. A package of its own, so that the crate's features are checked without it.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "these are tests: a panic is how one fails, and their numbers are small"
)]

mod asleep;
mod blocking;
mod bound;
mod cancel;
mod cluster;
mod election;
mod handover;
mod input;
mod latch;
mod limits;
mod loss;
mod multi;
mod proxy;
mod quorum;
mod reentrance;
mod replicated;
mod rlock;
mod runtimes;
mod semaphore;
mod sentinel;
mod shared;
mod telemetry;
mod tls;
mod trouble;
mod waiting;

use harness::{Connection, Server, Value, cmd, observe, wait};
use kvlock::Client;
use std::time::Duration;

/// Longer than anything here takes, and shorter than what would be worth waiting for.
const SOON: Duration = Duration::from_secs(20);

/// A server, a client of it, and somebody who looks on.
struct Stage {
    server: Server,
    client: Client,
    control: Connection,
}

impl Stage {
    async fn set() -> Self {
        Self::of(Server::start()).await
    }

    async fn of(server: Server) -> Self {
        let client = Client::connect(server.url()).await.unwrap();
        let control = server.connect();
        Self { server, client, control }
    }

    /// Somebody else takes the lock for a long time.
    fn taken(&mut self, key: &str) {
        let reply = self.control.call(cmd!["LOCK.ACQUIRE", key, "somebody", 600_000]);
        assert_eq!(reply[1], Value::Integer(1), "{reply}");
    }

    /// Who holds it.
    fn owner_of(&mut self, key: &str) -> Option<String> {
        let info = self.control.call(cmd!["LOCK.INFO", key]);
        let owner = info.field("owner");
        (!owner.is_nil()).then(|| owner.text())
    }

    fn is_free(&mut self, key: &str) -> bool {
        self.control.call(cmd!["EXISTS", key]) == Value::Integer(0)
    }

    /// How many renewals the server has been asked for.
    fn renewals(&mut self) -> usize {
        calls(&mut self.control, "lock.renew")
    }

    fn wait_for_renewals(&mut self, count: usize) {
        wait::until("it was renewed that often", SOON, || match self.renewals() {
            seen if seen >= count => Ok(()),
            seen => Err(seen.to_string()),
        });
    }

    fn wait_until_free(&mut self, key: &str) {
        wait::until("the lock is free", SOON, || {
            if self.is_free(key) { Ok(()) } else { Err(format!("{:?}", self.owner_of(key))) }
        });
    }

    /// Nobody waits, nothing is locked, nobody is blocked but who reads a session.
    async fn assert_nothing_is_left(&mut self) {
        tokio::time::timeout(SOON, self.client.settled()).await.expect("it settles");
        let control = &mut self.control;
        wait::until("nothing is left", SOON, || {
            let keys = control.run("KEYS *");
            let keys: Vec<String> = keys.elements().iter().map(Value::text).collect();
            let keys: Vec<&String> = keys.iter().filter(|k| !k.starts_with("kvlock:")).collect();
            let waiters = control.run("LOCK.LIST COUNT 10");
            let sessions = observe::info_number(control, "kvlock_sessions");
            let blocked = observe::info_number(control, "blocked_clients") - sessions;
            if keys.is_empty() && waiters.elements().is_empty() && blocked <= 0 {
                Ok(())
            } else {
                Err(format!("keys {keys:?}, waiters {waiters}, {blocked} blocked"))
            }
        });
    }
}

/// How often a server has carried out that command.
fn calls(control: &mut Connection, command: &str) -> usize {
    let calls = observe::info_field(control, &format!("cmdstat_{command}"));
    let calls = calls.as_deref().and_then(|c| c.strip_prefix("calls=")?.split(',').next());
    calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
}

/// Waits for something of the client, but not for ever.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("it comes soon")
}
