//! The raw load generator: locks without a client library. In most protocols, each task has one connection.
//!
//! Each protocol sends only the commands that it needs, and parses as little as possible, so that the figures
//! depend mostly on the server. The load generator runs on one thread.
//!
//! | `proto` | |
//! |---|---|
//! | `kvlock` | `LOCK.WAIT` and `LOCK.RELEASE`; in pipelines, `LOCK.ACQUIRE` and `LOCK.RELEASE` |
//! | `session` | the same through sessions: `session.rs` |
//! | `lua` | scripts and pub/sub, like Redisson's locks: `lua.rs` |
//! | `set-cad` | `SET NX PX` and a script that compares and deletes |
//! | `set-del` | `SET NX PX` and `DEL`: no lock, because it can delete the lock of another owner |
//! | `blpop` | `LPUSH` and `BLPOP`: the cheapest hand-off that the server has |
//! | `ping` | two `PING`s |
//! | `plain` | `SET`, `GET`, `HSET`, `DEL` of a client without locks |
//! | `poller` | `SET NX PX` tried again every 100 ms, renewed while it is held: `poller.rs` |
//! | `counter` | a semaphore without leases: scripts that count down and up |
//!
//! `mode` is the kind of object: a `lock`, a `share` of a lock, or a `permit` (`family.rs`). Shares and
//! permits are acquired only in pipelines, except kvlock's shares. With `crowd`, many readers share a lock at
//! once (`crowd.rs`). With `pairs`, hand-offs go to a blocked client and to a session in turn
//! (`crowd/pairs.rs`). With `observe`, observers follow the leader (`poller.rs`). With `noisy`, other clients
//! are measured during work for many waits of one session (`crowd/noisy.rs`). With `once`, all tasks need one
//! result (`once.rs`).
//!
//! With `depth=16` a record is a pipeline of eight acquisitions and releases.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "it measures; whatever goes wrong ends it"
)]

mod crowd;
mod family;
mod floors;
mod lua;
mod native;
mod once;
mod pipeline;
mod poller;
mod session;
mod wire;

use driver::Args;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args = Args::read();
    match args.text("mode") {
        "crowd" => return crowd::run(&args),
        "pairs" => return crowd::pairs::run(&args),
        "noisy" => return crowd::noisy::run(&args),
        "observe" => poller::observe(&args).await,
        "once" => once::run(&args).await,
        _ => {}
    }
    if args.number::<usize>("depth") > 1 {
        return run::<pipeline::Pipeline>(args).await;
    }
    match args.text("proto") {
        "session" => {
            let sessions = session::connect(&args).await;
            driver::drive(args, env!("CARGO_PKG_VERSION"), sessions).await;
        }
        "kvlock" => run::<native::Native>(args).await,
        "lua" => run::<lua::Lua>(args).await,
        "blpop" => run::<floors::List>(args).await,
        "poller" => run::<poller::Poller>(args).await,
        "plain" => run::<floors::Plain>(args).await,
        "set-cad" | "set-del" | "ping" => run::<floors::Simple>(args).await,
        other => panic!("no such protocol: {other}"),
    }
}

/// A session that is created from the arguments.
trait Connect: driver::Session + Sized {
    async fn connect(args: &Args, task: usize) -> Self;
}

async fn run<S: Connect>(args: Args) {
    let mut sessions = Vec::new();
    for task in 0..args.number("tasks") {
        sessions.push(S::connect(&args, task).await);
    }
    driver::drive(args, env!("CARGO_PKG_VERSION"), sessions).await;
}
