//! The two commands of the crate, sent through plain redis-rs.

use driver::{Args, Session};
use kvlock::{AcquireOptions, AsyncLockCommands as _, ReleaseOptions};
use redis::IntoConnectionInfo as _;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use std::time::Duration;

struct ByHand {
    connection: MultiplexedConnection,
    owner: String,
    lease: Duration,
}

/// Without `TCP_NODELAY` the kernel sends small commands of many tasks in one packet, and delays each until
/// the previous packet is acknowledged.
pub(crate) async fn run(args: Args, nodelay: bool) {
    let tcp = TcpSettings::default().set_nodelay(nodelay);
    let address = args.text("url").into_connection_info().unwrap().set_tcp_settings(tcp);
    let client = redis::Client::open(address).unwrap();
    let mut sessions = Vec::new();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    for task in 0..args.number::<usize>("tasks") {
        let lease = Duration::from_millis(args.number("lease_ms"));
        let owner = format!("285475da-9152-4c83-822a-67ee2f116a79:{task}");
        sessions.push(ByHand { connection: connection.clone(), owner, lease });
    }
    driver::drive(args, env!("CARGO_PKG_VERSION"), sessions).await;
}

impl Session for ByHand {
    type Held = String;

    async fn acquire(&mut self, key: &str) -> String {
        let once = AcquireOptions::default().holds(1);
        let grant = self.connection.lock_acquire_options(key, &self.owner, self.lease, once).await;
        assert!(grant.unwrap().is_some(), "each task has a lock of its own");
        key.to_owned()
    }

    async fn release(&mut self, key: String) {
        let all = ReleaseOptions::default().all();
        self.connection.lock_release_options(&key, &self.owner, all).await.unwrap().unwrap();
    }

    fn abandon(&mut self, _: String) {}
}
