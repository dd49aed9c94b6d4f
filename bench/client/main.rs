//! What the client crate costs.
//!
//! ```text
//! cargo run --release -p kvlock-bench --bin client              all of it, about three minutes
//! cargo run --release -p kvlock-bench --bin client -- cycles    acquire and release, against plain redis-rs
//! cargo run --release -p kvlock-bench --bin client -- contend   ten processes that want one lock
//! cargo run --release -p kvlock-bench --bin client -- watchdog  keeping 1,000, 10,000 and 100,000 locks
//! ```
//!
//! It starts a server of its own, on this machine. What is compared is measured in turns, and given
//! as the median of the turns with the smallest and the largest.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "it measures and prints; whatever goes wrong ends it"
)]

mod contend;
mod cycles;
mod figures;
mod watchdog;

use harness::Server;

#[tokio::main]
async fn main() {
    let what: Vec<String> = std::env::args().skip(1).collect();
    let what: Vec<&str> = what.iter().map(String::as_str).collect();
    match what.as_slice() {
        [] => {
            cycles::measure(&Server::start()).await;
            contend::measure(&Server::start());
            watchdog::measure(&Server::start()).await;
        }
        ["cycles"] => cycles::measure(&Server::start()).await,
        ["contend"] => contend::measure(&Server::start()),
        ["watchdog"] => watchdog::measure(&Server::start()).await,
        ["contender", url] => contend::contender(url).await,
        _ => println!("usage: client [cycles | contend | watchdog]"),
    }
}
