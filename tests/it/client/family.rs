//! What Redisson's own tests ask of its read-write lock and its latch in a crowd.

use super::{SOON, Stage, soon};
use harness::{Value, cmd, observe};
use kvlock::{Client, Guard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

const READERS: i64 = 20;

/// Readers of as many clients, all in line.
async fn readers_in_line(stage: &mut Stage) -> JoinSet<Guard> {
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let client = Client::connect(stage.server.url()).await.unwrap();
        readers.spawn(async move { client.lock("k").shared().acquire().await.unwrap() });
    }
    observe::wait_for_waiters(&mut stage.control, "k", READERS);
    readers
}

/// All of them come in, together.
async fn expect_all(readers: &mut JoinSet<Guard>) {
    let mut guards = Vec::new();
    while let Some(guard) = soon(readers.join_next()).await {
        guards.push(guard.unwrap());
    }
    assert_eq!(guards.len() as i64, READERS);
    assert!(guards.windows(2).all(|pair| pair[0].token() == pair[1].token()), "{guards:?}");
    for guard in guards {
        soon(guard.release()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_wake_when_the_writer_releases_and_when_it_dies() {
    let mut stage = Stage::set().await;
    let writer = soon(stage.client.lock("k").acquire()).await.unwrap();
    let mut readers = readers_in_line(&mut stage).await;
    soon(writer.release()).await.unwrap();
    expect_all(&mut readers).await;

    // Nobody renews this one.
    stage.taken("k");
    let mut readers = readers_in_line(&mut stage).await;
    let dying = stage.control.call(cmd!["LOCK.RENEW", "k", "somebody", 100]);
    assert_eq!(dying, Value::Integer(100));
    expect_all(&mut readers).await;
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_gets_its_turn_among_readers_that_come_all_the_time() {
    let mut stage = Stage::set().await;
    let over = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicUsize::new(0));
    let mut readers = JoinSet::new();
    for _ in 0..6 {
        let client = Client::connect(stage.server.url()).await.unwrap();
        let (over, reads) = (over.clone(), reads.clone());
        readers.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                let guard = client.lock("k").shared().acquire().await.unwrap();
                // So long that others come before it goes.
                tokio::time::sleep(Duration::from_millis(5)).await;
                reads.fetch_add(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        });
    }
    for _ in 0..20 {
        let writer = soon(stage.client.lock("k").acquire()).await.unwrap();
        assert!(!writer.is_lost());
        soon(writer.release()).await.unwrap();
    }
    over.store(true, Ordering::SeqCst);
    while let Some(done) = soon(readers.join_next()).await {
        done.unwrap();
    }
    assert!(reads.load(Ordering::SeqCst) > 6, "the readers have come more than once");
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latch_is_used_again_and_again_and_nobody_waits_for_the_next() {
    const ROUNDS: usize = 30;
    let mut stage = Stage::set().await;
    let latch = stage.client.latch("l");
    let clients = [
        Client::connect(stage.server.url()).await.unwrap(),
        Client::connect(stage.server.url()).await.unwrap(),
    ];
    for round in 0..ROUNDS {
        assert!(soon(latch.set(2)).await.unwrap(), "round {round}: the last one is still there");
        let mut waiters = JoinSet::new();
        for client in &clients {
            let latch = client.latch("l");
            waiters.spawn(async move { latch.wait().await });
        }
        harness::wait::until("both wait", SOON, || {
            match stage.control.run("LATCH.INFO l").field("waiters").integer() {
                2 => Ok(()),
                seen => Err(seen.to_string()),
            }
        });
        // The same participants in every round; and the next one is set before they are looked at.
        assert_eq!(soon(latch.count_down_as("one")).await.unwrap(), Some(1));
        assert_eq!(soon(latch.count_down_as("two")).await.unwrap(), Some(0));
        assert!(soon(latch.set(1)).await.unwrap());
        while let Some(done) = soon(waiters.join_next()).await {
            done.unwrap().unwrap();
        }
        assert_eq!(soon(latch.count_down_as("one")).await.unwrap(), Some(0));
    }
    stage.assert_nothing_is_left().await;
}
