//! A client of a primary that Sentinels watch over, while that becomes another.

use super::{SOON, soon};
use harness::site::{self, Site, sentinel_of};
use harness::{Server, Value, cmd, observe, wait};
use kvlock::{Client, Error};
use nix::sys::signal::Signal;
use std::time::Duration;

/// Longer than any failover: what ends earlier was not ended by the lease.
const LONG: Duration = Duration::from_secs(600);

async fn client(site: &Site) -> Client {
    client_with(site, LONG).await
}

async fn client_with(site: &Site, lease: Duration) -> Client {
    let builder = Client::builder().lease(lease).patience(Duration::from_secs(60));
    builder.connect(site.url()).await.unwrap()
}

/// The replica is not behind.
pub(super) fn settle(primary: &Server, replica: &Server) {
    observe::wait_for_replica(&mut primary.connect(), &mut replica.connect());
}

/// From here on this replica hears nothing, until it is continued.
pub(super) fn cut_off(primary: &Server, replica: &Server) {
    replica.signal(Signal::SIGSTOP);
    // What is on its way is lost with the connection.
    primary.connect().run("CLIENT KILL TYPE replica");
}

fn wait_for_lease(server: &Server, key: &str, at_least_ms: i64) {
    let mut eye = server.connect();
    wait::until("the lease has been renewed there", SOON, || {
        match eye.call(cmd!["PTTL", key]).integer() {
            left if left > at_least_ms => Ok(()),
            left => Err(left.to_string()),
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_is_kept_through_a_failover() {
    let site = Site::of(2);
    let client = client(&site).await;
    let guard = client.lock("k").acquire().await.unwrap();
    // Shorter there than what a renewal sets, so that one shows.
    site.primary_server().connect().run("PEXPIRE k 300000");
    settle(site.primary_server(), site.server(1));
    let primary = site.server(tokio::task::block_in_place(|| site.fail_over()));
    wait_for_lease(primary, "k", 500_000);
    assert!(!guard.is_lost());
    soon(talks_to(&client, primary)).await;
    let next = client.lock("l").acquire().await.unwrap();
    assert!(next.token() > guard.token());
    soon(guard.release()).await.unwrap();
    assert_eq!(primary.connect().run("EXISTS k"), Value::Integer(0));
}

/// Returns when the client has heard who the primary is: until then the deposed one may still be
/// one for itself, and take a release that nobody else hears of.
async fn talks_to(client: &Client, primary: &Server) {
    loop {
        let probe = client.lock("probe").acquire().await.unwrap();
        if primary.connect().run("EXISTS probe") == Value::Integer(1) {
            return soon(probe.release()).await.unwrap();
        }
        let _lost = probe.release().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_died_with_the_primary_is_lost_at_once() {
    let site = Site::of(2);
    let client = client(&site).await;
    let (primary, replica) = (site.server(0), site.server(1));
    cut_off(primary, replica);
    let guard = client.lock("k").acquire().await.unwrap();
    primary.kill9();
    replica.signal(Signal::SIGCONT);
    // The lease would go on for minutes, and the next regular renewal be minutes away.
    let lost = tokio::time::timeout(Duration::from_secs(60), guard.lost()).await;
    lost.expect("told of the loss");
    assert!(guard.is_lost());
    let next = soon(client.lock("k").acquire()).await.unwrap();
    assert!(next.token() > guard.token(), "{} {}", next.token(), guard.token());
    assert!(matches!(guard.release().await, Err(Error::Lost)));
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_are_asked_over_one_connection_however_many_wait() {
    let site = Site::of(2);
    let client = client(&site).await;
    let mut eye = site.primary_server().connect();
    let mut eyes: Vec<_> = site.sentinels().iter().map(Server::connect).collect();
    let mut connections = || -> i64 {
        let counts = |eye| observe::info_number(eye, "total_connections_received");
        eyes.iter_mut().map(counts).sum()
    };
    let before = connections();
    let mut waiters = tokio::task::JoinSet::new();
    for number in 0..10 {
        let key = format!("k{number}");
        eye.call(cmd!["LOCK.ACQUIRE", &*key, "somebody", 600_000]);
        let lock = client.lock(&key);
        waiters.spawn(async move { lock.acquire().await });
    }
    for number in 0..10 {
        observe::wait_for_waiters(&mut eye, format!("k{number}"), 1);
    }
    // Meanwhile they are asked in every round.
    observe::let_pass(&mut eye, Duration::from_secs(4));
    // One that listens, and what was about to be asked when the client had just connected.
    let more = connections() - before;
    assert!(more <= 4, "{more} more");
    waiters.abort_all();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_hangs_is_left_with_all_that_was_asked_of_it() {
    let site = Site::of(2);
    let client = client(&site).await;
    let mut eye = site.primary_server().connect();
    eye.run("LOCK.ACQUIRE k somebody 600000");
    settle(site.primary_server(), site.server(1));
    let held = client.lock("l").acquire().await.unwrap();
    settle(site.primary_server(), site.server(1));
    let lock = client.lock("k");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    observe::wait_for_waiters(&mut eye, "k", 1);

    let before = site.primary();
    site.server(before).signal(Signal::SIGSTOP);
    let lock = client.lock("m");
    let asker = tokio::spawn(async move { lock.acquire().await });
    let next = tokio::task::block_in_place(|| site.wait_for_successor(before));
    let mut eye = site.server(next).connect();
    observe::wait_for_waiters(&mut eye, "k", 1);
    assert_eq!(eye.run("LOCK.RELEASE k somebody"), Value::Integer(0));
    for task in [waiter, asker] {
        let guard = soon(task).await.unwrap().unwrap();
        soon(guard.release()).await.unwrap();
    }
    assert!(!held.is_lost());
    site.server(before).signal(Signal::SIGCONT);
    soon(held.release()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_are_gone_are_passed_over() {
    let site = Site::of(2);
    site.sentinels()[0].kill9();
    let client = client(&site).await;
    let guard = client.lock("k").acquire().await.unwrap();
    site.sentinels()[1].signal(Signal::SIGSTOP);
    let other = soon(Client::connect(site.url())).await.unwrap();
    assert!(other.lock("k").try_acquire().await.unwrap().is_none());
    soon(guard.release()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_the_sentinels_is_told() {
    let site = Site::of(1);
    let unknown = site.url().replace("=mymaster", "=other");
    let told = Client::connect(unknown).await.unwrap_err();
    assert!(matches!(&told, Error::Config(text) if text.contains("\"other\"")), "{told}");

    let sentinel = sentinel_of(site.primary_server()).config("requirepass", "secret").start();
    let port = sentinel.port();
    let at = format!("redis-sentinel://127.0.0.1:{port}/?sentinelServiceName=mymaster");
    let told = Client::connect(&at).await.unwrap_err();
    assert!(matches!(told, Error::Authentication(_)), "{told:?}");
    let told = Client::connect(format!("{at}&sentinelPassword=wrong")).await.unwrap_err();
    assert!(matches!(told, Error::Authentication(_)), "{told:?}");
    let client = Client::connect(format!("{at}&sentinelPassword=secret")).await.unwrap();
    soon(client.lock("k").acquire()).await.unwrap().release().await.unwrap();

    sentinel.kill9();
    let told = Client::connect(format!("{at}&sentinelPassword=secret")).await.unwrap_err();
    assert!(matches!(told, Error::Connection(_)), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_names_a_server_that_is_gone_is_passed_over() {
    let gone = Server::start();
    let outdated = sentinel_of(&gone).start();
    let named = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", site::NAME);
    assert_eq!(outdated.connect().run(&named)[1].text(), gone.port().to_string());
    gone.kill9();
    let site = Site::of(1);
    let first = format!("redis-sentinel://127.0.0.1:{},", outdated.port());
    let url = site.url().replace("redis-sentinel://", &first);
    let client = soon(Client::connect(url)).await.unwrap();
    let guard = soon(client.lock("k").acquire()).await.unwrap();
    assert_eq!(site.primary_server().connect().run("EXISTS k"), Value::Integer(1));
    soon(guard.release()).await.unwrap();
}
