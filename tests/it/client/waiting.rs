//! Tasks that wait: their order, and what they take up.

use super::{Stage, soon};
use harness::{Server, observe};
use kvlock::{Client, Error, Guard};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

type Acquire = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

/// An acquire that has got as far as it can without waiting for anything.
fn begun(client: &Client, key: &str) -> Acquire {
    let lock = client.lock(key);
    let mut acquire: Acquire = Box::pin(async move { lock.acquire().await });
    assert!(acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    acquire
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_one_client_are_served_in_order_over_one_connection() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..50 {
        let acquire = begun(&stage.client, "k");
        let order = order.clone();
        tasks.push(tokio::spawn(async move {
            let guard = acquire.await.unwrap();
            order.lock().unwrap().push((number, guard.token()));
            guard.release().await.unwrap();
        }));
        // The first is in line at the server before the others come.
        observe::wait_for_waiters(&mut stage.control, "k", 1);
    }
    assert_eq!(observe::info_number(&mut stage.control, "blocked_clients"), 1);
    stage.control.run("LOCK.RELEASE k somebody");
    for task in tasks {
        soon(task).await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    assert!(order.is_sorted(), "{order:?}");
    assert!(order.windows(2).all(|pair| pair[0].1 < pair[1].1), "each grant went by the server");
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_also_counts_in_the_line_of_the_client() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let first = tokio::spawn(begun(&stage.client, "k"));
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    let within = stage.client.lock("k");
    assert!(soon(within.acquire_within(Duration::from_millis(50))).await.unwrap().is_none());
    stage.control.run("LOCK.RELEASE k somebody");
    soon(first).await.unwrap().unwrap().release().await.unwrap();
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_that_take_all_connections_hang_nobody() {
    let mut stage = Stage::set().await;
    let lock = |key: &str| stage.client.lock(key);
    let mut held = Vec::new();
    for number in 0..32 {
        held.push(lock(&format!("k{number}")).acquire().await.unwrap());
    }
    let waiters: Vec<_> =
        (0..32).map(|number| tokio::spawn(begun(&stage.client, &format!("k{number}")))).collect();
    observe::wait_for_blocked_clients(&mut stage.control, 32);

    // One more, free: no connection is needed. One more, taken: it is asked for now and then.
    held.push(soon(lock("free").acquire()).await.unwrap());
    stage.taken("taken");
    let extra = tokio::spawn(begun(&stage.client, "taken"));
    let lock = stage.client.lock("taken");
    assert!(soon(lock.acquire_within(Duration::from_millis(50))).await.unwrap().is_none());
    stage.control.run("LOCK.RELEASE taken somebody");
    held.push(soon(extra).await.unwrap().unwrap());

    for guard in held {
        guard.release().await.unwrap();
    }
    for waiter in waiters {
        soon(waiter).await.unwrap().unwrap().release().await.unwrap();
    }
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_locks_than_connections_are_all_waited_for() {
    let server = Server::start();
    let client = Client::builder().waits(2).connect(server.url()).await.unwrap();
    let mut stage = Stage { control: server.connect(), server, client };
    let mut waiters = Vec::new();
    for number in 0..10 {
        let key = format!("k{number}");
        stage.taken(&key);
        waiters.push(tokio::spawn(begun(&stage.client, &key)));
    }
    observe::wait_for_blocked_clients(&mut stage.control, 2);
    for number in 0..10 {
        stage.control.run(&format!("LOCK.RELEASE k{number} somebody"));
    }
    for waiter in waiters {
        soon(waiter).await.unwrap().unwrap().release().await.unwrap();
    }
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_died_silently_costs_its_offer_and_not_a_lease() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let waiter = tokio::spawn(begun(&stage.client, "k"));
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    let info = stage.control.run("LOCK.INFO k WAITERS 1");
    let owner = info.field("queue")[0][0].text();
    // It is granted the lock in a transaction, so that we see it before the client does.
    stage.control.run("MULTI");
    stage.control.run("LOCK.RELEASE k somebody");
    stage.control.run("LOCK.INFO k");
    stage.control.run("PTTL k");
    let seen = stage.control.run("EXEC");
    assert_eq!(seen[1].field("owner").text(), owner);
    let offered = seen[2].integer();
    assert!((1..=2000).contains(&offered), "{offered}");
    soon(waiter).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_nobody_holds_any_more_goes_to_a_dropped_waiters_neighbour() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let first = tokio::spawn(begun(&stage.client, "k"));
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    let second = tokio::spawn(begun(&stage.client, "k"));
    first.abort();
    stage.control.run("LOCK.RELEASE k somebody");
    soon(second).await.unwrap().unwrap().release().await.unwrap();
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_told() {
    let server = Server::options().module_config("max-waiters", 1).start();
    let mut stage = Stage::of(server).await;
    stage.taken("a");
    stage.taken("b");
    let waiter = tokio::spawn(begun(&stage.client, "a"));
    observe::wait_for_waiters(&mut stage.control, "a", 1);
    let trouble = soon(stage.client.lock("b").acquire()).await.unwrap_err();
    assert!(matches!(trouble, Error::QueueFull) && trouble.is_retryable(), "{trouble:?}");
    waiter.abort();
    stage.control.run("LOCK.RELEASE a somebody");
    stage.control.run("LOCK.RELEASE b somebody");
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_used_again_after_a_wait_that_was_given_up() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let connections =
        |stage: &mut Stage| observe::info_number(&mut stage.control, "total_connections_received");
    let mut before = None;
    for _ in 0..5 {
        let waiter = tokio::spawn(begun(&stage.client, "k"));
        observe::wait_for_waiters(&mut stage.control, "k", 1);
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
        soon(stage.client.settled()).await;
        let now = connections(&mut stage);
        assert_eq!(*before.get_or_insert(now), now);
    }
}
