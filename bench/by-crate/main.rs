//! Load through client libraries in Rust: the crate `kvlock`, and redis-rs with the same two
//! commands and nothing around them.
//!
//! | `proto` | |
//! |---|---|
//! | `crate` | `kvlock::Client`, as its documentation shows it |
//! | `redis-rs` | `kvlock::AsyncLockCommands` over a multiplexed connection with `TCP_NODELAY` |
//! | `redis-rs-default` | the same as redis-rs opens connections by default, without `TCP_NODELAY` |
//! | `watchdog` | holds `tasks` locks, and uses no processor time but to keep them |
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "it measures; whatever goes wrong ends it"
)]

mod commands;
mod watchdog;

use driver::{Args, Session};
use kvlock::{Client, Guard};
use std::time::Duration;

struct ByCrate {
    client: Client,
    args: Args,
    /// Guards that must not be dropped: their leases are to end by themselves.
    abandoned: Vec<Guard>,
}

#[tokio::main]
async fn main() {
    let args = Args::read();
    match args.text("proto") {
        "crate" => {
            let sessions = sessions(&args).await;
            driver::drive(args, env!("CARGO_PKG_VERSION"), sessions).await;
        }
        "redis-rs" => commands::run(args, true).await,
        "redis-rs-default" => commands::run(args, false).await,
        "watchdog" => watchdog::run(&args).await,
        other => panic!("no such protocol: {other}"),
    }
}

async fn sessions(args: &Args) -> Vec<ByCrate> {
    let mut clients = Vec::new();
    for _ in 0..args.number("clients") {
        clients.push(Client::connect(args.text("url")).await.unwrap());
    }
    (0..args.number("tasks"))
        .map(|task| {
            let client = clients.get(args.client_of(task)).unwrap().clone();
            ByCrate { client, args: args.clone(), abandoned: Vec::new() }
        })
        .collect()
}

impl Session for ByCrate {
    type Held = Guard;

    async fn acquire(&mut self, key: &str) -> Guard {
        let lock = self.client.lock(key);
        let lock = if self.args.is_no("release") {
            lock.fixed_lease(Duration::from_millis(self.args.number("lease_ms")))
        } else {
            lock
        };
        lock.acquire().await.unwrap()
    }

    async fn release(&mut self, guard: Guard) {
        guard.release().await.unwrap();
    }

    fn abandon(&mut self, guard: Guard) {
        self.abandoned.push(guard);
    }
}
