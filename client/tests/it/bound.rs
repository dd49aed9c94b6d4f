//! Bound locks: released when their client's session ends, and kept by its heartbeat.

use super::{LONG, MOMENT, SOON, Stage, assert_matches, calls, ok, soon};
use harness::proxy::Moment;
use harness::{Server, Value, observe, wait};
use kvlock::{Builder, Client, Error, Loss};
use nix::sys::signal::Signal;
use std::time::Duration;

fn ttl(ms: u64) -> Builder {
    Client::builder().lease(LONG).session_ttl(Duration::from_millis(ms))
}

impl Stage {
    fn bound(&mut self) -> i64 {
        observe::info_number(&mut self.control, "kvlock_bound")
    }

    /// The session to which the lock is bound.
    fn bound_to(&mut self, key: &str) -> Option<String> {
        let info = self.control.run(&format!("LOCK.INFO {key}"));
        info.to_string().contains("bound").then(|| info.field("bound").text())
    }
}

/// The lock is also kept when connections of its client break.
#[tokio::test(flavor = "multi_thread")]
async fn a_bound_lock_is_kept_without_renewals_while_its_client_lives() {
    let mut stage = Stage::with(ttl(3_000)).await;
    let guard = ok(stage.client.lock("k").bound().acquire()).await;
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
    ok(guard.release()).await;
    assert_eq!(stage.bound(), 0);
}

/// The control connection takes over the session, as a late heartbeat over an old connection would.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_another_reader_reads_is_not_replaced() {
    // With this ttl each `SESSION.NEXT` blocks for seconds, so that another one can replace it.
    let mut stage = Stage::with(ttl(60_000)).await;
    let mut monitor = stage.server.connect();
    assert!(!monitor.run("MONITOR").is_error());
    let guard = ok(stage.client.lock("k").bound().acquire()).await;
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

/// A restarted server has no sessions. The client binds its locks to a new one.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_of_the_server_locks_are_bound_again() {
    let server = Server::options().append_only("always").start();
    let mut stage = Stage::of(server, ttl(20_000)).await;
    let mut guards = Vec::new();
    for number in 0..20 {
        let lock = stage.client.lock(format!("k{number}")).bound();
        guards.push(ok(lock.acquire()).await);
    }
    stage.restart();
    wait::until_is("they are bound again", SOON, 20, || stage.bound());
    for guard in guards {
        assert!(!guard.is_lost());
        ok(guard.release()).await;
    }
}

/// A client repeats a binding that the server refuses, once for each lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_binding_is_repeated_by_one_task() {
    let mut stage = Stage::with(ttl(20_000)).await;
    let mut guards = Vec::new();
    for key in ["k", "m"] {
        guards.push(ok(stage.client.lock(key).bound().acquire()).await);
    }
    let mut before = 0;
    for (limit, bound) in [(1, 1), (1_000, 2)] {
        before = calls(&mut stage.control, "lock.acquire");
        // A drain ends all sessions.
        stage.control.run("CONFIG SET kvlock.drain yes");
        observe::wait_for_info(&mut stage.control, "kvlock_sessions", 0);
        stage.control.run(&format!("CONFIG SET kvlock.max-bound {limit}"));
        stage.control.run("CONFIG SET kvlock.drain no");
        wait::until_is("they are bound again", SOON, bound, || stage.bound());
        // With the limit of 1, the binding of the other lock is refused about once a second.
        observe::let_pass(&mut stage.control, Duration::from_secs(6));
    }
    // One for each lock, and one that may have been on its way.
    let again = calls(&mut stage.control, "lock.acquire") - before;
    assert!((2..=3).contains(&again), "{again}");
    for guard in guards {
        ok(guard.release()).await;
    }
}

/// When an owner binds one of its holds, all its holds are bound, until the last release frees the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_reentry_binds_once() {
    let mut stage = Stage::with(ttl(20_000)).await;
    let owner = stage.client.owner();
    let lock = stage.client.lock("k").owner(&owner);
    let first = ok(lock.acquire()).await;
    assert_eq!(stage.bound(), 0);
    let second = ok(lock.clone().bound().acquire()).await;
    let third = ok(lock.bound().acquire()).await;
    assert_eq!((stage.bound(), first.token()), (1, third.token()));
    for guard in [first, second, third] {
        assert!(stage.bound_to("k").is_some());
        ok(guard.release()).await;
    }
}

/// A downgraded lock stays bound. Its holder learns of the loss before the lock is free, earlier by the margin.
#[tokio::test(flavor = "multi_thread")]
async fn granted_waits_are_bound_too_and_stay_bound_after_a_downgrade() {
    // The server counts from its last answer: up to two heartbeats later than the client.
    let margin = Duration::from_secs(3);
    let (mut stage, proxy) = Stage::behind(ttl(8_000).margin(margin)).await;
    stage.taken("k");
    let writer = stage.in_line(stage.client.lock("k").bound());
    stage.control.run("LOCK.RELEASE k somebody");
    let writer = ok(writer).await.unwrap();
    assert_eq!(stage.bound(), 1);
    let reader = ok(writer.downgrade()).await;
    assert_eq!(stage.bound(), 1);
    proxy.cut();
    assert_eq!(soon(reader.lost()).await, Loss::SessionEnded);
    // The server has not noticed yet that the connection is broken.
    observe::let_pass(&mut stage.control, Duration::from_millis(2_500));
    assert!(!stage.is_free("k"));
    proxy.heal();
}

/// A lock that cannot be bound may nevertheless be held. The client releases it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_cannot_be_bound_because_its_key_was_changed_is_released() {
    let mut stage = Stage::with(ttl(20_000)).await;
    let lock = stage.client.lock("k").owner(&stage.client.owner());
    let first = ok(lock.acquire()).await;
    for _ in 0..2 {
        stage.control.run(&format!("LOCK.ACQUIRE k {} 600000", first.owner()));
    }
    assert_matches!(soon(lock.bound().acquire()).await, Err(Error::Lost(_)));
    assert!(first.is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_that_arrives_after_the_release_acquires_nothing() {
    let (mut stage, proxy) = Stage::behind(ttl(20_000)).await;
    stage.control.run("SEM.SET s 3");
    for kind in ["lock", "permits"] {
        let (key, command) = if kind == "lock" { ("k", "BOUND") } else { ("s", "BOUND") };
        proxy.reset(command, Moment::OnItsWay);
        if kind == "lock" {
            ok(ok(stage.client.lock(key).bound().acquire()).await.release()).await;
        } else {
            let permits = stage.client.semaphore(key).permits(2).bound();
            ok(ok(permits.acquire()).await.release()).await;
        }
        assert!(proxy.has_reset());
        assert_eq!(proxy.deliver(), Value::Nil, "{kind}");
        assert_eq!((stage.is_free("k"), stage.bound()), (true, 0));
    }
    assert_eq!(stage.control.run("SEM.INFO s").field("used").integer(), 0);
    stage.control.run("DEL s");
}

/// If an unused session expired, the server would treat its client as dead.
#[tokio::test(flavor = "multi_thread")]
async fn unused_sessions_are_closed_with_their_bound_locks() {
    let mut stage = Stage::with(ttl(3_000).session_idle(Duration::ZERO)).await;
    let lock = stage.client.lock("k").bound();
    assert_matches!(soon(ok(lock.acquire()).await.detach()).await, Err(Error::Invalid(_)));
    let guard = ok(lock.acquire()).await;
    let refused = soon(stage.client.lock("k").acquire_within(MOMENT)).await;
    assert!(refused.unwrap().is_none());
    // The session has no wait any more, but a bound lock.
    let session = stage.bound_to("k");
    observe::let_pass(&mut stage.control, Duration::from_secs(1));
    assert_eq!((guard.why_lost(), stage.bound_to("k")), (None, session));
    assert_matches!(soon(guard.release_in(LONG)).await, Err(Error::Invalid(_)));
    observe::wait_for_info(&mut stage.control, "kvlock_sessions", 0);
    assert_eq!(observe::info_number(&mut stage.control, "kvlock_sessions_gone"), 0);
}

/// Waits, observations and bound locks share one session, which is read over one connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_uses_one_session_per_server() {
    let mut stage = Stage::with(ttl(3_000)).await;
    let guard = ok(stage.client.lock("k").bound().observed().acquire()).await;
    let waiter = super::waits(&stage.client.lock("k"));
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    let mut count = |what| observe::info_number(&mut stage.control, what);
    // The third connection belongs to this test.
    assert_eq!((count("kvlock_sessions"), count("connected_clients")), (1, 3));
    ok(guard.release()).await;
    super::assert_served(waiter).await;
}

/// While the server is silent, waits fail after the client's patience. Bound locks are kept for most of the
/// ttl of the session.
#[tokio::test(flavor = "multi_thread")]
async fn bound_locks_outlast_the_retry_limit_of_waits_in_the_same_session() {
    let mut stage = Stage::with(ttl(10_000).patience(Duration::from_secs(1))).await;
    let guard = ok(stage.client.lock("k").bound().acquire()).await;
    let session = stage.bound_to("k");
    let waiter = super::waits(&stage.client.lock("k"));
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    stage.server.signal(Signal::SIGSTOP);
    let waited = soon(waiter).await.unwrap();
    stage.server.signal(Signal::SIGCONT);
    assert!(waited.unwrap_err().is_retryable());
    // A client that had given the session up would by now have bound the lock to another one.
    observe::let_pass(&mut stage.control, Duration::from_secs(1));
    assert_eq!((guard.why_lost(), stage.bound_to("k")), (None, session));
    ok(guard.release()).await;
}

/// The owner has a guard that is not bound. A second acquire is to bind the lock, and the server refuses.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_binding_leaves_the_lock_unbound() {
    let mut stage = Stage::with(ttl(3_000)).await;
    let other = stage.other().await;
    let _full = ok(other.lock("other").bound().acquire()).await;
    stage.control.run("CONFIG SET kvlock.max-bound 1");
    let me = stage.client.owner();
    let outer = ok(stage.client.lock("k").owner(&me).acquire()).await;
    let refused = stage.client.lock("k").owner(&me).bound().acquire().await;
    assert_matches!(refused, Err(Error::QueueFull));
    // The session lasts for seconds, and the lease for minutes.
    let left = outer.lease_left();
    assert!(left > Duration::from_secs(60), "{left:?}");
    // The hold of the refused acquire is released in the background.
    stage.client.settled().await;
    ok(outer.detach()).await;
    stage.control.run("LOCK.FORCERELEASE k");
}
