//! Calls end in time even if the server does not answer, and leave no lock held.

use super::{SOON, Stage, assert_matches, calls, ok, soon, visit, wait_for_more};
use harness::proxy::Proxy;
use harness::{Server, cmd, observe};
use kvlock::{Client, Error};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Half of the proxy's delay. The callers give up after a tenth of this time.
const SLOW: Duration = Duration::from_millis(100);

const REPLY: Duration = Duration::from_millis(500);

/// More than a caller's limit and the reply timeout together, less than the reply timeouts of all
/// requests one after the other.
const IN_TIME: Duration = Duration::from_secs(3);

/// A stage whose client has a short reply timeout, and no connection yet.
fn set() -> Stage {
    let server = Server::start();
    let client = unconnected(&server.url(), REPLY);
    Stage { control: server.connect(), server, client }
}

fn unconnected(url: &str, reply: Duration) -> Client {
    let redis = redis::Client::open(url).unwrap();
    Client::builder().reply_timeout(reply).build(&redis).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_requests_to_a_stopped_server_fail_in_time() {
    let mut stage = set();
    stage.taken("k");
    let mut tries = JoinSet::new();
    let lock = stage.client.lock("k");
    tries.spawn(async move { lock.acquire_within(REPLY).await.unwrap_err() });
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    // Calls that need a new connection end in time too.
    let other = unconnected(&stage.server.url(), REPLY);
    stage.server.stand_still();
    let began = Instant::now();
    for number in 0..12 {
        let lock = other.lock(format!("k{number}"));
        tries.spawn(async move { lock.try_acquire().await.unwrap_err() });
    }
    while let Some(trouble) = soon(tries.join_next()).await {
        assert_matches!(trouble.unwrap(), Error::Timeout);
    }
    assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
    stage.server.signal(Signal::SIGCONT);
}

#[tokio::test(flavor = "multi_thread")]
async fn connecting_continues_when_its_callers_give_up() {
    let server = Server::start();
    let (proxy, mut control) = (Proxy::before(&server), server.connect());
    let client = unconnected(&proxy.url(), SOON);
    let count = |control: &mut _| observe::info_number(control, "total_connections_received");
    let before = count(&mut control);
    proxy.delay(2 * SLOW, 2 * SLOW);
    for _ in 0..5 {
        let lock = client.lock("k");
        let given_up = timeout(SLOW / 10, lock.try_acquire()).await;
        assert!(given_up.is_err(), "{given_up:?}");
    }
    proxy.delay(Duration::ZERO, Duration::ZERO);
    visit(&client.lock("k")).await;
    assert_eq!(count(&mut control), before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_timed_out_costs_one_release() {
    let mut stage = Stage::with(Client::builder().reply_timeout(SOON)).await;
    visit(&stage.client.lock("other")).await;
    let before = calls(&mut stage.control, "lock.release");
    stage.control.call(cmd!["CLIENT", "PAUSE", 600_000, "WRITE"]);
    let told = soon(stage.client.lock("k").acquire_within(REPLY / 5)).await.unwrap_err();
    assert_matches!(told, Error::Timeout);
    stage.control.run("CLIENT UNPAUSE");
    wait_for_more(before, || calls(&mut stage.control, "lock.release"));
    stage.assert_nothing_is_left();
    assert_eq!(calls(&mut stage.control, "lock.release"), before + 1);
}

/// Each answer is slow, but within the reply timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_not_awaited_for_longer_than_the_limit_and_one_reply_timeout() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let reply = 20 * SLOW;
    let client = unconnected(&proxy.url(), reply);
    let once = client.once("report").acquire_within(SLOW);
    ok(once.get()).await;
    proxy.delay(6 * SLOW, 6 * SLOW);
    // On a busy machine a call may return late. The best one counts.
    let mut took = Vec::new();
    for _ in 0..3 {
        let began = Instant::now();
        assert_matches!(soon(once.get_or(async |_| "")).await, Err(Error::Timeout));
        took.push(began.elapsed());
    }
    assert!(took.iter().min().unwrap() < &(SLOW + reply + 5 * SLOW), "{took:?}");
    proxy.delay(Duration::ZERO, Duration::ZERO);
    soon(client.settled()).await;
}
