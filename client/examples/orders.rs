//! The example of the README: work that is done while a lock is held.
#![expect(clippy::print_stdout, reason = "an example says what it does")]

use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), kvlock::Error> {
    let client = kvlock::Client::connect("redis://127.0.0.1/").await?;

    // Waits for the lock. The lease is renewed while the guard exists.
    let guard = client.lock("orders:42").acquire().await?;
    println!("working, with token {}", guard.token());

    // Stops at once if the lock is lost.
    let work = tokio::time::sleep(Duration::from_secs(1));
    guard.run_until_lost(work).await?;

    guard.release().await // or drop it
}
