//! Losing a majority, and servers that forget.

use super::{Stage, soon, wait_for_servers};
use harness::wait;
use kvlock_quorum::{Client, Error};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_a_majority_is_told_before_another_can_have_it() {
    let stage = Stage::with(5, Client::builder().lease(Duration::from_secs(3))).await;
    let guard = soon(stage.quorum.lock("k").acquire()).await.unwrap();
    wait_for_servers(&guard, 5);
    (0..3).for_each(|server| stage.servers[server].kill9());
    let work = guard.run_until_lost(std::future::pending::<()>());
    assert!(matches!(soon(work).await, Err(Error::Lost)));
    assert!(guard.is_lost() && guard.lease_left().is_zero());
    // The two that are left are given back at once: they would only be in the way.
    stage.assert_nothing_is_left();
    soon(guard.lost()).await;
    assert!(matches!(soon(guard.release()).await, Err(Error::Lost)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_majority_has_forgotten_is_lost_though_it_could_be_taken_again() {
    let stage = Stage::with(5, Client::builder().lease(Duration::from_secs(3))).await;
    stage.taken_at([3, 4]);
    let guard = soon(stage.quorum.lock("k").acquire()).await.unwrap();
    assert_eq!(guard.servers(), 3);
    stage.connect(1).run("FLUSHALL");
    soon(guard.lost()).await;
    assert!(matches!(soon(guard.release()).await, Err(Error::Lost)));

    // With more than a majority it is not lost, and the server takes it again.
    [3, 4].into_iter().for_each(|server| drop(stage.connect(server).run("DEL k")));
    let guard = soon(stage.quorum.lock("k").acquire()).await.unwrap();
    wait_for_servers(&guard, 5);
    let mut one = stage.connect(1);
    one.run("FLUSHALL");
    wait::until("it is taken again", super::SOON, || {
        let token = one.run("HGET k fencing-token");
        let raised =
            !token.is_nil() && token.text()[1..].parse::<u64>().unwrap() >= guard.token().value();
        if raised { Ok(()) } else { Err(token.to_string()) }
    });
    wait_for_servers(&guard, 5);
    assert!(!guard.is_lost());
    soon(guard.release()).await.unwrap();
    stage.assert_nothing_is_left();
}
