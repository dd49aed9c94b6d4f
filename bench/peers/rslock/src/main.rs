//! Load through rslock. `bench/peers/README.md` describes the arguments and the output.

use driver::{Args, Session};
use rslock::{LockError, LockGuard, LockManager};
use std::time::Duration;

struct ByRslock {
    manager: LockManager,
    lease: Duration,
}

#[tokio::main]
async fn main() {
    let args = Args::read();
    let connect = |_| LockManager::new(vec![args.text("url").to_owned()]);
    let clients: Vec<_> = (0..args.number("clients")).map(connect).collect();
    let lease = Duration::from_millis(args.number("lease_ms"));
    let sessions = (0..args.number("tasks"))
        .map(|task| ByRslock { manager: clients[args.client_of(task)].clone(), lease })
        .collect();
    driver::drive(args, "0.10.0", sessions).await;
}

impl Session for ByRslock {
    type Held = LockGuard;

    /// Acquires the lock. By default the library gives up after three attempts, so this function repeats
    /// them.
    async fn acquire(&mut self, key: &str) -> LockGuard {
        loop {
            match self.manager.acquire(key, self.lease).await {
                Ok(guard) => return guard,
                Err(LockError::Unavailable) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn release(&mut self, guard: LockGuard) {
        guard.release().await;
    }

    /// Dropping the guard leaves the key to expire.
    fn abandon(&mut self, _: LockGuard) {}
}
