//! Servers that are killed or stopped, that lose their data, and whose clocks jump.

use super::{SOON, Stage, assert_matches, assert_no_majority, clients, ok, soon, wait_for_servers};
use crate::{MOMENT, Suspended, suspend_during, wait_for_renewals};
use harness::clock::Clock;
use harness::proxy::Proxy;
use harness::{Server, wait};
use kvlock_quorum::{Client, Error, Quorum};
use nix::sys::signal::Signal;
use std::task::Poll;
use std::time::Duration;
use tokio::time::timeout;

/// Longer than a running server needs for a reply, and shorter than all other timeouts here.
const SHORT: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_of_five_tolerates_two_servers_down_but_not_three() {
    let stage = Stage::set(5).await;
    stage.servers[0].kill9();
    stage.servers[3].kill9();
    let guard = ok(stage.quorum.lock("k").acquire()).await;
    assert_eq!(guard.servers(), 3);
    ok(guard.release()).await;
    // A client that starts now succeeds too.
    let clients = clients(&stage.servers, &Client::builder());
    let other = ok(Quorum::of(clients)).await.server_timeout(SOON);
    let guard = ok(other.lock("k").acquire()).await;
    ok(guard.release()).await;

    stage.servers[2].kill9();
    assert_no_majority(soon(stage.quorum.lock("k").try_acquire()).await, 3, 5);
    assert_no_majority(soon(stage.quorum.lock("k").acquire_within(SHORT)).await, 3, 5);
    stage.assert_nothing_is_left();

    // With one restarted server there is a majority again.
    let lock = stage.quorum.lock("k");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    stage.servers[2].restart();
    let guard = ok(waiter).await.unwrap();
    assert_eq!(guard.servers(), 3);
    ok(guard.release()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_server_delays_a_quorum_only_by_its_timeout() {
    // The clients' own reply timeout is longer than this test.
    let slow = Client::builder().reply_timeout(10 * SOON);
    let mut stage = Stage::with(5, slow).await;
    stage.signal([1, 4], Signal::SIGSTOP);
    // These calls do not wait for the stopped servers.
    let guard = ok(stage.quorum.lock("k").acquire()).await;
    assert_eq!(guard.servers(), 3);
    ok(guard.release()).await;

    stage.quorum = stage.quorum.clone().server_timeout(SHORT);
    stage.signal([2], Signal::SIGSTOP);
    assert_no_majority(soon(stage.quorum.lock("k").try_acquire()).await, 3, 5);
    // Further calls do not accumulate requests to the stopped servers.
    for _ in 0..12 {
        assert!(soon(stage.quorum.lock("k").try_acquire()).await.is_err());
    }
    stage.signal([1, 2, 4], Signal::SIGCONT);
    stage.assert_nothing_is_left();
    // The first acquisition, and at most eight requests in flight.
    assert!(crate::calls(&mut stage.connect(2), "lock.acquire") <= 9);
    let guard = ok(stage.quorum.lock("k").acquire()).await;
    stage.signal([0], Signal::SIGSTOP);
    ok(guard.release()).await;
    stage.signal([0], Signal::SIGCONT);
}

/// A server may take longer than the limit of the acquire to answer the release.
#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_an_acquire_does_not_limit_what_follows() {
    let stage = Stage::set(3).await;
    let guard = ok(stage.quorum.lock("k").acquire_within(SHORT)).await.expect("it is free");
    stage.signal(0..3, Signal::SIGSTOP);
    let resume = async {
        tokio::time::sleep(2 * SHORT).await;
        stage.signal(0..3, Signal::SIGCONT);
    };
    let (released, ()) = tokio::join!(soon(guard.release()), resume);
    released.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_renewed_by_a_majority_is_kept() {
    let stage = Stage::with(5, Client::builder().lease(Duration::from_secs(6))).await;
    let guard = ok(stage.quorum.lock("k").acquire()).await;
    wait_for_servers(&guard, 5);
    stage.signal([1], Signal::SIGSTOP);
    stage.servers[4].kill9();
    // Waits until the guard no longer counts these two servers.
    wait_for_servers(&guard, 3);
    wait_for_renewals(&mut stage.connect(0), 2);
    assert!(!guard.is_lost());
    // Both servers are used again when they are back: one that lost its data, and one that did not.
    stage.signal([1], Signal::SIGCONT);
    stage.servers[4].restart();
    wait_for_servers(&guard, 5);
    let token = stage.connect(4).run("HGET k fencing-token").text();
    assert!(token[1..].parse::<u64>().unwrap() >= guard.token().value());
    ok(guard.release()).await;
}

/// One server's tokens are centuries ahead. The other servers refuse to raise theirs as far.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_tokens_centuries_ahead_is_not_used() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    servers[1].connect().run("SET kvlock:floor 4400000000000000");
    let stage = Stage::of(servers, Client::builder()).await;
    let mut last = 0;
    for round in 0..10 {
        let guard = ok(stage.quorum.lock("k").acquire()).await;
        let token = guard.token().value();
        assert!(last < token && token < 4_400_000_000_000_000, "{token}, round {round}");
        last = token;
        ok(guard.release()).await;
    }
    stage.assert_nothing_is_left();
    // Without one of the others, a majority needs the server that is ahead.
    stage.servers[0].kill9();
    assert_matches!(soon(stage.quorum.lock("k").acquire()).await, Err(trouble) if !trouble.is_retryable());
}

/// The first majority to answer includes a server that refuses renewals. The third server answers later, with
/// a token larger than that of the first majority.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_late_with_a_larger_token_replaces_one_that_fails() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    servers[0].connect().run("ACL SETUSER default -lock.renew");
    let time = servers[2].connect().run("TIME")[0].text();
    servers[2].connect().run(&format!("SET kvlock:floor {time}000000"));
    let late = Proxy::before(&servers[2]);
    let mut clients = clients(&servers, &Client::builder());
    clients[2] = Client::builder().build(&redis::Client::open(late.url()).unwrap()).unwrap();
    let quorum = ok(Quorum::of(clients)).await.server_timeout(SOON);
    late.delay(MOMENT / 4, MOMENT / 2);
    let stage = Stage { servers, quorum };
    let guard = ok(stage.quorum.lock("k").try_acquire()).await.expect("two servers grant it");
    assert_eq!(guard.servers(), 2);
    ok(guard.release()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_a_majority_is_reported_before_another_owner_can_acquire() {
    let stage = Stage::with(5, Client::builder().lease(Duration::from_secs(3))).await;
    // The lock is lost, although the server that lost it could grant it again.
    stage.taken_at([3, 4]);
    let guard = ok(stage.quorum.lock("k").acquire()).await;
    assert_eq!(guard.servers(), 3);
    let mut waiting = Box::pin(guard.lost());
    assert!(timeout(SHORT, &mut waiting).await.is_err());
    stage.connect(1).run("FLUSHALL");
    soon(guard.lost()).await;
    // The parts at the other servers are released, whether or not anybody who waits for the loss has noticed it.
    wait::until_is("only the other holds it", SOON, vec![3, 4], || stage.holders());
    soon(waiting).await;
    assert_matches!(soon(guard.release()).await, Err(Error::Lost(_)));
    [3, 4].into_iter().for_each(|server| drop(stage.connect(server).run("DEL k")));

    let guard = ok(stage.quorum.lock("k").acquire()).await;
    wait_for_servers(&guard, 5);
    (0..3).for_each(|server| stage.servers[server].kill9());
    let work = guard.run_until_lost(std::future::pending::<()>());
    assert_matches!(soon(work).await, Err(Error::Lost(_)));
    assert!(guard.is_lost() && guard.lease_left().is_zero());
    // The two remaining locks are released at once, because they would only block other clients.
    stage.assert_nothing_is_left();
    soon(guard.lost()).await;
    assert_matches!(soon(guard.release()).await, Err(Error::Lost(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_suspend_past_the_leases_the_work_does_not_continue() {
    let clock = Suspended::new();
    let stage = Stage::with(3, Client::builder().clock(clock.clone())).await;
    let guard = ok(stage.quorum.lock("k").acquire()).await;
    let run = |work| guard.run_until_lost(work);
    assert_matches!(suspend_during(&clock, run).await, (Poll::Ready(Err(Error::Lost(_))), false));
    drop(guard);
    // For the servers, no time has passed.
    stage.assert_nothing_is_left();
}

const HOUR_MS: i64 = 3_600_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_jump_on_one_server_is_harmless_with_more_than_a_majority() {
    let clocks: Vec<Clock> = (0..5).map(|_| Clock::new()).collect();
    let start = |clock: &Clock| Server::options().clock(clock).start();
    let stage = Stage::of(clocks.iter().map(start).collect(), Client::builder()).await;
    let other = ok(Quorum::of(clients(&stage.servers, &Client::builder()))).await;
    let other = other.server_timeout(SOON);
    let mut last = 0;
    for ahead_ms in [HOUR_MS, -HOUR_MS] {
        let lock = stage.quorum.lock("k").lease(Duration::from_secs(600));
        let guard = ok(lock.acquire()).await;
        wait_for_servers(&guard, 5);
        clocks[2].set(ahead_ms);
        for _ in 0..10 {
            assert!(ok(other.lock("k").try_acquire()).await.is_none());
        }
        assert!(!guard.is_lost());
        assert!(guard.token().value() > last);
        last = guard.token().value();
        // The jump ended the lease on the server, or lengthened it. Nothing is left there in either case.
        ok(guard.release()).await;
        stage.assert_nothing_is_left();
        // The next token is larger, although the clock of the server jumped.
        let next = ok(other.lock("k").acquire()).await;
        assert!(next.token().value() > last, "{} after {last}", next.token());
        last = next.token().value();
        ok(next.release()).await;
        stage.assert_nothing_is_left();
    }
}
