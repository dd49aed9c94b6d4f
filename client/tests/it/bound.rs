//! Bound locks: free as soon as their client is gone, and kept by one heartbeat.

use super::election::observed;
use super::proxy::Proxy;
use super::{SOON, Stage, soon};
use harness::{Server, Value, observe, wait};
use kvlock::{Client, Error, Loss};
use std::time::Duration;

/// Much longer than a test takes.
const LEASE: Duration = Duration::from_secs(600);

async fn client_of(url: &str, ttl_ms: u64) -> Client {
    let builder = Client::builder().lease(LEASE).session_ttl(Duration::from_millis(ttl_ms));
    builder.connect(url).await.unwrap()
}

impl Stage {
    fn bound(&mut self) -> i64 {
        observe::info_number(&mut self.control, "kvlock_bound")
    }

    /// To which session the lock is bound.
    fn bound_to(&mut self, key: &str) -> Option<String> {
        let info = self.control.run(&format!("LOCK.INFO {key}"));
        info.to_string().contains("bound").then(|| info.field("bound").text())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_frees_what_it_has_bound() {
    let mut stage = Stage::set().await;
    let url = stage.server.url();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Dropped with no runtime left, a guard releases nothing.
    let guards = runtime.spawn(async move {
        let client = client_of(&url, 2_000).await;
        let [k, l] = ["k", "l"].map(|key| client.lock(key).bound());
        let bound = [k.acquire().await.unwrap(), l.acquire().await.unwrap()];
        (bound, client.lock("m").acquire().await.unwrap())
    });
    let guards = guards.await.unwrap();
    assert_eq!(stage.bound(), 2);
    runtime.shutdown_background();
    for key in ["k", "l"] {
        soon(stage.client.lock(key).acquire()).await.unwrap().release().await.unwrap();
    }
    // That one is not bound.
    assert!(stage.owner_of("m").is_some());
    drop(guards);
}

#[tokio::test(flavor = "multi_thread")]
async fn as_long_as_its_client_is_there_a_lock_is_kept_without_renewals() {
    let mut stage = Stage::set().await;
    stage.client = client_of(&stage.server.url(), 2_000).await;
    let guard = soon(stage.client.lock("k").bound().acquire()).await.unwrap();
    observe::let_pass(&mut stage.control, Duration::from_secs(5));
    assert!(!guard.is_lost());
    assert_eq!((crate::calls(&mut stage.control, "lock.renew"), stage.bound()), (0, 1));
    let left = stage.control.run("PTTL k").integer();
    assert!((500_000..=600_000).contains(&left), "{left}");
    soon(guard.release()).await.unwrap();
    assert_eq!(stage.bound(), 0);
    stage.assert_nothing_is_left();
}

/// A lock that is waited for is bound when it is granted.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_waited_for_is_bound_too() {
    let mut stage = Stage::set().await;
    stage.client = client_of(&stage.server.url(), 20_000).await;
    stage.taken("k");
    let lock = stage.client.lock("k").bound();
    let waits = tokio::spawn(async move { lock.acquire().await });
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    stage.control.run("LOCK.RELEASE k somebody");
    let guard = soon(waits).await.unwrap().unwrap();
    assert!(stage.bound_to("k").is_some());
    soon(guard.release()).await.unwrap();
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_cannot_reach_the_server_knows_before_the_lock_is_free() {
    let mut stage = Stage::set().await;
    let proxy = Proxy::before(&stage.server).await;
    stage.client = client_of(&proxy.url(), 2_000).await;
    let guard = soon(stage.client.lock("k").bound().acquire()).await.unwrap();
    proxy.freeze(true);
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    // The connection is there, as far as the server knows: it has not even noticed.
    assert_eq!(stage.owner_of("k").as_deref(), Some(guard.owner()));
    proxy.freeze(false);
}

/// A connection that breaks is no reason to lose anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_goes_on_over_another_connection() {
    let mut stage = Stage::set().await;
    stage.client = client_of(&stage.server.url(), 3_000).await;
    let guard = soon(stage.client.lock("k").bound().acquire()).await.unwrap();
    let session = stage.bound_to("k");
    for _ in 0..3 {
        let list = stage.control.run("SESSION.LIST");
        let reader = list[0].field("reader").clone();
        if let Value::Integer(reader) = reader {
            stage.control.run(&format!("CLIENT KILL ID {reader}"));
        }
        wait::until("it reads again", SOON, || {
            let list = stage.control.run("SESSION.LIST");
            match list[0].field("reader") {
                Value::Integer(now) if Value::Integer(*now) != reader => Ok(()),
                other => Err(other.to_string()),
            }
        });
    }
    assert_eq!((stage.bound_to("k"), guard.is_lost()), (session, false));
    soon(guard.release()).await.unwrap();
}

/// A heartbeat that arrives late, over a connection of before, takes over from the one that is heard.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_read_elsewhere_is_not_left_for_another() {
    let mut stage = Stage::set().await;
    let mut monitor = stage.server.connect();
    assert!(!monitor.run("MONITOR").is_error());
    stage.client = client_of(&stage.server.url(), 3_000).await;
    let guard = soon(stage.client.lock("k").bound().acquire()).await.unwrap();
    let id = loop {
        let seen = monitor.receive(SOON).unwrap().text();
        if let Some((_, arguments)) = seen.split_once("\"SESSION.NEXT\" \"") {
            break arguments.split('"').next().unwrap().to_owned();
        }
    };
    monitor.close();
    let session = stage.bound_to("k");
    for replaced in 1..=3 {
        wait::until("it reads", SOON, || {
            match stage.control.run("SESSION.LIST")[0].field("reader") {
                Value::Integer(_) => Ok(()),
                other => Err(other.to_string()),
            }
        });
        assert!(!stage.control.run(&format!("SESSION.NEXT {id} 0 0")).is_error());
        assert_eq!(observe::info_number(&mut stage.control, "kvlock_readers_replaced"), replaced);
    }
    wait::until("it reads on", SOON, || {
        match stage.control.run("SESSION.LIST")[0].field("reader") {
            Value::Integer(_) => Ok(()),
            other => Err(other.to_string()),
        }
    });
    assert_eq!((stage.bound_to("k"), guard.is_lost()), (session, false));
    soon(guard.release()).await.unwrap();
}

/// A server that is started anew knows of no session: the lock is bound to another.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_has_the_locks_bound_to_it_again() {
    let server = Server::options().append_only("always").start();
    let mut stage = Stage::of(server, Client::builder()).await;
    stage.client = client_of(&stage.server.url(), 20_000).await;
    let mut guards = Vec::new();
    for number in 0..20 {
        let lock = stage.client.lock(format!("k{number}")).bound();
        guards.push(soon(lock.acquire()).await.unwrap());
    }
    stage.server.kill9();
    stage.server.restart();
    stage.control = stage.server.connect();
    wait::until_is("they are bound again", SOON, 20, || stage.bound());
    for guard in guards {
        assert!(!guard.is_lost());
        soon(guard.release()).await.unwrap();
    }
    stage.assert_nothing_is_left();
}

/// Of an owner that shares it with itself, all holds are bound, and the last release frees it.
#[tokio::test(flavor = "multi_thread")]
async fn who_enters_again_is_bound_once() {
    let mut stage = Stage::set().await;
    stage.client = client_of(&stage.server.url(), 20_000).await;
    let owner = stage.client.owner();
    let lock = stage.client.lock("k").owner(&owner);
    let first = soon(lock.acquire()).await.unwrap();
    assert_eq!(stage.bound(), 0);
    let second = soon(lock.clone().bound().acquire()).await.unwrap();
    let third = soon(lock.bound().acquire()).await.unwrap();
    assert_eq!((stage.bound(), first.token()), (1, third.token()));
    for guard in [first, second, third] {
        assert!(stage.bound_to("k").is_some());
        soon(guard.release()).await.unwrap();
    }
    stage.assert_nothing_is_left();
}

/// Who goes on sharing it goes on with the heartbeat, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_leaves_a_lock_bound() {
    let mut stage = Stage::set().await;
    let proxy = Proxy::before(&stage.server).await;
    stage.client = client_of(&proxy.url(), 2_000).await;
    let writer = soon(stage.client.lock("k").bound().acquire()).await.unwrap();
    let reader = soon(writer.downgrade()).await.unwrap();
    assert_eq!(stage.bound(), 1);
    proxy.freeze(true);
    assert_eq!(soon(reader.lost()).await, Loss::Expired);
    proxy.freeze(false);
    drop(reader);
    stage.assert_nothing_is_left();
}

/// The server would free it with the session of a client that has nothing to do with it any more.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_bound_is_neither_handed_over_nor_left_to_its_lease() {
    let mut stage = Stage::set().await;
    stage.client = client_of(&stage.server.url(), 20_000).await;
    let lock = stage.client.lock("k").bound();
    let refused = soon(soon(lock.acquire()).await.unwrap().detach()).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let refused = soon(soon(lock.acquire()).await.unwrap().release_in(LEASE)).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_taken_over_is_bound_and_observed_if_wanted() {
    let mut stage = Stage::set().await;
    let guard = soon(stage.client.lock("k").acquire()).await.unwrap();
    let (owner, token) = (guard.owner().to_owned(), guard.token());
    soon(guard.detach()).await.unwrap();
    let other = client_of(&stage.server.url(), 20_000).await;
    let guard = soon(other.lock("k").bound().observed().adopt(&owner, token)).await.unwrap();
    assert_eq!(stage.bound(), 1);
    observed(&mut stage);
    stage.control.run("LOCK.FORCERELEASE k");
    assert_eq!(soon(guard.lost()).await, Loss::Forced);
    drop(guard);
    soon(other.settled()).await;
}

/// What cannot be bound may be held all the same, and is given back then.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_bound_since_others_meddled_is_released() {
    let mut stage = Stage::set().await;
    stage.client = client_of(&stage.server.url(), 20_000).await;
    let lock = stage.client.lock("k").owner(&stage.client.owner());
    let first = soon(lock.acquire()).await.unwrap();
    for _ in 0..2 {
        stage.control.run(&format!("LOCK.ACQUIRE k {} 600000", first.owner()));
    }
    let bound = soon(lock.bound().acquire()).await;
    assert!(matches!(bound, Err(Error::Lost)), "{bound:?}");
    assert!(first.is_lost());
    drop(first);
    stage.wait_until_free("k");
}

/// Left to their time, they would count as those of a client that has died.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_which_nothing_is_wanted_are_closed() {
    let mut stage = Stage::set().await;
    let ttl = Duration::from_secs(3);
    let builder = Client::builder().session_ttl(ttl).session_idle(Duration::ZERO);
    stage.client = builder.connect(stage.server.url()).await.unwrap();
    let guard = soon(stage.client.lock("k").bound().acquire()).await.unwrap();
    let refused = soon(stage.client.lock("k").acquire_within(Duration::from_millis(50))).await;
    assert!(refused.unwrap().is_none());
    soon(guard.release()).await.unwrap();
    observe::wait_for_info(&mut stage.control, "kvlock_sessions", 0);
    assert_eq!(observe::info_number(&mut stage.control, "kvlock_sessions_gone"), 0);
}
