//! Load through `kvlock::AsyncLockCommands` on connections of redis-rs, without `kvlock::Client`.

use driver::{Args, Session};
use kvlock::{AcquireOptions, AsyncLockCommands as _, ReleaseOptions};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _};
use std::time::Duration;

/// A task that sends `LOCK.ACQUIRE` and `LOCK.RELEASE` over a connection shared by all tasks.
struct ByHand(Task);

/// A task that blocks in `LOCK.WAIT` on a connection of its own.
struct Waiting(Task);

struct Task {
    connection: MultiplexedConnection,
    owner: String,
    lease: Duration,
}

impl Task {
    fn new(args: &Args, number: usize, connection: MultiplexedConnection) -> Self {
        let process: usize = args.number("process");
        let owner = format!("285475da-9152-4c83-822a-67ee2f116a79:{process}:{number}");
        Self { connection, owner, lease: Duration::from_millis(args.number("lease_ms")) }
    }

    async fn release(&mut self, key: &str) {
        let all = ReleaseOptions::default().all();
        self.connection.lock_release_options(key, &self.owner, all).await.unwrap().unwrap();
    }
}

/// Returns a client that connects with or without `TCP_NODELAY`. Without it, the kernel delays small commands
/// until the server acknowledges the previous packet, and then sends them together.
fn client(args: &Args, nodelay: bool) -> Client {
    let tcp = TcpSettings::default().set_nodelay(nodelay);
    let address = args.text("url").into_connection_info().unwrap().set_tcp_settings(tcp);
    Client::open(address).unwrap()
}

pub(crate) async fn run(args: Args, nodelay: bool) {
    let connection = client(&args, nodelay).get_multiplexed_async_connection().await.unwrap();
    let tasks = 0..args.number::<usize>("tasks");
    let sessions = tasks.map(|task| ByHand(Task::new(&args, task, connection.clone()))).collect();
    driver::drive(args, env!("CARGO_PKG_VERSION"), sessions).await;
}

pub(crate) async fn wait(args: Args) {
    let client = client(&args, true);
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut sessions = Vec::new();
    for task in 0..args.number::<usize>("tasks") {
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        sessions.push(Waiting(Task::new(&args, task, connection.unwrap())));
    }
    driver::drive(args, env!("CARGO_PKG_VERSION"), sessions).await;
}

impl Session for ByHand {
    type Held = String;

    async fn acquire(&mut self, key: &str) -> String {
        let Self(Task { connection, owner, lease }) = self;
        let once = AcquireOptions::default().holds(1);
        let grant = connection.lock_acquire_options(key, owner, *lease, once).await;
        assert!(grant.unwrap().is_some(), "each task has a lock of its own");
        key.to_owned()
    }

    async fn release(&mut self, key: String) {
        self.0.release(&key).await;
    }

    fn abandon(&mut self, _: String) {}
}

impl Session for Waiting {
    type Held = String;

    async fn acquire(&mut self, key: &str) -> String {
        let Self(Task { connection, owner, lease }) = self;
        let once = AcquireOptions::default().holds(1);
        let grant = connection.lock_wait_options(key, owner, *lease, None, once).await;
        assert!(grant.unwrap().is_some(), "a wait without a time limit ends with a grant");
        key.to_owned()
    }

    async fn release(&mut self, key: String) {
        self.0.release(&key).await;
    }

    fn abandon(&mut self, _: String) {}
}
