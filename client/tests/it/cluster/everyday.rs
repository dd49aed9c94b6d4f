//! What a client does when nothing happens to the cluster.

use super::*;
use moves::{all_are_served, waiters};

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_family_works() {
    let cluster = Cluster::start(3, 0);
    let client = client(&cluster).await;
    for key in a_key_of_each(&cluster) {
        let in_slot = |name: &str| format!("{{{key}}}{name}");
        let me = client.owner();
        let lock = client.lock(in_slot("lock")).owner(&me);
        let first = soon(lock.acquire()).await.unwrap();
        let again = soon(lock.acquire()).await.unwrap();
        assert_eq!((again.token(), again.holds()), (first.token(), 2));
        soon(again.release()).await.unwrap();
        let reader = soon(first.downgrade()).await.unwrap();
        let other = soon(client.lock(in_slot("lock")).shared().acquire()).await.unwrap();
        assert!(soon(client.lock(in_slot("lock")).info()).await.unwrap().shared);
        soon(reader.release()).await.unwrap();
        soon(other.release()).await.unwrap();

        let pool = client.semaphore(in_slot("pool"));
        soon(pool.set(2)).await.unwrap();
        let permits = soon(pool.clone().permits(2).acquire()).await.unwrap();
        assert!(soon(pool.try_acquire()).await.unwrap().is_none());
        soon(permits.release()).await.unwrap();
        assert_eq!(soon(pool.info()).await.unwrap().used, 0);

        let latch = client.latch(in_slot("latch"));
        assert!(soon(latch.set(1)).await.unwrap());
        let waiter = tokio::spawn({
            let latch = latch.clone();
            async move { latch.wait().await }
        });
        let mut there = cluster.node_for(&key).connect();
        observe::wait_for_info(&mut there, "kvlock_session_waits", 1);
        assert_eq!(soon(latch.count_down()).await.unwrap(), Some(0));
        soon(waiter).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_is_of_all_nodes() {
    let cluster = Cluster::start(3, 0);
    let client = client(&cluster).await;
    let keys = a_key_of_each(&cluster);
    let mut locks = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        let holder = soon(client.lock(key).acquire()).await.unwrap();
        locks.push((waiters(&cluster, key, number + 1).await, holder));
    }
    let list = soon(client.list(10)).await.unwrap();
    let seen: Vec<_> = list.iter().map(|lock| (&*lock.key, lock.waiters)).collect();
    assert_eq!(seen, [2, 1, 0].map(|number| (keys[number].as_bytes(), number as u64 + 1)));
    assert_eq!(soon(client.list(1)).await.unwrap().len(), 1);
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
        let guard = soon(client.lock(&key).acquire()).await.unwrap();
        let mut replica = cluster.replica_of(cluster.node_for(&key)).connect();
        replica.run("READONLY");
        assert_eq!(replica.call(cmd!["HGET", key, guard.owner()]), Value::bulk("1"));
        soon(guard.release()).await.unwrap();
    }
}
