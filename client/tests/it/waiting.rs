//! Tasks that wait: their order, and their cost.

use super::{LONG, SOON, Stage, assert_served, calls, ok, soon, visit, wait_for_more};
use harness::proxy::Moment;
use harness::{cmd, observe, wait};
use kvlock::{Client, Clock};
use nix::sys::signal::Signal;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_one_client_are_served_in_order_and_wait_on_one_connection() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..50 {
        let waiter = stage.in_line(stage.client.lock("k"));
        let order = order.clone();
        tasks.push(tokio::spawn(async move {
            let guard = waiter.await.unwrap().unwrap();
            order.lock().unwrap().push((number, guard.token()));
            guard.release().await.unwrap();
        }));
    }
    observe::wait_for_blocked_clients(&mut stage.control, 1);
    // The test's connection, the client's, and the shared reader of outcomes.
    assert!(stage.control.run("CLIENT LIST").text().lines().count() <= 3);
    stage.control.run("LOCK.RELEASE k somebody");
    for task in tasks {
        ok(task).await;
    }
    let order = order.lock().unwrap().clone();
    assert!(order.is_sorted(), "{order:?}");
    assert!(order.windows(2).all(|pair| pair[0].1 < pair[1].1), "each grant went by the server");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_of_more_than_ten_years_is_no_limit() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let latch = stage.client.latch("l");
    ok(latch.set(1)).await;
    let more = Duration::from_millis(315_360_000_001);
    let times = [more, Duration::from_millis(u64::MAX), Duration::MAX];
    let waiters = times.map(|time| {
        let lock = stage.client.lock("k");
        tokio::spawn(async move { lock.acquire_within(time).await?.unwrap().release().await })
    });
    let opens = times.map(|time| {
        let latch = latch.clone();
        tokio::spawn(async move { latch.wait_within(time).await })
    });
    observe::wait_for_info(&mut stage.control, "kvlock_session_waits", 6);
    stage.control.run("LOCK.RELEASE k somebody");
    ok(latch.count_down()).await;
    for waiter in waiters {
        ok(waiter).await.unwrap();
    }
    for open in opens {
        assert!(ok(open).await.unwrap());
    }
}

/// The client has seen that the lock is taken, and the server refuses waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_free_again_is_acquired_even_if_no_wait_is_possible() {
    // A wait through a session is refused if the name is longer than 4,096 bytes.
    let long = "k".repeat(5_000);
    for (name, refuse) in [
        (&*long, "PING"),
        ("k", "ACL SETUSER default -session.open"),
        ("k", "CONFIG SET kvlock.drain yes"),
    ] {
        let (mut stage, proxy) = Stage::behind(Client::builder()).await;
        stage.taken(name);
        let lock = stage.client.lock(name);
        assert!(ok(lock.try_acquire()).await.is_none());
        stage.control.call(cmd!["DEL", name]);
        stage.control.run(refuse);
        for _ in 0..2 {
            visit(&lock).await;
        }
        // Also if an earlier request failed.
        proxy.reset("LOCK.ACQUIRE", Moment::BeforeTheServer);
        visit(&lock).await;
        assert!(proxy.has_reset());
    }
}

/// A clock that does not advance.
#[derive(Debug)]
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Duration {
        LONG
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_off_costs_three_commands() {
    const ROUNDS: usize = 20;
    // The clock is stopped, so no offer is renewed.
    let mut stage = Stage::with(Client::builder().clock(Stopped)).await;
    let begun = Instant::now();
    let lock = stage.client.lock("k");
    let mut held = ok(lock.acquire()).await;
    let mut counts = Vec::new();
    for round in 0..=ROUNDS {
        let next = stage.in_line(stage.client.lock("k"));
        ok(held.release()).await;
        held = ok(next).await.unwrap();
        // The first round opens the session, and is not counted.
        if [0, ROUNDS].contains(&round) {
            let commands = ["acquire", "wait", "renew", "release", "cancel"];
            let count = |command: &&str| calls(&mut stage.control, &format!("lock.{command}"));
            let locks: usize = commands.iter().map(count).sum();
            counts.push([locks, calls(&mut stage.control, "session.next")]);
        }
    }
    let [[before, asked_before], [after, asked]] = counts[..] else { panic!("{counts:?}") };
    assert!(after - before <= 2 * ROUNDS + 1, "{counts:?}");
    // A `SESSION.NEXT` in flight at the first count is counted when it is answered. Without an outcome,
    // that is after five seconds.
    let in_vain = begun.elapsed().as_secs() as usize / 5;
    assert!(asked - asked_before <= ROUNDS + 2 + in_vain, "{counts:?}");
    ok(held.release()).await;
}

/// An offer is the short lease after a wait. The client renews it at once if the margin is too long for
/// it, or with `confirm`.
#[tokio::test(flavor = "multi_thread")]
async fn an_offer_is_renewed_to_the_full_lease_before_it_ends() {
    for (builder, at_once) in [
        (Client::builder(), false),
        (Client::builder().margin(Duration::from_secs(1)), true),
        (Client::builder().confirm(true), true),
    ] {
        let mut stage = Stage::with(builder).await;
        stage.taken("k");
        let waiter = stage.in_line(stage.client.lock("k"));
        // A transaction shows the offer before the client can renew it.
        for command in ["MULTI", "LOCK.RELEASE k somebody", "PTTL k"] {
            stage.control.run(command);
        }
        let offered = stage.control.run("EXEC")[1].integer();
        assert!((1..=2000).contains(&offered), "{offered}");
        let guard = ok(waiter).await.unwrap();
        let much = Duration::from_secs(20);
        assert!(!at_once || guard.lease_left() > much, "{guard:?}");
        wait_for_more(much, || guard.lease_left());
        assert!(!guard.is_lost());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn places_in_a_queue_survive_the_readers_connection() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let first = stage.in_line(stage.client.lock("k"));
    let other = stage.other().await;
    let second = stage.in_line(other.lock("k"));
    let latch = stage.client.latch("l");
    ok(latch.set(1)).await;
    let counts = latch.clone();
    let open = tokio::spawn(async move { latch.wait().await });
    observe::wait_for_info(&mut stage.control, "kvlock_session_waits", 3);
    stage.cut_the_reader();
    ok(counts.count_down()).await;
    ok(open).await.unwrap();
    stage.control.run("LOCK.RELEASE k somebody");
    let first = ok(first).await.unwrap();
    assert!(!second.is_finished());
    ok(first.release()).await;
    assert_served(second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_has_ended_is_opened_again() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    for _ in 0..3 {
        let waiter = stage.in_line(stage.client.lock("k"));
        // Ends all sessions. The waiter queues again.
        stage.control.run("CONFIG SET kvlock.drain yes");
        observe::wait_for_waiters(&mut stage.control, "k", 0);
        stage.control.run("CONFIG SET kvlock.drain no");
        observe::wait_for_waiters(&mut stage.control, "k", 1);
        waiter.abort();
        observe::wait_for_waiters(&mut stage.control, "k", 0);
    }
}

/// A connection that was replaced is closed, even if a wait that was sent over it continues for
/// long.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_keep_no_connection_that_was_replaced() {
    let builder = Client::builder().reply_timeout(Duration::from_millis(500));
    let mut stage = Stage::with(builder).await;
    let mut waiters = Vec::new();
    let mut there = stage.server.connect();
    let mut connections = move || observe::info_number(&mut there, "connected_clients");
    for number in 0..6 {
        let key = format!("k{number}");
        stage.taken(&key);
        waiters.push((stage.in_line(stage.client.lock(&key)), key));
        stage.server.stand_still();
        assert!(soon(stage.client.lock("other").try_acquire()).await.is_err());
        stage.server.signal(Signal::SIGCONT);
        // The client connects again.
        visit(&stage.client.lock("other")).await;
    }
    // Two connections of the test, the command connection, and the reader.
    wait::until("the others are closed", SOON, || match connections() {
        ..=5 => Ok(()),
        many => Err(many.to_string()),
    });
    for (waiter, key) in waiters {
        stage.control.call(cmd!["LOCK.RELEASE", key, "somebody"]);
        assert_served(waiter).await;
    }
}

/// The session of a dropped wait is still opening when the client shuts down.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_closes_a_session_that_is_still_opening() {
    let (mut stage, proxy) = Stage::behind(Client::builder()).await;
    let lock = stage.client.lock("k");
    stage.taken("k");
    // From now on, the client knows that the lock is contended, and waits without an attempt.
    assert!(ok(lock.try_acquire()).await.is_none());
    let way = Duration::from_millis(200);
    proxy.delay(way, way);
    let waited = tokio::time::timeout(way, lock.acquire()).await;
    assert!(waited.is_err(), "{waited:?}");
    assert_eq!(observe::info_number(&mut stage.control, "kvlock_sessions"), 0);
    assert!(soon(stage.client.clone().shutdown(SOON)).await);
    observe::let_pass(&mut stage.control, 10 * way);
    assert_eq!(observe::info_number(&mut stage.control, "kvlock_sessions"), 0);
    proxy.delay(Duration::ZERO, Duration::ZERO);
    stage.control.run("LOCK.FORCERELEASE k");
}
