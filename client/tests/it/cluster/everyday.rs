//! A client of a cluster that does not change.

use super::*;
use crate::story::Story;
use moves::{all_are_served, waiters};

#[tokio::test(flavor = "multi_thread")]
async fn every_node_behaves_like_a_single_server() {
    let cluster = Cluster::start(3, 0);
    let client = client(&cluster).await;
    for slot in a_key_of_each(&cluster) {
        let there = cluster.node_for(&slot).connect();
        Story { client: client.clone(), there, slot }.tell_all().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_covers_all_nodes() {
    let cluster = Cluster::start(3, 0);
    let client = client(&cluster).await;
    let keys = a_key_of_each(&cluster);
    let mut locks = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        let holder = ok(client.lock(key).acquire()).await;
        locks.push((waiters(&cluster, key, number + 1).await, holder));
    }
    let list = ok(client.list(10)).await;
    let seen: Vec<_> = list.iter().map(|lock| (&*lock.key, lock.waiters)).collect();
    assert_eq!(seen, [2, 1, 0].map(|number| (keys[number].as_bytes(), number as u64 + 1)));
    assert_eq!(ok(client.list(1)).await.len(), 1);
    for (waiters, holder) in locks {
        all_are_served(waiters, holder).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_of_each_node_confirm() {
    let cluster = Cluster::start(3, 1);
    let ample = Duration::from_secs(10);
    let builder = Client::builder().lease(Duration::from_secs(60)).reply_timeout(2 * ample);
    let client = builder.min_replicas(1, ample).connect(cluster.url()).await.unwrap();
    for key in a_key_of_each(&cluster) {
        let guard = ok(client.lock(&key).acquire()).await;
        let mut replica = cluster.replica_of(cluster.node_for(&key)).connect();
        replica.run("READONLY");
        assert_eq!(replica.call(cmd!["HGET", key, guard.owner()]), Value::bulk("1"));
        ok(guard.release()).await;
    }
}
