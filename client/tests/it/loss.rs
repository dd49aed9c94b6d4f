//! Holders learn in time that a lock is lost.

use super::{SOON, Stage, soon};
use harness::{Server, wait};
use kvlock::{Client, Clock, Error, Guard, Loss};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A clock that a test moves on, as if the machine had been suspended: no timer notices.
#[derive(Clone, Debug)]
struct Suspended {
    start: Instant,
    slept: Arc<AtomicU64>,
}

impl Suspended {
    fn new() -> Self {
        Self { start: Instant::now(), slept: Arc::default() }
    }

    fn suspend(&self, duration: Duration) {
        self.slept.fetch_add(u64::try_from(duration.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for Suspended {
    fn now(&self) -> Duration {
        self.start.elapsed() + Duration::from_millis(self.slept.load(Ordering::SeqCst))
    }
}

async fn with_clock() -> (Stage, Suspended) {
    let (server, clock) = (Server::start(), Suspended::new());
    let builder = Client::builder().clock(clock.clone());
    let client = builder.connect(server.url()).await.unwrap();
    (Stage { control: server.connect(), server, client }, clock)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_suspend_a_guard_is_lost_before_any_timer_has_run() {
    let (stage, clock) = with_clock().await;
    let guard = stage.client.lock("k").acquire().await.unwrap();
    assert!(!guard.is_lost());
    clock.suspend(Duration::from_secs(40));
    assert!(guard.is_lost() && guard.lease_left().is_zero());
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_suspend_those_who_wait_for_the_loss_are_woken() {
    let (stage, clock) = with_clock().await;
    let guard = stage.client.lock("k").acquire().await.unwrap();
    let waits = tokio::spawn(async move { guard.lost().await });
    clock.suspend(Duration::from_secs(40));
    soon(waits).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_suspend_no_line_of_the_work_runs() {
    let (stage, clock) = with_clock().await;
    let guard = stage.client.lock("k").acquire().await.unwrap();
    let (go_on, gone_on) = tokio::sync::oneshot::channel();
    let wrote = Arc::new(AtomicBool::new(false));
    let work = {
        let wrote = wrote.clone();
        async move {
            gone_on.await.unwrap();
            wrote.store(true, Ordering::SeqCst);
        }
    };
    let worker = tokio::spawn(async move { guard.run_until_lost(work).await });
    clock.suspend(Duration::from_secs(40));
    go_on.send(()).unwrap_or_default();
    assert!(matches!(soon(worker).await.unwrap(), Err(Error::Lost)));
    assert!(!wrote.load(Ordering::SeqCst));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_suspend_is_made_up_for_by_a_renewal() {
    let (stage, clock) = with_clock().await;
    let guard = stage.client.lock("k").acquire().await.unwrap();
    clock.suspend(Duration::from_secs(20));
    assert!(!guard.is_lost());
    wait::until("it is renewed", SOON, || {
        if guard.lease_left() > Duration::from_secs(25) {
            Ok(())
        } else {
            Err(format!("{guard:?}"))
        }
    });
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_is_final() {
    let (mut stage, clock) = with_clock().await;
    let guard = stage.client.lock("k").acquire().await.unwrap();
    clock.suspend(Duration::from_secs(40));
    assert!(guard.is_lost());
    // The server still has it, and is told to let go.
    assert_eq!(stage.owner_of("k").as_deref(), Some(guard.owner()));
    drop(guard);
    stage.assert_nothing_is_left().await;
}

async fn taken_away(how: &str) -> (Stage, Guard) {
    let mut stage = Stage::set().await;
    let guard = stage.client.lock("k").lease(Duration::from_secs(3)).acquire().await.unwrap();
    stage.control.run(how);
    (stage, guard)
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_takes_the_lock_away_is_noticed_with_the_next_renewal() {
    let all = ["DEL k", "FLUSHALL", "SET k something", "RENAME k other", "LOCK.FORCERELEASE k"];
    for how in all {
        let (stage, guard) = taken_away(how).await;
        let why = soon(guard.lost()).await;
        // What it is now that is in its place, nobody has to guess.
        let expected = if how.starts_with("SET") { Loss::Deleted } else { Loss::Gone };
        assert_eq!((why, guard.why_lost()), (expected, Some(expected)), "{how}");
        assert!(guard.lease_left().is_zero(), "{how}");
        assert!(guard.release().await.unwrap_err().is_lost(), "{how}");
        drop(stage);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_left_to_its_lease_is_held_for_so_long_by_nobody() {
    let mut stage = Stage::set().await;
    let guard = stage.client.lock("k").acquire().await.unwrap();
    let owner = guard.owner().to_owned();
    guard.release_in(Duration::from_secs(3)).await.unwrap();
    assert_eq!(stage.owner_of("k"), Some(owner));
    assert!(stage.client.lock("k").try_acquire().await.unwrap().is_none());
    let asked = Instant::now();
    let next = soon(stage.client.lock("k").acquire()).await.unwrap();
    assert!(asked.elapsed() > Duration::from_secs(1), "after {:?}", asked.elapsed());
    // No time is none to wait for, and a lock that is lost is nobody's to leave.
    next.release_in(Duration::ZERO).await.unwrap();
    assert!(stage.is_free("k"));
    let lost = stage.client.lock("k").acquire().await.unwrap();
    stage.control.run("LOCK.FORCERELEASE k");
    assert!(lost.release_in(Duration::from_secs(3)).await.unwrap_err().is_lost());
    stage.assert_nothing_is_left().await;
}
