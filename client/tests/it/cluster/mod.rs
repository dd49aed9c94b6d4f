//! A client of a cluster.
//!
//! The effect of moving slots on locks is tested in `tests/transcripts/slots_in_cluster.txt`; here the tests
//! are about the client's reaction to the replies.

mod everyday;
mod failover;
mod moves;
mod seeds;

use super::{
    LONG, SOON, Waiter, assert_matches, assert_served, ok, soon, wait_for_lease, wait_for_more,
    waits,
};
use harness::cluster::{Cluster, is_master};
use harness::{Server, Value, cmd, observe, wait};
use kvlock::{Client, Error};
use std::time::Duration;

/// Longest time for a failover and its effects.
const FAILOVER: Duration = Duration::from_secs(60);

async fn client(cluster: &Cluster) -> Client {
    client_with(cluster, LONG).await
}

/// A client that sets the whole lease before an acquire returns, since a node may be down right after it.
async fn client_with(cluster: &Cluster, lease: Duration) -> Client {
    let builder = Client::builder().lease(lease).patience(FAILOVER).confirm(true);
    builder.connect(cluster.url()).await.unwrap()
}

/// Runs work of the harness while tasks of the client keep running.
fn meanwhile<T>(what: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(what)
}

/// A key at each of the three masters.
fn a_key_of_each(cluster: &Cluster) -> Vec<String> {
    let on = |node: &Server| {
        let mut keys = (0..).map(|number| format!("k{number}"));
        keys.find(|key| cluster.node_for(key).port() == node.port()).unwrap()
    };
    cluster.nodes()[..3].iter().map(on).collect()
}

/// A key in one of the 100 lowest slots, which tests move.
fn early_key(cluster: &Cluster) -> String {
    (0..).map(|number| format!("k{number}")).find(|key| cluster.slot_of(key) < 100).unwrap()
}

/// Waits until the lock is free at the node that has its slot.
fn wait_until_free(cluster: &Cluster, key: &str) {
    let mut there = cluster.node_for(key).connect();
    wait::until_is("it is released", SOON, Value::Integer(0), || there.call(cmd!["EXISTS", key]));
}
