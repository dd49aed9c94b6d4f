//! Refreshes of a cluster in which no node answers.

use super::*;
use futures_util::future::join_all;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Starts a server that accepts connections and never answers. Returns its address, and the number of
/// connections that it has accepted.
fn mute() -> (ConnectionInfo, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("redis://{}/", listener.local_addr().unwrap());
    let taken = Arc::<AtomicUsize>::default();
    let counts = taken.clone();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for connection in listener.incoming() {
            counts.fetch_add(1, Ordering::SeqCst);
            kept.push(connection);
        }
    });
    (redis::IntoConnectionInfo::into_connection_info(address.as_str()).unwrap(), taken)
}

fn cluster(node: ConnectionInfo, patience: Duration) -> Arc<Cluster> {
    Arc::new(Cluster::new(vec![node], patience, &Transport::default(), false).unwrap())
}

#[tokio::test]
async fn concurrent_refreshes_share_one_request() {
    let (node, taken) = mute();
    let cluster = cluster(node, Duration::from_millis(300));
    for outcome in join_all((0..10).map(|_| cluster.find(b"k"))).await {
        assert!(outcome.is_err());
    }
    assert_eq!(taken.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_refresh_continues_when_its_callers_give_up() {
    let (node, taken) = mute();
    let cluster = cluster(node, Duration::from_secs(60));
    for _ in 0..5 {
        assert!(timeout(Duration::from_millis(20), cluster.find(b"k")).await.is_err());
    }
    assert_eq!(taken.load(Ordering::SeqCst), 1);
}
