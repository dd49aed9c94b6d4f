//! Bound locks: free as soon as their client is gone, and kept by one heartbeat.

use super::election::observed;
use super::{SOON, Stage, calls, soon};
use harness::{Server, observe, wait};
use kvlock::{Builder, Client, Error, Loss};
use std::time::Duration;

/// Much longer than a test takes.
const LEASE: Duration = Duration::from_secs(600);

fn ttl(ms: u64) -> Builder {
    Client::builder().lease(LEASE).session_ttl(Duration::from_millis(ms))
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
    let (url, runtime) = (stage.server.url(), tokio::runtime::Runtime::new().unwrap());
    // Dropped with no runtime left, a guard releases nothing.
    let guard = runtime.spawn(async move {
        let client = ttl(2_000).connect(url).await.unwrap();
        client.lock("k").bound().acquire().await.unwrap()
    });
    let guard = guard.await.unwrap();
    assert_eq!(stage.bound(), 1);
    runtime.shutdown_background();
    soon(stage.client.lock("k").acquire()).await.unwrap().release().await.unwrap();
    drop(guard);
}

/// And a connection that breaks is no reason to lose anything.
#[tokio::test(flavor = "multi_thread")]
async fn as_long_as_its_client_is_there_a_lock_is_kept_without_renewals() {
    let mut stage = Stage::with(ttl(3_000)).await;
    let guard = soon(stage.client.lock("k").bound().acquire()).await.unwrap();
    observe::let_pass(&mut stage.control, Duration::from_secs(5));
    assert!(!guard.is_lost());
    assert_eq!((calls(&mut stage.control, "lock.renew"), stage.bound()), (0, 1));
    let left = stage.control.run("PTTL k").integer();
    assert!((500_000..=600_000).contains(&left), "{left}");
    let session = stage.bound_to("k");
    for _ in 0..3 {
        stage.cut_the_reader();
    }
    assert_eq!((stage.bound_to("k"), guard.is_lost()), (session, false));
    soon(guard.release()).await.unwrap();
    assert_eq!(stage.bound(), 0);
}

/// A heartbeat that arrives late, over a connection of before, takes over from the one that is heard.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_read_elsewhere_is_not_left_for_another() {
    let mut stage = Stage::with(ttl(3_000)).await;
    let mut monitor = stage.server.connect();
    assert!(!monitor.run("MONITOR").is_error());
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
        stage.reader();
        assert!(!stage.control.run(&format!("SESSION.NEXT {id} 0 0")).is_error());
        assert_eq!(observe::info_number(&mut stage.control, "kvlock_readers_replaced"), replaced);
    }
    stage.reader();
    assert_eq!((stage.bound_to("k"), guard.is_lost()), (session, false));
}

/// A server that is started anew knows of no session: the lock is bound to another.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_has_the_locks_bound_to_it_again() {
    let server = Server::options().append_only("always").start();
    let mut stage = Stage::of(server, ttl(20_000)).await;
    let mut guards = Vec::new();
    for number in 0..20 {
        let lock = stage.client.lock(format!("k{number}")).bound();
        guards.push(soon(lock.acquire()).await.unwrap());
    }
    stage.restart();
    wait::until_is("they are bound again", SOON, 20, || stage.bound());
    for guard in guards {
        assert!(!guard.is_lost());
        soon(guard.release()).await.unwrap();
    }
}

/// Of an owner that shares it with itself, all holds are bound, and the last release frees it.
#[tokio::test(flavor = "multi_thread")]
async fn who_enters_again_is_bound_once() {
    let mut stage = Stage::with(ttl(20_000)).await;
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
}

/// Who goes on sharing it goes on with the heartbeat, too, and knows before the lock is free.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_waited_for_is_bound_too_and_a_downgrade_leaves_it_so() {
    let (mut stage, proxy) = Stage::behind(ttl(2_000)).await;
    stage.taken("k");
    let writer = stage.in_line(stage.client.lock("k").bound());
    stage.control.run("LOCK.RELEASE k somebody");
    let writer = soon(writer).await.unwrap().unwrap();
    assert_eq!(stage.bound(), 1);
    let reader = soon(writer.downgrade()).await.unwrap();
    assert_eq!(stage.bound(), 1);
    proxy.cut();
    assert_eq!(soon(reader.lost()).await, Loss::Expired);
    // The connection is there, as far as the server knows: it has not even noticed.
    assert!(!stage.is_free("k"));
    proxy.heal();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_taken_over_is_bound_and_observed_if_wanted() {
    let mut stage = Stage::with(ttl(20_000)).await;
    let guard = soon(stage.other().await.lock("k").acquire()).await.unwrap();
    let (owner, token) = (guard.owner().to_owned(), guard.token());
    soon(guard.detach()).await.unwrap();
    let lock = stage.client.lock("k").bound().observed();
    let guard = soon(lock.adopt(&owner, token)).await.unwrap();
    assert_eq!(stage.bound(), 1);
    observed(&mut stage);
    stage.control.run("LOCK.FORCERELEASE k");
    assert_eq!(soon(guard.lost()).await, Loss::Forced);
}

/// What cannot be bound may be held all the same, and is given back then.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_bound_since_others_meddled_is_released() {
    let mut stage = Stage::with(ttl(20_000)).await;
    let lock = stage.client.lock("k").owner(&stage.client.owner());
    let first = soon(lock.acquire()).await.unwrap();
    for _ in 0..2 {
        stage.control.run(&format!("LOCK.ACQUIRE k {} 600000", first.owner()));
    }
    let bound = soon(lock.bound().acquire()).await;
    assert!(matches!(bound, Err(Error::Lost)), "{bound:?}");
    assert!(first.is_lost());
}

/// Left to their time, they would count as those of a client that has died; and with it the server would
/// free what somebody else goes on with.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_which_nothing_is_wanted_are_closed_and_what_is_bound_does_not_outlive_them() {
    let mut stage = Stage::with(ttl(3_000).session_idle(Duration::ZERO)).await;
    let lock = stage.client.lock("k").bound();
    let refused = soon(soon(lock.acquire()).await.unwrap().detach()).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let guard = soon(lock.acquire()).await.unwrap();
    let refused = soon(stage.client.lock("k").acquire_within(Duration::from_millis(50))).await;
    assert!(refused.unwrap().is_none());
    let refused = soon(guard.release_in(LEASE)).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    observe::wait_for_info(&mut stage.control, "kvlock_sessions", 0);
    assert_eq!(observe::info_number(&mut stage.control, "kvlock_sessions_gone"), 0);
}
