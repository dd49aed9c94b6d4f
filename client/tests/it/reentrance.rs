//! Acquisitions that share an owner.

use super::{Stage, soon};
use harness::{Value, observe};
use kvlock::Error;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_re_enters_and_the_last_guard_frees() {
    let mut stage = Stage::set().await;
    let me = stage.client.owner();
    let lock = stage.client.lock("k").owner(&me);
    let outer = soon(lock.acquire()).await.unwrap();
    let middle = soon(lock.try_acquire()).await.unwrap().expect("it is ours");
    let inner = soon(lock.acquire_within(Duration::from_secs(1))).await.unwrap().unwrap();
    assert!(outer.token() == middle.token() && middle.token() == inner.token());
    assert_eq!((outer.owner(), outer.holds()), (inner.owner(), 3));
    assert_eq!(soon(lock.hold_count(&me)).await.unwrap(), 3);
    // In any order.
    soon(outer.release()).await.unwrap();
    soon(inner.release()).await.unwrap();
    assert_eq!((middle.holds(), soon(lock.hold_count(&me)).await.unwrap()), (1, 1));
    assert!(stage.client.lock("k").try_acquire().await.unwrap().is_none());
    drop(middle);
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tenure_has_an_owner_of_its_own_on_the_wire() {
    let stage = Stage::set().await;
    let lock = stage.client.lock("k").owner(&stage.client.owner());
    let first = soon(lock.acquire()).await.unwrap();
    let name = first.owner().to_owned();
    soon(first.release()).await.unwrap();
    let second = soon(lock.acquire()).await.unwrap();
    assert_ne!(second.owner(), name);
}

#[tokio::test(flavor = "multi_thread")]
async fn acquires_of_one_owner_at_the_same_time_all_get_in() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let lock = stage.client.lock("k").owner(&stage.client.owner());
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.unwrap() })
        })
        .collect();
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    // The owner waits already, and a try must not.
    assert!(soon(lock.try_acquire()).await.unwrap().is_none());
    assert!(soon(lock.acquire_within(Duration::from_millis(50))).await.unwrap().is_none());
    stage.control.run("LOCK.RELEASE k somebody");
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(soon(task).await.unwrap());
    }
    assert_eq!(guards[0].holds(), 8);
    assert_eq!(stage.control.run("LOCK.INFO k").field("holds"), &Value::Integer(8));
    drop(guards);
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn re_entering_a_lost_lock_is_told() {
    let mut stage = Stage::set().await;
    let lock = stage.client.lock("k").owner(&stage.client.owner());
    let outer = soon(lock.acquire()).await.unwrap();
    stage.control.run("DEL k");
    let trouble = soon(lock.acquire()).await.unwrap_err();
    assert!(trouble.is_lost() && outer.is_lost());
    // Also when somebody else has it by now, and as long as the outer guard lives.
    stage.taken("k");
    assert!(matches!(soon(lock.try_acquire()).await, Err(Error::Lost)));
    assert!(soon(outer.release()).await.unwrap_err().is_lost());
    assert!(soon(lock.try_acquire()).await.unwrap().is_none());
    stage.control.run("LOCK.RELEASE k somebody");
    soon(lock.acquire()).await.unwrap().release().await.unwrap();
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nested_lease_never_shortens_and_may_lengthen() {
    let mut stage = Stage::set().await;
    let me = stage.client.owner();
    let lock = |seconds| {
        let lease = Duration::from_secs(seconds);
        stage.client.lock("k").owner(&me).fixed_lease(lease)
    };
    let (long, short, longer) = (lock(60), lock(10), lock(100));
    let outer = soon(long.acquire()).await.unwrap();
    let inner = soon(short.acquire()).await.unwrap();
    assert!(stage.control.run("PTTL k").integer() > 50_000);
    assert!(inner.lease_left() > Duration::from_secs(50));
    let innermost = soon(longer.acquire()).await.unwrap();
    assert!(stage.control.run("PTTL k").integer() > 90_000);
    assert!(outer.lease_left() > Duration::from_secs(90));
    // A partial release leaves the lease alone.
    soon(innermost.release()).await.unwrap();
    assert!(stage.control.run("PTTL k").integer() > 90_000);
    drop((outer, inner));
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_ask_for_the_longest_lease_that_a_guard_wants() {
    let mut stage = Stage::set().await;
    let me = stage.client.owner();
    let lock = stage.client.lock("k").owner(&me);
    let long = soon(lock.clone().fixed_lease(Duration::from_secs(60)).acquire()).await.unwrap();
    let mut short = soon(lock.lease(Duration::from_secs(1)).acquire()).await.unwrap();
    // This renews for the short one, and must not take time from the long one.
    soon(short.extend(Duration::from_secs(2))).await.unwrap();
    assert!(stage.control.run("PTTL k").integer() > 50_000);
    assert!(long.lease_left() > Duration::from_secs(50));
    soon(long.release()).await.unwrap();
    soon(short.extend(Duration::from_secs(2))).await.unwrap();
    assert!(stage.control.run("PTTL k").integer() <= 2_000);
    soon(short.release()).await.unwrap();
    stage.assert_nothing_is_left();
}
