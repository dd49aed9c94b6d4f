//! What Redisson's own tests ask of its count-down latch, and what it does not do.

use super::{SOON, Stage, soon};
use harness::{Value, cmd};
use kvlock::{Client, Error};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(200);

fn wait_for_waiters(stage: &mut Stage, count: i64) {
    harness::wait::until("so many wait", SOON, || {
        match stage.control.run("LATCH.INFO l").field("waiters").integer() {
            seen if seen == count => Ok(()),
            seen => Err(seen.to_string()),
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_goes_on_when_all_have_counted() {
    let mut stage = Stage::set().await;
    let latch = stage.client.latch("l");
    assert!(soon(latch.set(2)).await.unwrap());
    assert!(!soon(latch.set(9)).await.unwrap(), "it counts already");
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let latch = Client::connect(stage.server.url()).await.unwrap().latch("l");
        waiters.spawn(async move { latch.wait().await });
    }
    wait_for_waiters(&mut stage, 5);
    assert_eq!(soon(latch.count_down()).await.unwrap(), Some(1));
    assert_eq!(soon(latch.info()).await.unwrap().count, 1);
    assert_eq!(soon(latch.count_down()).await.unwrap(), Some(0));
    while let Some(done) = soon(waiters.join_next()).await {
        done.unwrap().unwrap();
    }
    assert_eq!(soon(latch.count_down()).await.unwrap(), None);
    // Open is as good as never set; and then it can be set again.
    soon(latch.wait()).await.unwrap();
    assert!(soon(latch.set(1)).await.unwrap());
    assert!(!soon(latch.wait_within(SHORT)).await.unwrap());
    soon(latch.count_down()).await.unwrap();
    assert!(soon(latch.wait_within(SHORT)).await.unwrap());
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latch_that_outlives_its_lifetime_is_open() {
    let mut stage = Stage::set().await;
    let latch = stage.client.latch("l");
    soon(latch.set_for(2, SHORT)).await.unwrap();
    soon(latch.wait()).await.unwrap();
    soon(latch.set_for(2, SOON)).await.unwrap();
    let left = soon(latch.info()).await.unwrap().lifetime_left.unwrap();
    assert!(left <= SOON && left > SOON / 2, "{left:?}");
    stage.control.call(cmd!["DEL", "l"]);
    soon(latch.wait()).await.unwrap();
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_dropped_is_forgotten_and_one_that_is_cut_goes_on() {
    let mut stage = Stage::set().await;
    let latch = stage.client.latch("l");
    soon(latch.set(1)).await.unwrap();
    let dropped = latch.clone();
    let dropped = tokio::spawn(async move { dropped.wait().await });
    wait_for_waiters(&mut stage, 1);
    dropped.abort();
    wait_for_waiters(&mut stage, 0);

    let cut = latch.clone();
    let cut = tokio::spawn(async move { cut.wait().await });
    wait_for_waiters(&mut stage, 1);
    stage.control.run("CLIENT KILL TYPE normal SKIPME yes");
    wait_for_waiters(&mut stage, 1);
    stage.control.run("LATCH.COUNTDOWN l");
    soon(cut).await.unwrap().unwrap();
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let latch = stage.client.latch("k");
    assert!(matches!(soon(latch.set(1)).await, Err(Error::NotALock)));
    assert!(matches!(soon(latch.wait()).await, Err(Error::NotALock)));
    assert!(matches!(soon(latch.count_down()).await, Err(Error::NotALock)));
    let latch = stage.client.latch("l");
    assert!(matches!(soon(latch.set(0)).await, Err(Error::Invalid(_))));
    assert!(soon(latch.set_for(1, Duration::ZERO)).await.is_err());
    assert!(matches!(soon(latch.count_down_as("")).await, Err(Error::Invalid(_))));
    assert!(matches!(soon(stage.client.latch("").wait()).await, Err(Error::Invalid(_))));
    assert_eq!(stage.control.run("DEL k"), Value::Integer(1));
    stage.assert_nothing_is_left();
}
