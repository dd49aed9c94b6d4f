//! What a client does when nothing happens to the cluster.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_acquired_renewed_waited_for_and_released_wherever_it_is() {
    let cluster = Cluster::start(3, 1);
    let client = client_with(&cluster, Duration::from_secs(2)).await;
    for key in a_key_of_each(&cluster) {
        let mut there = cluster.node_for(&key).connect();
        let guard = soon(client.lock(&key).acquire()).await.unwrap();
        assert_eq!(there.call(cmd!["HGET", key, guard.owner()]), Value::bulk("1"));
        let lock = client.lock(&key);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        observe::wait_for_waiters(&mut there, &key, 1);
        wait::until("it is renewed", SOON, || {
            let calls = observe::info_field(&mut there, "cmdstat_lock.renew").unwrap_or_default();
            if calls.starts_with("calls=") { Ok(()) } else { Err(calls) }
        });
        soon(guard.release()).await.unwrap();
        let next = soon(waiter).await.unwrap().unwrap();
        soon(next.release()).await.unwrap();
        wait_until_free(&cluster, &key);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_slot_is_served() {
    let cluster = Cluster::start(3, 0);
    let client = client(&cluster).await;
    let mut granted = 0;
    for number in 0..1000 {
        let lock = client.lock(format!("k{number}"));
        let guard = soon(lock.try_acquire()).await.unwrap().expect("it is free");
        soon(guard.release()).await.unwrap();
    }
    for node in cluster.nodes() {
        let mut node = node.connect();
        let here = observe::info_number(&mut node, "kvlock_granted");
        assert!(here > 200, "{here} at one of three");
        granted += here;
        // The client knew where to go.
        let errors = observe::info_field(&mut node, "errorstat_MOVED");
        assert_eq!(errors, None);
    }
    assert_eq!(granted, 1000);
}

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
        wait::until("it is waited for", SOON, || {
            let mut there = cluster.node_for(&key).connect();
            match observe::info_number(&mut there, "kvlock_session_waits") {
                0 => Err("nobody".to_owned()),
                _ => Ok(()),
            }
        });
        assert_eq!(soon(latch.count_down()).await.unwrap(), Some(0));
        soon(waiter).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_is_of_all_nodes() {
    let cluster = Cluster::start(3, 0);
    let client = client(&cluster).await;
    let keys = a_key_of_each(&cluster);
    let mut waiters = tokio::task::JoinSet::new();
    for (number, key) in keys.iter().enumerate() {
        let mut there = cluster.node_for(key).connect();
        there.call(cmd!["LOCK.ACQUIRE", key, "somebody", 600_000]);
        for _ in 0..=number {
            // Tasks of one client wait as one.
            let client = Client::connect(cluster.url()).await.unwrap();
            let lock = client.lock(key);
            waiters.spawn(async move { lock.acquire().await });
        }
        observe::wait_for_waiters(&mut there, key, number as i64 + 1);
    }
    let list = soon(client.list(10)).await.unwrap();
    let seen: Vec<(String, u64)> = list
        .iter()
        .map(|lock| (String::from_utf8_lossy(&lock.key).into_owned(), lock.waiters))
        .collect();
    let expected: Vec<(String, u64)> =
        keys.iter().cloned().zip([1, 2, 3]).collect::<Vec<_>>().into_iter().rev().collect();
    assert_eq!(seen, expected);
    assert_eq!(soon(client.list(1)).await.unwrap().len(), 1);
    for key in &keys {
        assert!(soon(client.lock(key).force_release()).await.unwrap());
    }
    while let Some(guard) = soon(waiters.join_next()).await {
        soon(guard.unwrap().unwrap().release()).await.unwrap();
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
    let all = Client::builder().all_replicas(1, ample).reply_timeout(2 * ample);
    let all = all.connect(cluster.url()).await.unwrap();
    for key in a_key_of_each(&cluster) {
        soon(soon(all.lock(&key).acquire()).await.unwrap().release()).await.unwrap();
    }
    let key = early_key(&cluster);
    cluster.replica_of(cluster.node_for(&key)).kill9();
    let strict = Client::builder().min_replicas(1, Duration::from_millis(300));
    let strict = strict.connect(cluster.url()).await.unwrap();
    let told = soon(strict.lock(&key).acquire()).await.unwrap_err();
    assert!(matches!(told, Error::NotReplicated { confirmed: 0, wanted: 1, .. }), "{told:?}");
    wait_until_free(&cluster, &key);
}
