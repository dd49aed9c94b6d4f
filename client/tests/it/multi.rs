//! Several locks as one.

use super::{MOMENT, SOON, Stage, assert_matches, ok, soon};
use harness::{Server, Value, cmd, observe};
use kvlock::{Client, Error, MultiLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn all_of(client: &Client, keys: &[&str]) -> MultiLock {
    MultiLock::new(keys.iter().map(|key| client.lock(key))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_held_if_one_cannot_be_had() {
    let mut stage = Stage::set().await;
    stage.taken("b");
    let all = all_of(&stage.client, &["a", "b", "c"]);
    assert!(ok(all.try_acquire()).await.is_none());
    assert!(stage.is_free("a") && stage.is_free("c"));
    assert!(ok(all.acquire_within(MOMENT)).await.is_none());
    assert!(stage.is_free("a") && stage.is_free("c"));
    // The second is no lock.
    stage.control.run("SET bad 1");
    let bad = all_of(&stage.client, &["a", "bad"]);
    assert_matches!(soon(bad.acquire()).await, Err(Error::NotALock));
    assert!(stage.is_free("a"));
    stage.control.run("DEL bad b");
    drop(ok(all.try_acquire()).await.expect("all are free"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_lost_is_the_loss_of_all() {
    let mut stage = Stage::with(Client::builder().lease(Duration::from_secs(1))).await;
    let guard = ok(all_of(&stage.client, &["a", "b", "c"]).acquire()).await;
    let work = guard.run_until_lost(std::future::pending::<()>());
    stage.control.run("LOCK.FORCERELEASE b");
    assert_matches!(soon(work).await, Err(Error::Lost(_)));
    soon(guard.lost()).await;
    assert!(guard.is_lost());
    assert_matches!(soon(guard.release()).await, Err(Error::Lost(_)));
    assert!(stage.is_free("a") && stage.is_free("c"));
    // Also while others are waited for.
    stage.taken("b");
    let all = all_of(&stage.client, &["a", "b"]);
    let waiter = tokio::spawn(async move { all.acquire().await });
    observe::wait_for_waiters(&mut stage.control, "b", 1);
    stage.control.run("LOCK.FORCERELEASE a");
    assert_matches!(ok(waiter).await, Err(Error::Lost(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_different_servers_are_one() {
    let mut stage = Stage::set().await;
    let elsewhere = Server::start();
    let other = Client::connect(elsewhere.url()).await.unwrap();
    let all = [stage.client.lock("k"), other.lock("k"), other.lock("a")];
    let guard = ok(MultiLock::new(all).unwrap().acquire()).await;
    let names: Vec<&[u8]> = guard.tokens().iter().map(|(name, _)| *name).collect();
    assert_eq!(names, [b"a", b"k", b"k"]);
    for part in guard.guards() {
        assert!(guard.tokens().contains(&(part.key(), part.token())));
    }
    assert!(!guard.is_lost() && !stage.is_free("k"));
    assert_eq!(elsewhere.connect().call(cmd!["EXISTS", "k", "a"]), Value::Integer(2));
    ok(guard.release()).await;
    assert_eq!(elsewhere.connect().call(cmd!["EXISTS", "k", "a"]), Value::Integer(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn none_and_the_same_twice_are_refused() {
    let stage = Stage::set().await;
    assert_matches!(MultiLock::new([]), Err(Error::Invalid(_)));
    let same = stage.other().await;
    for twice in
        [[stage.client.lock("a"), stage.client.lock("a")], [stage.client.lock("a"), same.lock("a")]]
    {
        assert_matches!(MultiLock::new(twice), Err(Error::Invalid(_)));
    }
}

/// Each takes three of five locks, in whatever order they come to its mind.
#[tokio::test(flavor = "multi_thread")]
async fn philosophers_all_eat() {
    let stage = Stage::set().await;
    let forks: Arc<[AtomicUsize; 5]> = Arc::default();
    let mut tasks = tokio::task::JoinSet::new();
    for seat in 0..5 {
        let client = stage.other().await;
        let forks = forks.clone();
        tasks.spawn(async move {
            for _ in 0..20 {
                let mine = [(seat + 2) % 5, seat, (seat + 1) % 5];
                let locks = mine.map(|fork| client.lock(format!("fork:{fork}")));
                let guard = MultiLock::new(locks).unwrap().acquire().await.unwrap();
                for fork in mine {
                    assert_eq!(forks[fork].fetch_add(1, Ordering::SeqCst), 0, "two have one fork");
                }
                tokio::task::yield_now().await;
                for fork in mine {
                    forks[fork].fetch_sub(1, Ordering::SeqCst);
                }
                guard.release().await.unwrap();
            }
        });
    }
    while let Some(done) =
        tokio::time::timeout(2 * SOON, tasks.join_next()).await.expect("no deadlock")
    {
        done.unwrap();
    }
}
