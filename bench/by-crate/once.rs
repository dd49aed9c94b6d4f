//! Tasks that all need a result that another program produces.

use driver::{Args, now};
use kvlock::{Client, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

/// Prints `ready` when the client is connected. At the next line of input the tasks begin to wait. When all
/// have the result, prints the time, and how many tasks have done the work themselves.
pub(crate) async fn run(args: &Args) -> ! {
    let client = Client::connect(args.text("url")).await.unwrap();
    let results = redis::Client::open(args.text("url")).unwrap();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let results = results.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    println!("ready {}", env!("CARGO_PKG_VERSION"));
    crate::line().await;
    let (worked, shared) = (Arc::new(AtomicU64::new(0)), Arc::new(OnceCell::new()));
    let mut tasks = JoinSet::new();
    for _ in 0..args.number("tasks") {
        let (client, worked, shared) = (client.clone(), worked.clone(), shared.clone());
        let (key, how) = (args.text("key").to_owned(), args.text("proto").to_owned());
        let results = results.clone();
        tasks.spawn(async move {
            let work = || worked.fetch_add(1, Ordering::Relaxed);
            match how.as_str() {
                "crate" => {
                    let once = client.once(&key).ttl(Duration::from_secs(60));
                    let make = async |_: &kvlock::Guard| {
                        work();
                        b"made here".to_vec()
                    };
                    drop(once.get_or(make).await.unwrap());
                }
                "checked" => checked(&client, results, &key, work).await.unwrap(),
                "flight" => {
                    let get = || async { checked(&client, results, &key, work).await.unwrap() };
                    shared.get_or_init(get).await;
                }
                other => panic!("no such protocol: {other}"),
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    println!("{} {}", now(), worked.load(Ordering::Relaxed));
    println!("done");
    std::process::exit(0);
}

/// Looks for the result. If there is none, takes the lock, and looks again: a double check.
async fn checked(
    client: &Client,
    mut results: redis::aio::MultiplexedConnection,
    key: &str,
    work: impl Fn() -> u64,
) -> Result<(), Error> {
    let mut look = async || {
        let found: Option<Vec<u8>> =
            redis::cmd("GET").arg(key).query_async(&mut results).await.unwrap();
        found.is_some()
    };
    if look().await {
        return Ok(());
    }
    let guard = client.lock(client.once(key).lock_name()).acquire().await?;
    if !look().await {
        work();
    }
    guard.release().await
}
