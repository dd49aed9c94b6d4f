//! What Redisson's own tests ask of its semaphores, and what theirs do not do.

use super::{Stage, soon};
use harness::{Value, cmd, observe};
use kvlock::{Client, Error};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(400);

/// Nothing is held and nobody waits; the semaphore itself stays.
async fn assert_all_are_free(stage: &mut Stage) {
    soon(stage.client.settled()).await;
    let info = soon(stage.client.semaphore("s").info()).await.unwrap();
    assert_eq!((info.used, info.waiters), (0, 0), "{info:?}");
    stage.control.run("DEL s");
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_so_many_and_no_more() {
    let mut stage = Stage::set().await;
    let pool = stage.client.semaphore("s");
    assert!(soon(pool.set_once(3)).await.unwrap());
    assert!(!soon(pool.set_once(9)).await.unwrap());
    let two = soon(pool.clone().permits(2).acquire()).await.unwrap();
    let one = soon(pool.try_acquire()).await.unwrap().expect("one is left");
    assert_eq!((two.count(), one.count()), (2, 1));
    assert!(soon(pool.try_acquire()).await.unwrap().is_none());
    assert!(soon(pool.acquire_within(SHORT)).await.unwrap().is_none());
    let info = soon(pool.info()).await.unwrap();
    assert_eq!((info.permits, info.used, info.holders), (3, 3, 2));
    soon(two.release()).await.unwrap();
    assert!(soon(pool.clone().permits(3).try_acquire()).await.unwrap().is_none());
    let two = soon(pool.clone().permits(2).try_acquire()).await.unwrap().expect("two are free");
    drop((one, two));
    assert_all_are_free(&mut stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_are_free_are_taken_in_one_step() {
    let mut stage = Stage::set().await;
    let pool = stage.client.semaphore("s");
    assert_eq!(soon(pool.try_drain()).await.unwrap_err().code(), Some("UNSET"));
    soon(pool.set(5)).await.unwrap();
    let one = soon(pool.acquire()).await.unwrap();
    let rest = soon(pool.try_drain()).await.unwrap().expect("four are free");
    assert_eq!(rest.count(), 4);
    assert!(soon(pool.try_drain()).await.unwrap().is_none());
    assert!(soon(pool.try_acquire()).await.unwrap().is_none());
    // There are more now, and they are all there is to take.
    soon(pool.set(7)).await.unwrap();
    let more = soon(pool.try_drain()).await.unwrap().expect("two were added");
    assert_eq!(more.count(), 2);
    soon(rest.release()).await.unwrap();
    let info = soon(pool.info()).await.unwrap();
    assert_eq!((info.permits, info.used), (7, 3));
    drop((one, more));
    assert_all_are_free(&mut stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_that_are_drained_are_renewed_and_come_back_from_the_dead() {
    let mut stage = Stage::set().await;
    let short = stage.client.semaphore("s").lease(Duration::from_secs(1));
    soon(short.set(3)).await.unwrap();
    let all = soon(short.try_drain()).await.unwrap().expect("three are free");
    observe::let_pass(&mut stage.control, Duration::from_millis(1500));
    assert!(!all.is_lost());
    // As if its process had died: nobody renews, nobody releases.
    let dead = stage.control.call(cmd!["SEM.RELEASE", "s", all.owner(), "ALL"]);
    assert_eq!(dead, Value::Integer(0));
    stage.control.run("SEM.ACQUIRE s dead ALL 100");
    let one = soon(short.acquire()).await.unwrap();
    let rest = soon(short.try_drain()).await.unwrap().expect("two more came back");
    assert_eq!(rest.count(), 2);
    drop((all, one, rest));
    assert_all_are_free(&mut stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_are_kept_while_they_are_held_and_come_back_when_their_holder_dies() {
    let mut stage = Stage::set().await;
    let builder = Client::builder().lease(SHORT).margin(Duration::from_millis(50));
    let client = builder.connect(stage.server.url()).await.unwrap();
    let pool = client.semaphore("s");
    soon(pool.set(2)).await.unwrap();
    let kept = soon(pool.acquire()).await.unwrap();
    let dead = soon(pool.clone().fixed_lease(SHORT).acquire()).await.unwrap();
    let next = pool.clone();
    let next = tokio::spawn(async move { next.acquire().await });
    soon(dead.lost()).await;
    let next = soon(next).await.unwrap().unwrap();
    observe::let_pass(&mut stage.control, 2 * SHORT);
    assert!(!kept.is_lost() && !next.is_lost());
    assert!(matches!(soon(dead.release()).await, Err(Error::Lost)));
    stage.control.run("DEL s");
    soon(kept.lost()).await;
    assert!(matches!(soon(kept.release()).await, Err(Error::Lost)));
    drop(next);
    soon(client.settled()).await;
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_told() {
    let mut stage = Stage::set().await;
    let pool = stage.client.semaphore("s");
    let told = soon(pool.acquire()).await.unwrap_err();
    assert_eq!(told.code(), Some("UNSET"), "{told}");
    assert_eq!(soon(pool.info()).await.unwrap_err().code(), Some("UNSET"));
    soon(pool.set(2)).await.unwrap();
    let told = soon(pool.clone().permits(3).acquire()).await.unwrap_err();
    assert_eq!(told.code(), Some("TOOMANY"), "{told}");
    assert!(matches!(soon(pool.clone().permits(0).acquire()).await, Err(Error::Invalid(_))));
    assert!(matches!(soon(stage.client.semaphore("").acquire()).await, Err(Error::Invalid(_))));
    assert!(matches!(soon(stage.client.lock("s").try_acquire()).await, Err(Error::NotALock)));
    stage.taken("k");
    assert!(matches!(soon(stage.client.semaphore("k").set(1)).await, Err(Error::NotALock)));
    stage.control.call(cmd!["DEL", "k"]);
    assert_all_are_free(&mut stage).await;
}
