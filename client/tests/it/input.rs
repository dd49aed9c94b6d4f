//! Mistakes of the caller and of the server's administrator: each gets a specific error.

use super::{Stage, assert_matches, calls, ok, soon, visit, wait_for_more};
use harness::cluster::Cluster;
use harness::site::{self, sentinel_of};
use harness::{Server, cmd, observe, port};
use kvlock::{Client, Error};
use std::time::Duration;

fn is_invalid<T>(outcome: Result<T, Error>, about: &str) -> bool {
    matches!(outcome, Err(Error::Invalid(text)) if text.contains(about))
}

#[tokio::test(flavor = "multi_thread")]
async fn values_out_of_range_are_refused_by_the_call() {
    let mut stage = Stage::set().await;
    let client = stage.client.clone();
    for name in [Vec::new(), vec![b'x'; 65_537]] {
        let lock = client.lock(&name);
        assert!(is_invalid(lock.acquire().await, "name"));
        assert!(is_invalid(lock.try_acquire().await, "name"));
        assert!(is_invalid(lock.info().await, "name"));
        assert!(is_invalid(lock.force_release().await, "name"));
        assert!(is_invalid(client.semaphore(&name).acquire().await, "name"));
        assert!(is_invalid(client.latch(&name).wait().await, "name"));
    }
    let lock = client.lock("k");
    let ten_years = Duration::from_millis(315_360_000_000);
    let bad = [Duration::ZERO, Duration::from_millis(9), ten_years * 2, Duration::MAX];
    for lease in bad {
        assert!(is_invalid(lock.clone().lease(lease).acquire().await, "lease"));
        assert!(is_invalid(lock.clone().fixed_lease(lease).try_acquire().await, "lease"));
        let build = Client::builder().lease(lease).connect(stage.server.url()).await;
        assert!(is_invalid(build, "lease"));
    }
    let other = stage.other().await.owner();
    assert!(is_invalid(lock.clone().owner(&other).acquire().await, "owner"));
    assert!(is_invalid(client.semaphore("s").permits(0).acquire().await, "permits"));
    assert!(is_invalid(client.election("k").value([0_u8; 1025]).campaign().await, "value"));
    let zero = Client::builder().reply_timeout(Duration::ZERO).connect(stage.server.url()).await;
    assert!(matches!(zero, Err(Error::Config(text)) if text.contains("timeout")));
    assert_eq!(calls(&mut stage.control, "lock.acquire"), 0, "nothing was sent");
    let mut guard = lock.acquire().await.unwrap();
    assert!(is_invalid(guard.extend(Duration::ZERO).await, "lease"));
    let latch = client.latch("l");
    assert!(is_invalid(latch.set(0).await, "") && is_invalid(latch.count_down_as("").await, ""));
    let refused = latch.set_for(1, Duration::ZERO).await.unwrap_err().to_string();
    assert_eq!(refused, "lifetime out of range: 0ns is not 1 ms to ten years");
    // The longest name and the longest timeout are valid.
    let lock = client.lock(vec![b'x'; 65_536]);
    assert!(ok(lock.acquire_within(Duration::MAX)).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_beyond_the_servers_limit_is_refused_and_nothing_is_held() {
    let server = Server::options().module_config("max-lease-ms", 60_000).start();
    let mut stage = Stage::of(server, Client::builder()).await;
    let lock = stage.client.lock("k").lease(Duration::from_secs(61));
    assert!(is_invalid(soon(lock.acquire()).await, "lease-ms"));
    stage.assert_nothing_is_left();
    let lease = Duration::from_secs(6);
    let mut guard = ok(stage.client.lock("k").lease(lease).acquire()).await;
    observe::let_pass(&mut stage.control, Duration::from_secs(1));
    let left = guard.lease_left();
    assert!(is_invalid(guard.extend(Duration::from_secs(61)).await, "lease-ms"));
    // The lock keeps its earlier lease: the extension is refused, and the next renewal is not.
    wait_for_more(left, || guard.lease_left());
    assert!(!guard.is_lost());
    assert!(stage.control.run("PTTL k").integer() <= 6_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_for_a_useless_address_says_what_is_wrong() {
    let (alone, nothing) = (Server::start(), Server::options().without_module());
    let (without, empty) = (nothing.clone().start(), Server::options().cluster().start());
    let nodes = Cluster::start_with(&nothing, 3, 0);
    let sentinel = sentinel_of(&alone).config("requirepass", "secret").start();
    let dead = port::free();
    let cluster = |port: u16| format!("redis-cluster://127.0.0.1:{port}");
    let sentinels = |port: u16, name: &str, password: &str| {
        let words = format!("sentinelServiceName={name}&sentinelPassword={password}");
        format!("redis-sentinel://127.0.0.1:{port}/?{words}")
    };
    for (address, error, says) in [
        (cluster(dead), "Connection", &*format!("127.0.0.1:{dead}")),
        (cluster(alone.port()), "Config", "no node of a cluster: its address begins with redis://"),
        (cluster(empty.port()), "Connection", "no slots"),
        (nodes.url(), "ModuleMissing", "127.0.0.1:"),
        (without.url(), "ModuleMissing", ""),
        (format!("{}9999", alone.url()), "Config", "DB index is out of range"),
        (sentinels(sentinel.port(), "other", "secret"), "Config", "\"other\""),
        (sentinels(sentinel.port(), site::NAME, "wrong"), "Authentication", ""),
        (sentinels(dead, site::NAME, "secret"), "Connection", ""),
    ] {
        let told = soon(Client::connect(&address)).await.unwrap_err();
        assert!(format!("{told:?}").starts_with(error), "{address}: {told:?}");
        assert!(told.to_string().contains(says), "{address}: {told}");
        assert_eq!(told.is_retryable(), error == "Connection", "{address}");
    }
    let unasked = sentinels(sentinel.port(), site::NAME, "").replace("&sentinelPassword=", "");
    let told = soon(Client::connect(unasked)).await;
    assert_matches!(told, Err(Error::Authentication(_)));
    let right = ok(Client::connect(sentinels(sentinel.port(), site::NAME, "secret"))).await;
    visit(&right.lock("k")).await;
    // A client that was built without connecting reports a missing module at its first call.
    let client = Client::from_redis(&redis::Client::open(without.url()).unwrap()).unwrap();
    assert_matches!(soon(client.lock("k").acquire()).await, Err(Error::ModuleMissing(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_for_a_wrong_password_shows_no_password() {
    let mut stage = Stage::set().await;
    stage.control.run("ACL SETUSER alice on >secret ~* +@all");
    let port = stage.server.port();
    let address = |password: &str| format!("redis://alice:{password}@127.0.0.1:{port}/");
    let wrong = Client::connect(address("wrong")).await.unwrap_err();
    assert!(matches!(wrong, Error::Authentication(_)) && !wrong.is_retryable(), "{wrong:?}");
    assert!(!format!("{wrong} {wrong:?}").contains("alice:wrong"));
    let alice = Client::connect(address("secret")).await.unwrap();
    assert!(!format!("{alice:?} {:?}", alice.lock("x")).contains("secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_is_reported_and_not_changed() {
    let mut stage = Stage::set().await;
    stage.control.call(cmd!["SET", "k", "precious"]);
    stage.taken("lock");
    let client = &stage.client;
    ok(client.semaphore("s").set(2)).await;
    let (lock, latch) = (client.lock("k"), client.latch("lock"));
    for told in [
        lock.acquire().await.map(drop),
        lock.try_acquire().await.map(drop),
        lock.info().await.map(drop),
        lock.force_release().await.map(drop),
        client.lock("s").try_acquire().await.map(drop),
        client.semaphore("lock").set(1).await,
        latch.set(1).await.map(drop),
        latch.wait().await,
        latch.count_down().await.map(drop),
    ] {
        assert_matches!(told, Err(Error::NotALock));
    }
    soon(client.settled()).await;
    assert_eq!(stage.control.run("GET k").text(), "precious");
    stage.control.run("DEL k s");
}
