//! Tasks that wait: their order, and what they take up.

use super::{SOON, Stage, calls, soon};
use harness::{Server, Value, cmd, observe, wait};
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
async fn tasks_of_one_client_are_served_in_order_and_wait_on_one_connection() {
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
        observe::wait_for_waiters(&mut stage.control, "k", number + 1);
    }
    assert_eq!(observe::info_number(&mut stage.control, "blocked_clients"), 1);
    stage.control.run("LOCK.RELEASE k somebody");
    for task in tasks {
        soon(task).await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    assert!(order.is_sorted(), "{order:?}");
    assert!(order.windows(2).all(|pair| pair[0].1 < pair[1].1), "each grant went by the server");
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_off_costs_three_commands_of_which_one_asks_for_outcomes() {
    const ROUNDS: usize = 20;
    let mut stage = Stage::set().await;
    let lock = stage.client.lock("k");
    let mut held = soon(lock.acquire()).await.unwrap();
    let mut counts = Vec::new();
    for round in 0..=ROUNDS {
        let next = tokio::spawn(begun(&stage.client, "k"));
        observe::wait_for_waiters(&mut stage.control, "k", 1);
        soon(held.release()).await.unwrap();
        held = soon(next).await.unwrap().unwrap();
        // The first wait opens the session, and asks twice.
        if [0, ROUNDS].contains(&round) {
            let commands = ["acquire", "wait", "renew", "release", "cancel"];
            let count = |command: &&str| calls(&mut stage.control, &format!("lock.{command}"));
            let locks: usize = commands.iter().map(count).sum();
            counts.push([locks, calls(&mut stage.control, "session.next")]);
        }
    }
    let [[before, asked_before], [after, asked]] = counts[..] else { panic!("{counts:?}") };
    assert!(after - before <= 2 * ROUNDS + 1, "{counts:?}");
    // What was under way when it was counted is not counted until it is answered.
    assert!(asked - asked_before <= ROUNDS + 2, "{counts:?}");
    soon(held.release()).await.unwrap();
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_becomes_the_full_lease_before_it_is_over() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let waiter = tokio::spawn(begun(&stage.client, "k"));
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    stage.control.run("LOCK.RELEASE k somebody");
    let guard = soon(waiter).await.unwrap().unwrap();
    wait::until("it is renewed", SOON, || {
        let left = guard.lease_left();
        if left > Duration::from_secs(20) { Ok(()) } else { Err(format!("{left:?}")) }
    });
    assert!(!guard.is_lost());
    soon(guard.release()).await.unwrap();
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_margin_that_an_offer_has_no_room_for_has_the_lease_confirmed_first() {
    let server = Server::start();
    let url = server.url();
    let builders =
        [Client::builder().margin(Duration::from_secs(1)), Client::builder().confirm(true)];
    for builder in builders {
        let client = builder.connect(&*url).await.unwrap();
        let mut control = server.connect();
        control.run("LOCK.ACQUIRE k somebody 600000");
        let waiter = tokio::spawn(begun(&client, "k"));
        observe::wait_for_waiters(&mut control, "k", 1);
        control.run("LOCK.RELEASE k somebody");
        let guard = soon(waiter).await.unwrap().unwrap();
        assert!(guard.lease_left() > Duration::from_secs(20), "{guard:?}");
        soon(guard.release()).await.unwrap();
    }
}

/// The reader's connection, the only one that is blocked.
fn cut_the_reader(stage: &mut Stage) {
    let list = stage.control.run("SESSION.LIST");
    let reader = list[0].field("reader").integer();
    stage.control.call(cmd!["CLIENT", "KILL", "ID", reader]);
    wait::until("it is read anew", SOON, || {
        let list = stage.control.run("SESSION.LIST");
        let now = list[0].field("reader");
        if *now != Value::Nil && *now != Value::Integer(reader) {
            Ok(())
        } else {
            Err(list.to_string())
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn places_in_line_outlive_the_connection_that_hears_of_them() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let first = tokio::spawn(begun(&stage.client, "k"));
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    let other = Client::connect(stage.server.url()).await.unwrap();
    let second = tokio::spawn(begun(&other, "k"));
    observe::wait_for_waiters(&mut stage.control, "k", 2);
    cut_the_reader(&mut stage);
    stage.control.run("LOCK.RELEASE k somebody");
    let first = soon(first).await.unwrap().unwrap();
    assert!(!second.is_finished());
    soon(first.release()).await.unwrap();
    soon(second).await.unwrap().unwrap().release().await.unwrap();
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_gone_is_opened_again() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    for _ in 0..3 {
        let waiter = tokio::spawn(begun(&stage.client, "k"));
        observe::wait_for_waiters(&mut stage.control, "k", 1);
        // What ends all sessions; the waiter asks again.
        stage.control.run("CONFIG SET kvlock.drain yes");
        observe::wait_for_waiters(&mut stage.control, "k", 0);
        stage.control.run("CONFIG SET kvlock.drain no");
        observe::wait_for_waiters(&mut stage.control, "k", 1);
        waiter.abort();
        observe::wait_for_waiters(&mut stage.control, "k", 0);
    }
    stage.control.run("LOCK.RELEASE k somebody");
    stage.assert_nothing_is_left();
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
async fn a_full_queue_is_told() {
    let server = Server::options().module_config("max-waiters", 1).start();
    let mut stage = Stage::of(server, Client::builder()).await;
    stage.taken("a");
    stage.taken("b");
    let waiter = tokio::spawn(begun(&stage.client, "a"));
    observe::wait_for_waiters(&mut stage.control, "a", 1);
    let trouble = soon(stage.client.lock("b").acquire()).await.unwrap_err();
    assert!(matches!(trouble, Error::QueueFull) && trouble.is_retryable(), "{trouble:?}");
    waiter.abort();
    stage.control.run("LOCK.RELEASE a somebody");
    stage.control.run("LOCK.RELEASE b somebody");
    drop(soon(waiter).await);
    stage.assert_nothing_is_left();
}
