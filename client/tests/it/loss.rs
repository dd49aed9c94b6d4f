//! Holders learn in time that a lock is lost.

use super::{
    LONG, SOON, Stage, Suspended, assert_matches, calls, ok, soon, suspend_during, wait_for_more,
};
use harness::observe;
use harness::proxy::Moment;
use kvlock::{Client, Error, Loss};
use std::task::Poll;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn after_a_suspend_a_guard_is_renewed_or_lost_before_the_work_continues() {
    let clock = Suspended::new();
    let mut stage = Stage::with(Client::builder().clock(clock.clone())).await;
    let guard = stage.client.lock("k").acquire().await.unwrap();
    clock.suspend(Duration::from_secs(20));
    assert!(!guard.is_lost());
    // The next renewal extends the lease, of which a third is left.
    wait_for_more(Duration::from_secs(25), || guard.lease_left());
    let run = |work| guard.run_until_lost(work);
    assert_matches!(suspend_during(&clock, run).await, (Poll::Ready(Err(Error::Lost(_))), false));
    assert!(guard.is_lost() && guard.lease_left().is_zero());
    assert_eq!(soon(guard.lost()).await, Loss::Expired);
    // On the server, the owner still has the lock.
    assert_eq!(stage.owner_of("k").as_deref(), Some(guard.owner()));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_loss_is_noticed_with_the_next_renewal() {
    let all = ["DEL k", "FLUSHALL", "SET k something", "RENAME k other", "LOCK.FORCERELEASE k"];
    for how in all {
        let clock = Suspended::new();
        let mut stage = Stage::with(clock.renewing()).await;
        let guard = stage.client.lock("k").acquire().await.unwrap();
        stage.control.run(how);
        clock.suspend(LONG / 2);
        let why = soon(guard.lost()).await;
        // Without observing the lock, the client knows a reason only if the key holds something else.
        let expected = if how.starts_with("SET") { Loss::Deleted } else { Loss::Forgotten };
        assert_eq!((why, guard.why_lost()), (expected, Some(expected)), "{how}");
        assert!(guard.lease_left().is_zero(), "{how}");
        assert!(guard.release().await.unwrap_err().is_lost(), "{how}");
        stage.control.run("FLUSHALL");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_lock_stays_held_until_its_lease_ends() {
    let mut stage = Stage::set().await;
    let guard = stage.client.lock("k").acquire().await.unwrap();
    let owner = guard.owner().to_owned();
    guard.release_in(Duration::from_secs(3)).await.unwrap();
    assert_eq!(stage.owner_of("k"), Some(owner));
    assert!(stage.client.lock("k").try_acquire().await.unwrap().is_none());
    let asked = Instant::now();
    let next = ok(stage.client.lock("k").acquire()).await;
    assert!(asked.elapsed() > Duration::from_secs(1), "after {:?}", asked.elapsed());
    // A delay of zero releases the lock at once. A lost guard has nothing to release.
    next.release_in(Duration::ZERO).await.unwrap();
    assert!(stage.is_free("k"));
    let lost = stage.client.lock("k").acquire().await.unwrap();
    stage.control.run("LOCK.FORCERELEASE k");
    assert!(lost.release_in(Duration::from_secs(3)).await.unwrap_err().is_lost());
}

/// With a slow network the lock is free at the server before the answer arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_stays_held_for_less_than_a_round_trip_is_not_lost() {
    let (mut stage, proxy) = Stage::behind(Client::builder()).await;
    let client = stage.client.clone();
    let delay = Duration::from_millis(60);
    let locks =
        [client.lock("k"), client.lock("k").shared(), client.lock("k").and(["l"]).under(["above"])];
    for lock in locks {
        for time in [delay / 3, delay * 3 / 2, delay * 5 / 2] {
            let guard = ok(lock.acquire()).await;
            proxy.delay(delay, delay);
            ok(guard.release_in(time)).await;
            proxy.delay(Duration::ZERO, Duration::ZERO);
            stage.assert_nothing_is_left();
        }
        // The connection breaks, and the lock is free before the second renewal arrives.
        let guard = ok(lock.acquire()).await;
        proxy.reset("LOCK.RENEW", Moment::BeforeTheAnswer);
        proxy.delay(delay, delay);
        ok(guard.release_in(delay / 3)).await;
        proxy.delay(Duration::ZERO, Duration::ZERO);
        assert!(proxy.has_reset());
        // A lock that is taken away is lost.
        let guard = ok(lock.acquire()).await;
        stage.control.run("LOCK.FORCERELEASE k");
        assert!(guard.release_in(delay).await.unwrap_err().is_lost());
        soon(client.settled()).await;
    }
}

/// The server refuses writes for longer than the lock is to stay held.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_for_a_moment_does_not_lose_a_lock_that_stays_held_for_a_while() {
    let mut stage = Stage::set().await;
    let guard = ok(stage.client.lock("k").acquire()).await;
    stage.control.run("CONFIG SET min-replicas-to-write 1");
    let time = Duration::from_millis(200);
    let release = tokio::spawn(guard.release_in(time));
    observe::let_pass(&mut stage.control, 3 * time);
    assert!(!release.is_finished());
    stage.control.run("CONFIG SET min-replicas-to-write 0");
    ok(release).await.unwrap();
}

/// The client rarely repeats a `LOCK.OBSERVE` that the server refuses.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_cannot_be_observed_is_held_and_rarely_checked() {
    let mut stage = Stage::set().await;
    stage.control.run("ACL SETUSER default -lock.observe");
    let guard = ok(stage.client.lock("k").observed().acquire()).await;
    observe::let_pass(&mut stage.control, Duration::from_secs(8));
    let refused = observe::info_field(&mut stage.control, "cmdstat_lock.observe").unwrap();
    let refused = refused.split("rejected_calls=").nth(1).unwrap().split(',').next().unwrap();
    let refused: u32 = refused.parse().unwrap();
    assert!((1..=6).contains(&refused), "{refused}");
    assert!(!guard.is_lost());
    ok(guard.release()).await;
}

/// When the server reports the change, the client checks the lock with a renewal, even if the lease is
/// fixed.
#[tokio::test(flavor = "multi_thread")]
async fn an_observed_fixed_lease_is_lost_at_once_when_taken_away() {
    let mut stage = Stage::set().await;
    let guard = ok(stage.client.lock("k").fixed_lease(LONG).observed().acquire()).await;
    observe::wait_for_info(&mut stage.control, "kvlock_observers", 1);
    stage.control.run("LOCK.FORCERELEASE k");
    assert_eq!(soon(guard.lost()).await, Loss::Forced);
}

/// The server reports the lock as shared before and after.
#[tokio::test(flavor = "multi_thread")]
async fn an_observed_share_is_lost_at_once_when_another_reader_takes_its_place() {
    let mut stage = Stage::set().await;
    let lock = stage.client.lock("k").shared().fixed_lease(LONG).observed();
    let guard = ok(lock.acquire()).await;
    observe::wait_for_info(&mut stage.control, "kvlock_observers", 1);
    let place = "LOCK.ACQUIRE k somebody 600000 SHARED";
    for command in ["MULTI", "LOCK.FORCERELEASE k", place, "EXEC"] {
        stage.control.run(command);
    }
    assert_eq!(soon(guard.lost()).await, Loss::Forced);
}

/// The guard that is left has a fixed lease that has ended. The lock is still held: a released guard set a longer
/// lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_reentry_past_its_end_is_checked_too() {
    let clock = Suspended::new();
    let mut stage = Stage::with(clock.renewing()).await;
    let me = stage.client.owner();
    let lock = stage.client.lock("k").owner(&me).observed();
    let outer = ok(lock.clone().acquire()).await;
    let inner = ok(lock.fixed_lease(SOON).acquire()).await;
    ok(outer.release()).await;
    clock.suspend(2 * SOON);
    observe::wait_for_info(&mut stage.control, "kvlock_observers", 1);
    assert!(!inner.is_lost());
    stage.control.run("LOCK.FORCERELEASE k");
    assert_eq!(soon(inner.lost()).await, Loss::Forced);
}

/// A session that is used for nothing else stays open for an observation, also if nothing happens to the lock.
#[tokio::test(flavor = "multi_thread")]
async fn an_observation_keeps_its_session_open() {
    let ttl = Duration::from_secs(3);
    let mut stage =
        Stage::with(Client::builder().session_ttl(ttl).session_idle(Duration::ZERO)).await;
    let guard = ok(stage.client.lock("k").observed().acquire()).await;
    observe::wait_for_info(&mut stage.control, "kvlock_observers", 1);
    let opened = calls(&mut stage.control, "session.open");
    // Several answers to `SESSION.NEXT` come meanwhile.
    observe::let_pass(&mut stage.control, ttl);
    assert_eq!((opened, calls(&mut stage.control, "session.open")), (1, 1));
    ok(guard.release()).await;
    observe::wait_for_info(&mut stage.control, "kvlock_sessions", 0);
}

/// A watch can be moved into tasks, because it borrows nothing from the guard.
#[tokio::test(flavor = "multi_thread")]
async fn spawned_tasks_are_notified_of_a_loss_and_of_the_end_of_the_guard() {
    let clock = Suspended::new();
    let mut stage = Stage::with(clock.renewing()).await;
    let guard = stage.client.lock("k").acquire().await.unwrap();
    let other = stage.client.lock("m").acquire().await.unwrap();
    let watch = guard.watch();
    let works =
        tokio::spawn(async move { watch.run_until_lost(std::future::pending::<()>()).await });
    let (ended, released) = (guard.watch(), other.watch());
    let ended = tokio::spawn(async move { ended.clone().ended().await });
    let released = tokio::spawn(async move { released.ended().await });
    other.release().await.unwrap();
    assert_eq!(ok(released).await, None);
    stage.control.run("LOCK.FORCERELEASE k");
    clock.suspend(LONG / 2);
    assert_matches!(ok(works).await, Err(Error::Lost(Loss::Forgotten)));
    assert_eq!(ok(ended).await, Some(Loss::Forgotten));
    let watch = guard.watch();
    assert!(matches!(guard.release().await, Err(Error::Lost(Loss::Forgotten))));
    assert_eq!((watch.ended().await, watch.is_lost()), (Some(Loss::Forgotten), true));
    let guard = stage.client.lock("k").acquire().await.unwrap();
    let watch = guard.watch();
    drop(guard);
    assert_eq!(soon(watch.ended()).await, None);
    assert_eq!(watch.why_lost(), None);
}
