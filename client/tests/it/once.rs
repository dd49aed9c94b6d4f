//! A result that one caller computes for all callers.

use super::{MOMENT, SOON, Stage, assert_matches, calls, ok, soon};
use harness::proxy::Moment;
use harness::{Value, cmd, observe, wait};
use kvlock::{Client, Error, Guard, OnceKey};
use metrics_util::debugging::DebuggingRecorder;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const LOCK: &str = "{report}:lock";

/// Spawns a task that gets the result. If the task computes the result, it increments `works`.
fn wants(once: &OnceKey, works: &Arc<AtomicU32>) -> JoinHandle<(bool, Vec<u8>)> {
    let (once, works) = (once.clone(), works.clone());
    tokio::spawn(async move {
        let made = once.get_or(async |_: &Guard| {
            works.fetch_add(1, Ordering::SeqCst);
            "made"
        });
        let made = made.await.unwrap();
        (made.computed(), made.value)
    })
}

/// Acquires the lock for another owner, and queues `count` tasks for it.
fn in_line(
    stage: &mut Stage,
    once: &OnceKey,
    count: i64,
    works: &Arc<AtomicU32>,
) -> Vec<JoinHandle<(bool, Vec<u8>)>> {
    stage.taken(LOCK);
    let waiters = (0..count).map(|_| wants(once, works)).collect();
    observe::wait_for_waiters(&mut stage.control, LOCK, count);
    waiters
}

fn forget(stage: &mut Stage) {
    stage.control.run("DEL report");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_task_works_and_all_get_the_result_with_one_more_get() {
    let mut stage = Stage::set().await;
    let once = stage.client.once("report").ttl(Duration::from_secs(60));
    let works = Arc::<AtomicU32>::default();
    let waiters = in_line(&mut stage, &once, 20, &works);
    let before = calls(&mut stage.control, "get");
    assert_eq!(before, 20);
    stage.control.call(cmd!["LOCK.RELEASE", LOCK, "somebody", "STORE", "report", "theirs"]);
    for waiter in waiters {
        assert_eq!(ok(waiter).await, (false, b"theirs".to_vec()));
    }
    assert_eq!(works.load(Ordering::SeqCst), 0);
    assert_eq!(calls(&mut stage.control, "get"), 40);
    assert_eq!(calls(&mut stage.control, "lock.release"), 1);
    // After that the result exists, and clients do not request the lock.
    let waits = calls(&mut stage.control, "lock.wait");
    let found = ok(once.get_or(async |_: &Guard| "mine")).await;
    assert_eq!((found.computed(), &*found.value), (false, &b"theirs"[..]));
    assert_eq!(calls(&mut stage.control, "lock.wait"), waits);
    forget(&mut stage);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_is_stored_with_its_ttl_and_may_be_empty() {
    let mut stage = Stage::set().await;
    let once = stage.client.once("report").ttl(Duration::from_secs(60));
    let made = ok(once.get_or(async |guard: &Guard| {
        assert_eq!(guard.key(), LOCK.as_bytes());
        ""
    }))
    .await;
    assert!(made.computed() && made.not_stored().is_none());
    assert_eq!(stage.control.run("EXISTS report"), Value::Integer(1));
    assert!((50_000..=60_000).contains(&stage.control.run("PTTL report").integer()));
    assert!(stage.is_free(LOCK));
    let found = ok(once.get_or(async |_: &Guard| "other")).await;
    assert!(!found.computed() && found.into_value().is_empty());
    forget(&mut stage);
    // Without a ttl, the result does not expire.
    ok(stage.client.once("report").get_or(async |_: &Guard| "x")).await;
    assert_eq!(stage.control.run("PTTL report"), Value::Integer(-1));
    forget(&mut stage);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_fails_stores_nothing_and_the_next_one_works() {
    let mut stage = Stage::set().await;
    let once = stage.client.once("report");
    let (fail, fails) = oneshot::channel::<()>();
    let first = tokio::spawn({
        let once = once.clone();
        async move {
            let work = async |_: &Guard| {
                fails.await.unwrap();
                Err::<Vec<u8>, _>(Error::Protocol("no report".to_owned()))
            };
            once.try_get_or(work).await
        }
    });
    wait::until("the first one works", SOON, || {
        if stage.is_free(LOCK) { Err("free".to_owned()) } else { Ok(()) }
    });
    let works = Arc::<AtomicU32>::default();
    let others: Vec<_> = (0..5).map(|_| wants(&once, &works)).collect();
    observe::wait_for_waiters(&mut stage.control, LOCK, 5);
    fail.send(()).unwrap();
    assert_matches!(ok(first).await, Err(Error::Protocol(why)) if why == "no report");
    let mut computed = 0;
    for other in others {
        let (by_it, value) = ok(other).await;
        computed += u32::from(by_it);
        assert_eq!(value, b"made");
    }
    assert_eq!((computed, works.load(Ordering::SeqCst)), (1, 1));
    forget(&mut stage);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_a_lost_lock_is_returned_and_not_stored() {
    let mut stage = Stage::set().await;
    let once = stage.client.once("report");
    let made = ok(once.get_or(async |_: &Guard| {
        let mut there = stage.server.connect();
        there.call(cmd!["LOCK.FORCERELEASE", LOCK]);
        "late"
    }))
    .await;
    assert!(made.computed());
    assert_matches!(made.not_stored(), Some(Error::Lost(_)));
    assert_eq!(made.value, b"late");
    assert_eq!(stage.control.run("EXISTS report"), Value::Integer(0));
}

/// The reply to the first release is lost, and the server did not execute it.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_may_be_stored_is_looked_for() {
    let (stage, proxy) = Stage::behind(Client::builder()).await;
    let once = stage.client.once("report");
    let made = ok(once.get_or(async |_: &Guard| {
        proxy.reset("LOCK.RELEASE", Moment::BeforeTheServer);
        stage.server.connect().call(cmd!["LOCK.FORCERELEASE", LOCK]);
        "late"
    }))
    .await;
    assert!(proxy.has_reset());
    assert_matches!(made.not_stored(), Some(Error::Lost(_)));
}

/// The first release is executed, and its reply is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_may_be_stored_and_cannot_be_looked_for_is_not_lost() {
    let (mut stage, proxy) = Stage::behind(Client::builder()).await;
    let once = stage.client.once("report");
    let made = ok(once.get_or(async |_: &Guard| {
        proxy.reset("LOCK.RELEASE", Moment::BeforeTheAnswer);
        stage.server.connect().run("ACL SETUSER default -get");
        "made"
    }))
    .await;
    assert!(proxy.has_reset());
    assert_matches!(made.not_stored(), Some(Error::Connection(_)));
    stage.control.run("ACL SETUSER default +get");
    assert_eq!(stage.control.run("GET report").text(), "made");
    forget(&mut stage);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_expired_before_it_was_read_is_made_again() {
    let (mut stage, proxy) = Stage::behind(Client::builder()).await;
    let once = stage.client.once("report");
    let works = Arc::<AtomicU32>::default();
    let waiter = in_line(&mut stage, &once, 1, &works).remove(0);
    // The waiter receives `ready`, and its `GET` arrives after the result has expired.
    let way = Duration::from_millis(300);
    proxy.delay(way, way);
    stage.control.call(cmd![
        "LOCK.RELEASE",
        LOCK,
        "somebody",
        "STORE",
        "report",
        "brief",
        "PX",
        100
    ]);
    assert_eq!(ok(waiter).await, (true, b"made".to_vec()));
    assert_eq!(observe::info_number(&mut stage.control, "kvlock_told_ready"), 1);
    proxy.delay(Duration::ZERO, Duration::ZERO);
    forget(&mut stage);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_the_release_does_not_lose_the_result() {
    let (mut stage, proxy) = Stage::behind(Client::builder()).await;
    let once = stage.client.once("report");
    for moment in [
        Moment::BeforeTheServer,
        Moment::BeforeTheAnswer,
        Moment::InTheAnswer,
        Moment::AfterTheAnswer,
    ] {
        proxy.reset("LOCK.RELEASE", moment);
        let made = ok(once.get_or(async |_: &Guard| "made")).await;
        assert!(proxy.has_reset(), "{moment:?}");
        assert!(made.computed() && made.not_stored().is_none(), "{moment:?}: {made:?}");
        assert_eq!(stage.control.run("GET report").text(), "made", "{moment:?}");
        forget(&mut stage);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_around_any_command_does_not_lose_the_result() {
    let (mut stage, proxy) = Stage::behind(Client::builder()).await;
    for command in ["GET", "LOCK.WAIT"] {
        for moment in [Moment::BeforeTheServer, Moment::BeforeTheAnswer, Moment::InTheAnswer] {
            let once = stage.client.once("report");
            proxy.reset(command, moment);
            let made = ok(once.get_or(async |_: &Guard| "made")).await;
            assert!(proxy.has_reset(), "{command} {moment:?}");
            assert_eq!(made.value, b"made", "{command} {moment:?}");
            assert!(made.not_stored().is_none(), "{command} {moment:?}: {made:?}");
            forget(&mut stage);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_around_the_outcome_of_a_wait_does_not_lose_the_result() {
    for moment in [Moment::BeforeTheServer, Moment::BeforeTheAnswer, Moment::InTheAnswer] {
        // With this ttl the answer to the second `SESSION.NEXT` is the outcome.
        let builder = Client::builder().session_ttl(Duration::from_secs(60));
        let (mut stage, proxy) = Stage::behind(builder).await;
        proxy.reset_after(1, "SESSION.NEXT", moment);
        let (once, works) = (stage.client.once("report"), Arc::default());
        let waiters = in_line(&mut stage, &once, 1, &works);
        stage.control.run("SET report theirs");
        stage.control.run(&format!("LOCK.RELEASE {LOCK} somebody"));
        for waiter in waiters {
            assert_eq!(ok(waiter).await, (false, b"theirs".to_vec()), "{moment:?}");
        }
        assert!(proxy.has_reset(), "{moment:?}");
        assert_eq!(works.load(Ordering::SeqCst), 0, "{moment:?}");
        forget(&mut stage);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_memory_the_result_is_returned_and_the_lock_released() {
    let mut stage = Stage::set().await;
    let once = stage.client.once("report");
    let made = ok(once.get_or(async |_: &Guard| {
        stage.server.connect().run("CONFIG SET maxmemory 1");
        "made"
    }))
    .await;
    assert!(made.computed());
    assert_eq!(made.not_stored().and_then(Error::code), Some("OOM"));
    assert!(stage.is_free(LOCK));
    stage.control.run("CONFIG SET maxmemory 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_too_large_is_returned_and_not_sent() {
    let mut stage = Stage::set().await;
    let once = stage.client.once("report");
    let made = ok(once.get_or(async |_: &Guard| vec![0; 64 * 1_024 * 1_024 + 1])).await;
    assert!(made.computed());
    assert_matches!(made.not_stored(), Some(Error::Invalid(_)));
    assert!(stage.is_free(LOCK));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_ends_at_its_timeout() {
    let mut stage = Stage::set().await;
    stage.taken(LOCK);
    for time in [Duration::ZERO, MOMENT] {
        let once = stage.client.once("report").acquire_within(time);
        let trouble = soon(once.get_or(async |_: &Guard| "made")).await.unwrap_err();
        assert_matches!(trouble, Error::NotInTime);
    }
    // If the result exists, the lock is not needed.
    stage.control.run("SET report theirs");
    let once = stage.client.once("report").acquire_within(Duration::ZERO);
    assert_eq!(ok(once.get_or(async |_: &Guard| "made")).await.value, b"theirs");
    forget(&mut stage);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_dropped_at_any_point_leaves_nothing() {
    let mut stage = Stage::set().await;
    let once = stage.client.once("report");
    let works = Arc::<AtomicU32>::default();
    // Cancels a waiter in the queue.
    let waiter = in_line(&mut stage, &once, 1, &works).remove(0);
    waiter.abort();
    observe::wait_for_waiters(&mut stage.control, LOCK, 0);
    stage.control.call(cmd!["LOCK.RELEASE", LOCK, "somebody"]);
    // Cancels a call during its work.
    let works = once.get_or(async |_: &Guard| std::future::pending::<Vec<u8>>().await);
    assert!(tokio::time::timeout(MOMENT, works).await.is_err());
    soon(stage.client.settled()).await;
    stage.wait_until_free(LOCK);
    assert_eq!(stage.control.run("EXISTS report"), Value::Integer(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_settings_are_refused_before_the_work() {
    let stage = Stage::set().await;
    let client = &stage.client;
    for once in [
        client.once(""),
        client.once("a}b"),
        client.once("report").ttl(Duration::ZERO),
        client.once("report").lease(Duration::ZERO),
    ] {
        let refused = soon(once.get_or(async |_: &Guard| -> Vec<u8> { unreachable!() })).await;
        assert_matches!(refused, Err(Error::Invalid(_)), "{once:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_is_refused_before_the_work() {
    let mut stage = Stage::set().await;
    let once = stage.client.once("report");
    for key in ["report", LOCK] {
        stage.control.call(cmd!["LPUSH", key, "x"]);
        let refused = soon(once.get_or(async |_: &Guard| -> Vec<u8> { unreachable!() })).await;
        assert_matches!(refused, Err(Error::NotALock), "{key}");
        stage.control.call(cmd!["DEL", key]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_can_be_json() {
    let mut stage = Stage::set().await;
    let once = stage.client.once("report");
    let work = async |_: &Guard| vec![1_u32, 2];
    let made = ok(once.get_or_json(work)).await;
    assert_eq!((made.computed(), made.value), (true, vec![1, 2]));
    assert_eq!(stage.control.run("GET report").text(), "[1,2]");
    let found = ok(once.get_or_json(work)).await;
    assert_eq!((found.computed(), found.value), (false, vec![1, 2]));
    let wrong = soon(once.get_or_json(async |_: &Guard| String::new())).await;
    assert_matches!(wrong.map(|_| ()), Err(Error::Invalid(_)));
    forget(&mut stage);
}

/// The lock is granted for two seconds, as an offer. The result needs longer to arrive, so the full lease is set
/// before it. The offer ends meanwhile, which is no loss.
#[test]
fn a_large_result_of_short_work_is_stored_over_a_slow_network() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    // The recorder is local to this thread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(store_a_large_result()));
    let counts = snapshotter.snapshot().into_vec();
    let counted = |name| counts.iter().any(|(key, ..)| key.key().name() == name);
    assert!(counted("kvlock_client_released_total") && !counted("kvlock_client_lost_total"));
}

async fn store_a_large_result() {
    let builder = Client::builder().reply_timeout(Duration::from_secs(20));
    let (mut stage, proxy) = Stage::behind(builder).await;
    let once = stage.client.once("report").ttl(Duration::from_secs(60)).observed();
    // The proxy passes at most 64 KiB at once.
    let each = Duration::from_millis(50);
    let result = vec![b'r'; 64 * 65_536];
    let made = ok(once.get_or(async |_: &Guard| {
        proxy.delay(each, each);
        result.clone()
    }))
    .await;
    proxy.delay(Duration::ZERO, Duration::ZERO);
    assert!(made.not_stored().is_none(), "{:?}", made.not_stored());
    assert_eq!(stage.control.run("STRLEN report").integer(), 64 * 65_536);
    assert!(stage.is_free(LOCK));
    forget(&mut stage);
}
