//! Masters die or restart, with and without replicas that take over.

use super::*;
use crate::sentinel::replicated_locks_are_kept;
use moves::{all_are_served, waiters};

#[tokio::test(flavor = "multi_thread")]
async fn after_a_masters_death_replicated_locks_are_kept_and_others_lost_at_once() {
    let cluster = Cluster::start(3, 1);
    let client = client(&cluster).await;
    let key = early_key(&cluster);
    let master = cluster.node_for(&key);
    // This lock is at another master, so it must not be lost.
    let other = a_key_of_each(&cluster).pop().unwrap();
    let other = ok(client.lock(other).acquire()).await;
    replicated_locks_are_kept(&client, master, cluster.replica_of(master), &key).await;
    assert!(!other.is_lost());
    // The other master may hear later that the cluster is up again.
    meanwhile(|| cluster.wait_until_agreed());
    ok(other.release()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_and_waits_survive_a_restart_of_all_six_nodes() {
    let cluster = Cluster::start(3, 1);
    let client = client(&cluster).await;
    let mut locks = Vec::new();
    for key in a_key_of_each(&cluster) {
        let holder = ok(client.lock(&key).acquire()).await;
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

/// No replica takes over, and for a while no node serves commands.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_down_is_retried_within_the_limit() {
    let cluster = Cluster::start(3, 0);
    let client = client(&cluster).await;
    let [here, other, _] = a_key_of_each(&cluster).try_into().unwrap();
    let kept = ok(client.lock(&other).acquire()).await;
    let gone = ok(client.lock(&here).acquire()).await;
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
    let waiters = [&here, &other].map(|key| waits(&client.lock(format!("{{{key}}}new"))));
    meanwhile(|| {
        master.restart();
        cluster.wait_until_agreed();
    });
    for waiter in waiters {
        assert_served(waiter).await;
    }
    // The master kept nothing on disk.
    assert_matches!(soon(gone.release()).await, Err(Error::Lost(_)));
    assert!(!kept.is_lost());
    ok(kept.release()).await;
}
