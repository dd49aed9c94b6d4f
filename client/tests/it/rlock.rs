//! What Redisson's own tests ask of its `RLock`.

use super::{Stage, soon};
use harness::observe;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread")]
async fn a_try_does_not_wait() {
    let mut stage = Stage::set().await;
    let lock = stage.client.lock("k");
    let guard = lock.try_acquire().await.unwrap().expect("it is free");
    assert!(lock.try_acquire().await.unwrap().is_none(), "another acquisition is another owner");
    guard.release().await.unwrap();
    stage.taken("k");
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(lock.acquire_within(Duration::ZERO).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_its_limit() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let before = std::time::Instant::now();
    assert!(stage.client.lock("k").acquire_within(SHORT).await.unwrap().is_none());
    assert!(before.elapsed() >= SHORT);
    observe::wait_for_waiters(&mut stage.control, "k", 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_keeps_a_lock_and_stops_with_the_guard() {
    let mut stage = Stage::set().await;
    let guard = stage.client.lock("k").lease(SHORT).acquire().await.unwrap();
    // Ten leases.
    crate::wait_for_renewals(&mut stage.control, 30);
    assert!(!guard.is_lost());
    assert_eq!(stage.owner_of("k").as_deref(), Some(guard.owner()));
    guard.release().await.unwrap();
    // The next owner's lease is left alone.
    stage.control.run("LOCK.ACQUIRE k next 150");
    stage.wait_until_free("k");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_lease_can_be_released_early_and_extended() {
    let mut stage = Stage::set().await;
    let lock = stage.client.lock("k").fixed_lease(Duration::from_secs(5));
    lock.acquire().await.unwrap().release().await.unwrap();
    assert!(stage.is_free("k"));
    let mut guard = lock.acquire().await.unwrap();
    guard.extend(Duration::from_secs(100)).await.unwrap();
    assert!(guard.lease_left() > Duration::from_secs(90));
    assert!(stage.control.run("PTTL k").integer() > 90_000);
    guard.extend(Duration::from_millis(200)).await.unwrap();
    assert!(guard.lease_left() < Duration::from_millis(200));
    soon(guard.lost()).await;
    assert!(guard.extend(SHORT).await.unwrap_err().is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn long_leases_are_set_by_renewal() {
    let mut stage = Stage::set().await;
    stage.control.run("CONFIG SET slowlog-log-slower-than 0");
    let hour = Duration::from_secs(3600);
    let guard = stage.client.lock("k").lease(hour).acquire().await.unwrap();
    assert!(stage.control.run("PTTL k").integer() > 3_500_000);
    assert!(guard.lease_left() > Duration::from_secs(3500));
    // A grant that nobody hears of is over after half a minute.
    let commands = stage.control.run("SLOWLOG GET 10");
    let mut entries = commands.elements().iter().map(|entry| &entry[3]);
    let first = entries.rfind(|command| command[0].text() == "LOCK.ACQUIRE").unwrap();
    assert_eq!(first[3].text(), "30000");
    guard.release().await.unwrap();
    let guard = stage.client.lock("k").fixed_lease(hour).try_acquire().await.unwrap().unwrap();
    assert!(stage.control.run("PTTL k").integer() > 3_500_000);
    drop(guard);
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_be_asked_about_a_lock_is_answered() {
    let stage = Stage::set().await;
    let lock = stage.client.lock("k").lease(Duration::from_secs(10));
    assert!(!lock.is_locked().await.unwrap());
    assert_eq!(lock.remaining().await.unwrap(), None);
    let (me, other) = (stage.client.owner(), stage.client.owner());
    let guard = lock.clone().owner(&me).acquire().await.unwrap();
    assert!(lock.is_locked().await.unwrap());
    assert!(lock.is_held_by(&me).await.unwrap() && !lock.is_held_by(&other).await.unwrap());
    assert_eq!(
        (lock.hold_count(&me).await.unwrap(), lock.hold_count(&other).await.unwrap()),
        (1, 0)
    );
    let left = lock.remaining().await.unwrap().unwrap();
    assert!(left > Duration::from_secs(5) && left <= Duration::from_secs(10), "{left:?}");
    assert_eq!((guard.key(), lock.key()), (&b"k"[..], &b"k"[..]));
    guard.release().await.unwrap();
    assert!(!lock.is_held_by(&me).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_short_cycles_leave_nothing() {
    let mut stage = Stage::set().await;
    let connections = |stage: &mut Stage| stage.control.run("CLIENT LIST").text().lines().count();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..32 {
        let client = stage.client.clone();
        tasks.spawn(async move {
            for cycle in 0..150 {
                let lock = client.lock(format!("k{}", (task + cycle) % 5));
                match cycle % 4 {
                    0 => lock.acquire().await.unwrap().release().await.unwrap(),
                    1 => drop(lock.acquire().await.unwrap()),
                    2 => drop(lock.try_acquire().await.unwrap()),
                    _ => drop(lock.acquire_within(Duration::from_millis(5)).await.unwrap()),
                }
            }
        });
    }
    while let Some(done) = soon(tasks.join_next()).await {
        done.unwrap();
    }
    stage.assert_nothing_is_left();
    // Ours, the client's, and at most one per lock that was waited for.
    assert!(connections(&mut stage) <= 2 + 5);
}
