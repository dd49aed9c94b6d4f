//! The cost of holding many locks: a process acquires them and renews them.

use crate::LONG;
use driver::Args;
use kvlock::{Client, Guard};
use tokio::task::JoinSet;

/// Number of concurrent acquires.
const AT_ONCE: usize = 100;

/// Prints `ready` when it holds the locks. At the next line of input, prints how many of them were lost.
pub(crate) async fn run(args: &Args) {
    let client = Client::connect(args.text("url")).await.unwrap();
    let bound = args.is_yes("bound");
    let each = args.number::<usize>("tasks") / AT_ONCE;
    let mut acquiring = JoinSet::new();
    for task in 0..AT_ONCE {
        let client = client.clone();
        acquiring.spawn(async move {
            let mut guards = Vec::new();
            for number in 0..each {
                let lock = client.lock(format!("{task}:{number}"));
                let lock = if bound { lock.lease(LONG).bound() } else { lock };
                guards.push(lock.acquire().await.unwrap());
            }
            guards
        });
    }
    let guards: Vec<Guard> = acquiring.join_all().await.into_iter().flatten().collect();
    println!("ready {}", env!("CARGO_PKG_VERSION"));
    tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await.unwrap();
    println!("{}", guards.iter().filter(|guard| guard.is_lost()).count());
    println!("done");
    std::process::exit(0);
}
