//! A client process of a fleet: many tasks that wait for one lock, also over a restart of the server.

use crate::LONG;
use driver::Args;
use kvlock::Client;
use tokio::task::JoinSet;

/// Prints `ready` when the client is connected. At the first line of input, the tasks begin to wait. At the
/// second line, prints how many of the tasks have given up.
pub(crate) async fn run(args: &Args) -> ! {
    let client = Client::builder().patience(LONG).connect(args.text("url")).await.unwrap();
    println!("ready {}", env!("CARGO_PKG_VERSION"));
    crate::line().await;
    let mut waiting = JoinSet::new();
    for _ in 0..args.number("tasks") {
        let lock = client.lock(args.text("key"));
        waiting.spawn(async move { lock.acquire().await.map(drop) });
    }
    crate::line().await;
    let mut gave_up = 0;
    while waiting.try_join_next().is_some() {
        gave_up += 1;
    }
    println!("{gave_up}");
    println!("done");
    std::process::exit(0);
}
