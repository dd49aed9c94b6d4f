//! Masters go, and their replicas take over.

use super::*;
use crate::sentinel::{cut_off, settle};
use moves::{all_are_served, waiters};
use nix::sys::signal::Signal;

#[tokio::test(flavor = "multi_thread")]
async fn holders_and_those_who_wait_go_on_at_the_replica_of_a_master_that_dies() {
    let cluster = Cluster::start(3, 1);
    let client = client(&cluster).await;
    let key = early_key(&cluster);
    let (kept, waited) = (format!("{{{key}}}kept"), format!("{{{key}}}waited"));
    let master = cluster.node_for(&key);
    let replica = cluster.replica_of(master);
    let mut eye = master.connect();
    eye.call(cmd!["LOCK.ACQUIRE", waited, "somebody", 600_000]);
    let guard = soon(client.lock(&kept).acquire()).await.unwrap();
    // Shorter there than what a renewal sets, so that one shows.
    eye.call(cmd!["PEXPIRE", kept, 300_000]);
    let lock = client.lock(&waited);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    observe::wait_for_waiters(&mut eye, &waited, 1);
    settle(master, replica);

    master.kill9();
    meanwhile(|| cluster.wait_for_takeover(replica));
    let mut there = replica.connect();
    observe::wait_for_waiters(&mut there, &waited, 1);
    wait::until("the lease has been renewed there", SOON, || {
        match there.call(cmd!["PTTL", kept]).integer() {
            left if left > 500_000 => Ok(()),
            left => Err(left.to_string()),
        }
    });
    assert!(!guard.is_lost());
    assert_eq!(there.call(cmd!["LOCK.RELEASE", waited, "somebody"]), Value::Integer(0));
    let next = soon(waiter).await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    soon(next.release()).await.unwrap();
    soon(guard.release()).await.unwrap();
    assert_eq!(there.call(cmd!["EXISTS", kept]), Value::Integer(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_died_with_its_master_is_lost_at_once() {
    let cluster = Cluster::start(3, 1);
    let client = client(&cluster).await;
    let key = early_key(&cluster);
    let master = cluster.node_for(&key);
    let replica = cluster.replica_of(master);
    // The same at another master is none of its business.
    let other = a_key_of_each(&cluster).pop().unwrap();
    let other = soon(client.lock(other).acquire()).await.unwrap();
    cut_off(master, replica);
    let guard = soon(client.lock(&key).acquire()).await.unwrap();
    // Somebody must notice that the master is gone: here it is who waits.
    let lock = client.lock(&key);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    observe::wait_for_waiters(&mut master.connect(), &key, 1);
    master.kill9();
    replica.signal(Signal::SIGCONT);
    // The lease would go on for minutes, and the next regular renewal be minutes away.
    tokio::time::timeout(FAILOVER, guard.lost()).await.expect("told of the loss");
    let next = soon(waiter).await.unwrap().unwrap();
    assert!(next.token() > guard.token(), "{} {}", next.token(), guard.token());
    assert!(matches!(guard.release().await, Err(Error::Lost)));
    assert!(!other.is_lost());
    soon(other.release()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_and_waited_for_outlives_a_restart_of_all_six_nodes() {
    let cluster = Cluster::start(3, 1);
    let client = client(&cluster).await;
    let mut locks = Vec::new();
    for key in a_key_of_each(&cluster) {
        let holder = soon(client.lock(&key).acquire()).await.unwrap();
        locks.push((waiters(&cluster, &key, 10).await, holder, key));
    }
    for node in cluster.nodes() {
        meanwhile(|| {
            if is_master(node) {
                cluster.fail_over(node);
                cluster.wait_until_agreed();
            }
            node.shut_down();
            node.restart();
            cluster.wait_until_agreed();
            for (.., key) in &locks {
                observe::wait_for_waiters(&mut cluster.node_for(key).connect(), key, 10);
            }
        });
    }
    for (waiters, holder, key) in locks {
        assert!(!holder.is_lost(), "a restart in order loses nothing");
        all_are_served(waiters, holder).await;
        wait_until_free(&cluster, &key);
    }
}

/// Nobody takes over, and for a while no node serves anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_down_is_waited_for_within_the_limit() {
    let cluster = Cluster::start(3, 0);
    let client = client(&cluster).await;
    let [here, other, _] = a_key_of_each(&cluster).try_into().unwrap();
    let kept = soon(client.lock(&other).acquire()).await.unwrap();
    let gone = soon(client.lock(&here).acquire()).await.unwrap();
    let master = cluster.node_for(&here);
    let mut eye = cluster.node_for(&other).connect();
    master.kill9();
    wait::until_is("the cluster is down", FAILOVER, Some("fail".to_owned()), || {
        observe::cluster_info_field(&mut eye, "cluster_state")
    });
    for key in [format!("{{{here}}}new"), format!("{{{other}}}new")] {
        let told = soon(client.lock(&key).acquire_within(Duration::from_millis(300))).await;
        assert!(told.as_ref().is_err_and(Error::is_retryable), "{told:?}");
        let told = soon(client.lock(&key).try_acquire()).await;
        assert!(told.as_ref().is_err_and(Error::is_retryable), "{told:?}");
    }
    let waiters = [&here, &other].map(|key| {
        let lock = client.lock(format!("{{{key}}}new"));
        tokio::spawn(async move { lock.acquire().await })
    });
    meanwhile(|| {
        master.restart();
        cluster.wait_until_agreed();
    });
    for waiter in waiters {
        let guard = soon(waiter).await.unwrap().unwrap();
        soon(guard.release()).await.unwrap();
    }
    // It kept nothing on disk.
    assert!(matches!(soon(gone.release()).await, Err(Error::Lost)));
    assert!(!kept.is_lost());
    soon(kept.release()).await.unwrap();
}
