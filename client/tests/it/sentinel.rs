//! A client that finds the primary through Sentinels.

use super::{LONG, MOMENT, SOON, assert_matches, assert_served, ok, wait_for_lease, waits};
use harness::site::{self, Site, sentinel_of};
use harness::{Server, Value, cmd, observe};
use kvlock::{Client, Error};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use tokio::time::timeout;

async fn client(site: &Site) -> Client {
    let builder = Client::builder().lease(LONG).patience(Duration::from_secs(60));
    builder.connect(site.url()).await.unwrap()
}

/// Waits until the replica has all data.
pub(super) fn settle(primary: &Server, replica: &Server) {
    observe::wait_for_replica(&mut primary.connect(), &mut replica.connect());
}

/// A lock that the replica has survives the death of the primary. A lock that it lacks is reported lost at
/// once.
pub(super) async fn replicated_locks_are_kept(
    client: &Client,
    primary: &Server,
    replica: &Server,
    key: &str,
) {
    let [kept, lost] = ["kept", "lost"].map(|name| client.lock(format!("{{{key}}}{name}")));
    let mut eye = primary.connect();
    let keeps = ok(kept.acquire()).await;
    // Shorter than the lease of a renewal, so that a renewal is visible.
    eye.call(cmd!["PEXPIRE", kept.key(), 300_000]);
    settle(primary, replica);
    // The stopped replica receives nothing, and data in flight is lost with the connection.
    replica.signal(Signal::SIGSTOP);
    eye.run("CLIENT KILL TYPE replica");
    let loses = ok(lost.acquire()).await;
    // One call must notice that the primary is gone: here it is the waiter.
    let waiter = waits(&lost);
    observe::wait_for_waiters(&mut eye, lost.key(), 1);
    primary.kill9();
    replica.signal(Signal::SIGCONT);
    // The lease would last for minutes, and the next regular renewal would be minutes away.
    let told = timeout(Duration::from_secs(60), loses.lost()).await;
    told.expect("told of the loss");
    let next = ok(waiter).await.unwrap();
    assert!(next.token() > loses.token(), "{} {}", next.token(), loses.token());
    assert_matches!(loses.release().await, Err(Error::Lost(_)));
    wait_for_lease(replica, kept.key(), 500_000);
    assert!(!keeps.is_lost());
    for guard in [keeps, next] {
        ok(guard.release()).await;
    }
    assert_eq!(replica.connect().call(cmd!["EXISTS", kept.key()]), Value::Integer(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_primarys_death_replicated_locks_are_kept_and_others_lost_at_once() {
    let site = Site::of(2);
    let client = client(&site).await;
    replicated_locks_are_kept(&client, site.server(0), site.server(1), "k").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reply_timeout_may_be_as_long_as_any_duration() {
    let site = Site::of(2);
    let builder = Client::builder().reply_timeout(Duration::MAX);
    let client = builder.connect(site.url()).await.unwrap();
    ok(ok(client.lock("k").acquire()).await.release()).await;
}

/// The outdated Sentinel is cut off from the others: it answers, and will never learn of their decision.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_leaves_the_server_of_an_outdated_sentinel() {
    let (deposed, primary) = (Server::start(), Server::start());
    let outdated = sentinel_of(&deposed).start();
    let epoch = format_args!("{} 5", site::NAME).to_string();
    let current = sentinel_of(&primary).config("sentinel config-epoch", epoch).start();
    let [outdated, current] =
        [outdated.port(), current.port()].map(|port| format!("127.0.0.1:{port}"));
    let url = format!("redis-sentinel://{outdated},{current}/?sentinelServiceName={}", site::NAME);
    let client = ok(Client::connect(url)).await;
    // The first one may be acquired at the deposed server, and is then lost.
    let end = Instant::now() + SOON;
    loop {
        let guard = ok(client.lock("k").acquire()).await;
        if primary.connect().run("EXISTS k") == Value::Integer(1) {
            break ok(guard.release()).await;
        }
        assert!(Instant::now() < end, "it stays at the deposed server");
        let _lost = timeout(MOMENT, guard.lost()).await;
    }
}

/// Sentinels that were set up anew begin to number their decisions again.
#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_were_set_up_anew_are_followed() {
    let (first, second) = (Server::start(), Server::start());
    let before =
        sentinel_of(&first).config("sentinel config-epoch", format_args!("{} 5", site::NAME));
    let before = before.start();
    let at = before.port();
    let url = format!("redis-sentinel://127.0.0.1:{at}/?sentinelServiceName={}", site::NAME);
    let client = ok(Client::connect(url)).await;
    ok(ok(client.lock("k").acquire()).await.release()).await;
    before.kill9();
    // The same primary: a new connection to it is possible at once.
    let anew = sentinel_of(&first).port(at).start();
    first.connect().run("CLIENT KILL TYPE normal SKIPME yes");
    ok(ok(client.lock("k").acquire()).await.release()).await;
    anew.kill9();
    let _anew = sentinel_of(&second).port(at).start();
    first.kill9();
    let guard = ok(client.lock("k").acquire()).await;
    assert_eq!(second.connect().run("EXISTS k"), Value::Integer(1));
    ok(guard.release()).await;
}

/// Waits for longer than the time after which a client gives up a decision that no Sentinel names any more.
fn let_it_be_forgotten(server: &Server) {
    for _ in 0..2 {
        observe::let_pass(&mut server.connect(), Duration::from_secs(7));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_after_sentinels_were_set_up_anew_is_followed_if_one_of_them_is_gone() {
    let (first, second) = (Server::start(), Server::start());
    let epoch = format_args!("{} 5", site::NAME).to_string();
    let before = || sentinel_of(&first).config("sentinel config-epoch", &epoch).start();
    let (one, other) = (before(), before());
    let ports = [one.port(), other.port()];
    let [at, gone] = ports.map(|port| format!("127.0.0.1:{port}"));
    let url = format!("redis-sentinel://{at},{gone}/?sentinelServiceName={}", site::NAME);
    let client = ok(Client::connect(url)).await;
    ok(ok(client.lock("k").acquire()).await.release()).await;
    for sentinel in [&one, &other] {
        sentinel.kill9();
    }
    let anew = ports.map(|port| sentinel_of(&first).port(port).start());
    let_it_be_forgotten(&second);
    for server in [&anew[0], &anew[1], &first] {
        server.kill9();
    }
    let epoch = format_args!("{} 1", site::NAME).to_string();
    let _next = sentinel_of(&second).config("sentinel config-epoch", epoch).port(ports[0]).start();
    let guard = ok(client.lock("k").acquire()).await;
    assert_eq!(second.connect().run("EXISTS k"), Value::Integer(1));
    ok(guard.release()).await;
}

/// The one address leads to another Sentinel, which has not received the last decision.
#[tokio::test(flavor = "multi_thread")]
async fn a_living_primary_is_not_left_for_one_that_only_an_older_decision_names() {
    let (deposed, primary) = (Server::start(), Server::start());
    let epoch = |number| format!("{} {number}", site::NAME);
    let current = sentinel_of(&primary).config("sentinel config-epoch", epoch(6)).start();
    let at = current.port();
    let url = format!("redis-sentinel://127.0.0.1:{at}/?sentinelServiceName={}", site::NAME);
    let client = ok(Client::connect(url)).await;
    let guard = ok(client.lock("k").acquire()).await;
    current.kill9();
    let _outdated =
        sentinel_of(&deposed).config("sentinel config-epoch", epoch(5)).port(at).start();
    let_it_be_forgotten(&primary);
    assert!(ok(client.lock("k").try_acquire()).await.is_none());
    assert!(!guard.is_lost());
    ok(guard.release()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_waiters_share_one_connection_to_each_sentinel() {
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
    // In this time, the client queries Sentinels repeatedly.
    observe::let_pass(&mut eye, Duration::from_secs(4));
    // Expected are one subscription, and a connection for queries to each of the other two.
    let more = connections() - before;
    assert!(more <= 4, "{more} more");
    waiters.abort_all();
}

#[tokio::test(flavor = "multi_thread")]
async fn all_requests_to_a_hanging_primary_move_to_the_new_one() {
    let site = Site::of(2);
    let client = client(&site).await;
    let mut eye = site.primary_server().connect();
    eye.run("LOCK.ACQUIRE k somebody 600000");
    settle(site.primary_server(), site.server(1));
    let held = client.lock("l").acquire().await.unwrap();
    settle(site.primary_server(), site.server(1));
    let waiter = waits(&client.lock("k"));
    observe::wait_for_waiters(&mut eye, "k", 1);

    let before = site.primary();
    site.server(before).signal(Signal::SIGSTOP);
    let asker = waits(&client.lock("m"));
    let next = tokio::task::block_in_place(|| site.wait_for_successor(before));
    let mut eye = site.server(next).connect();
    observe::wait_for_waiters(&mut eye, "k", 1);
    assert_eq!(eye.run("LOCK.RELEASE k somebody"), Value::Integer(0));
    for task in [waiter, asker] {
        assert_served(task).await;
    }
    assert!(!held.is_lost());
    site.server(before).signal(Signal::SIGCONT);
    ok(held.release()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_sentinels_and_ones_that_name_a_dead_server_are_skipped() {
    let gone = Server::start();
    let outdated = sentinel_of(&gone).start();
    let named = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", site::NAME);
    assert_eq!(outdated.connect().run(&named)[1].text(), gone.port().to_string());
    gone.kill9();
    let site = Site::of(1);
    let first = format!("redis-sentinel://127.0.0.1:{},", outdated.port());
    let url = site.url().replace("redis-sentinel://", &first);
    let client = ok(Client::connect(&url)).await;
    let guard = ok(client.lock("k").acquire()).await;
    assert_eq!(site.primary_server().connect().run("EXISTS k"), Value::Integer(1));
    site.sentinels()[0].kill9();
    site.sentinels()[1].signal(Signal::SIGSTOP);
    let other = ok(Client::connect(url)).await;
    assert!(ok(other.lock("k").try_acquire()).await.is_none());
    ok(guard.release()).await;
}
