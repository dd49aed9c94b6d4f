//! Load through client libraries in Rust: the crate `kvlock`, and redis-rs, which sends the `LOCK.*`
//! commands without `kvlock::Client`.
//!
//! | `proto` | |
//! |---|---|
//! | `crate` | `kvlock::Client`, as its documentation shows it |
//! | `watched` | like `crate`, with leases of `lease_ms` |
//! | `bound` | locks that are bound to a session of `lease_ms`, with leases of ten minutes |
//! | `election` | elections: an acquisition is a campaign, a release a resignation |
//! | `redis-rs` | `LOCK.ACQUIRE` and `LOCK.RELEASE` by `kvlock::AsyncLockCommands`, over a multiplexed connection with `TCP_NODELAY` |
//! | `redis-rs-wait` | `LOCK.WAIT` on a connection of redis-rs for each task |
//! | `redis-rs-default` | like `redis-rs`, with redis-rs's default connections, which lack `TCP_NODELAY` |
//! | `watchdog` | holds `tasks` locks, and does nothing but renew them; `bound=yes`: bound locks |
//!
//! With `mode=observe` it measures when `tasks` observers get news of the leader (`observers.rs`). With
//! `mode=fleet` all tasks wait for one lock over a restart of the server (`fleet.rs`). With `mode=once` all
//! want one result (`once.rs`): `proto=crate` by `Client::once`, `checked` by a double check with the lock,
//! `flight` by one such check for all tasks. With `mode=set` each task needs `width` locks (`sets.rs`):
//! `proto=crate` acquires them in one step, `sorted` one after another.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "it measures; whatever goes wrong ends it"
)]

mod commands;
mod election;
mod fleet;
mod observers;
mod once;
mod sets;
mod watchdog;

use driver::{Args, Session};
use kvlock::{Client, Guard, Lock};
use std::time::Duration;

/// Longer than any measurement.
const LONG: Duration = Duration::from_secs(600);

struct ByCrate {
    client: Client,
    args: Args,
    how: fn(Lock, &Args) -> Lock,
    /// Guards that are not dropped, so that their leases end without a release.
    abandoned: Vec<Guard>,
}

// On one core, a runtime with many threads could handle the reply to a release, and everything after it,
// before a grant that arrived earlier. In this benchmark the releasing and the waiting task share a process.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args = Args::read();
    match args.text("mode") {
        "observe" => observers::run(&args).await,
        "fleet" => fleet::run(&args).await,
        "once" => once::run(&args).await,
        "set" => sets::run(args.clone()).await,
        _ => {}
    }
    match args.text("proto") {
        "crate" if args.is_no("release") => {
            run(args, |lock, args| lock.fixed_lease(time(args))).await;
        }
        "crate" => run(args, |lock, _| lock).await,
        "watched" => run(args, |lock, args| lock.lease(time(args))).await,
        "bound" => run(args, |lock, _| lock.lease(LONG).bound()).await,
        "election" => election::run(args).await,
        "redis-rs" => commands::run(args, true).await,
        "redis-rs-default" => commands::run(args, false).await,
        "redis-rs-wait" => commands::wait(args).await,
        "watchdog" => watchdog::run(&args).await,
        other => panic!("no such protocol: {other}"),
    }
}

/// The lease, or the ttl of sessions.
fn time(args: &Args) -> Duration {
    Duration::from_millis(args.number("lease_ms"))
}

async fn connect(args: &Args) -> Vec<Client> {
    let builder = Client::builder();
    let builder =
        if args.text("proto") == "bound" { builder.session_ttl(time(args)) } else { builder };
    let mut clients = Vec::new();
    for _ in 0..args.number("clients") {
        clients.push(builder.clone().connect(args.text("url")).await.unwrap());
    }
    clients
}

async fn run(args: Args, how: fn(Lock, &Args) -> Lock) {
    let clients = connect(&args).await;
    let session = |task| {
        let client = clients.get(args.client_of(task)).unwrap().clone();
        ByCrate { client, args: args.clone(), how, abandoned: Vec::new() }
    };
    let sessions = (0..args.number("tasks")).map(session).collect();
    driver::drive(args, env!("CARGO_PKG_VERSION"), sessions).await;
}

impl Session for ByCrate {
    type Held = Guard;

    async fn acquire(&mut self, key: &str) -> Guard {
        (self.how)(self.client.lock(key), &self.args).acquire().await.unwrap()
    }

    async fn release(&mut self, guard: Guard) {
        guard.release().await.unwrap();
    }

    fn abandon(&mut self, guard: Guard) {
        self.abandoned.push(guard);
    }
}

/// Waits for a line of input.
async fn line() {
    tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await.unwrap();
}
