//! Futures that are dropped before they are done leave nothing behind.

use super::{SOON, Stage, soon};
use harness::{Server, Value, observe, wait};
use kvlock::{Client, Error};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A future that is dropped when it has been polled so many times without being done.
pub(super) struct Dropped<F> {
    future: Option<Pin<Box<F>>>,
    polls: usize,
}

pub(super) fn after<F>(polls: usize, future: F) -> Dropped<F> {
    Dropped { future: Some(Box::pin(future)), polls }
}

impl<F: Future> Future for Dropped<F> {
    /// None if it was dropped.
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.future.as_mut().expect("polled after it was done");
        if let Poll::Ready(done) = future.as_mut().poll(context) {
            self.future = None;
            return Poll::Ready(Some(done));
        }
        self.polls -= 1;
        if self.polls == 0 {
            self.future = None;
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

/// Counts how it went, so that a test can show that it has seen both.
#[derive(Debug, Default)]
pub(super) struct Tally {
    done: usize,
    dropped: usize,
}

impl Tally {
    pub(super) fn count<T>(&mut self, outcome: Option<Result<T, Error>>) -> Option<T> {
        let count = if outcome.is_some() { &mut self.done } else { &mut self.dropped };
        *count += 1;
        outcome.map(Result::unwrap)
    }

    pub(super) fn assert_both(&self, at_least: usize) {
        assert!(self.done > at_least && self.dropped > at_least, "{self:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_is_dropped_at_any_point_of_a_race_with_the_grant_leaves_nothing() {
    let mut stage = Stage::set().await;
    let (mut tally, mut free) = (Tally::default(), Tally::default());
    for round in 0..1000_usize {
        let lock = stage.client.lock("k");
        // While it is free, too: a lock that is left taken would hold up the next.
        drop(free.count(soon(after(1 + round % 4, lock.acquire())).await));
        let holder = soon(lock.acquire()).await.unwrap();
        let waiter = tokio::spawn({
            let lock = lock.clone();
            async move { after(1 + round % 7, lock.acquire()).await }
        });
        match round % 4 {
            0 => {}
            1 => tokio::task::yield_now().await,
            2 => in_line_or(&mut stage, || waiter.is_finished()),
            _ => {
                for _ in 0..round % 97 {
                    tokio::task::yield_now().await;
                }
            }
        }
        holder.release().await.unwrap();
        drop(tally.count(soon(waiter).await.unwrap()));
        if round % 100 == 99 {
            stage.assert_nothing_is_left();
        }
    }
    tally.assert_both(20);
    free.assert_both(50);
}

/// Waits until somebody waits for `k`, or it is in vain.
fn in_line_or(stage: &mut Stage, in_vain: impl Fn() -> bool) {
    wait::until("somebody waits", SOON, || {
        let waiters = stage.control.run("LOCK.INFO k").field("waiters").integer();
        if waiters > 0 || in_vain() { Ok(()) } else { Err(waiters.to_string()) }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reentry_a_renewal_and_a_release_can_be_dropped_at_any_point() {
    let mut stage = Stage::set().await;
    let mut tally = Tally::default();
    for round in 0..600_usize {
        let me = stage.client.owner();
        let lock = stage.client.lock("k").owner(&me);
        let mut outer = soon(lock.acquire()).await.unwrap();
        let polls = 1 + round / 3 % 4;
        match round % 3 {
            0 => {
                let inner = tally.count(after(polls, lock.acquire()).await);
                let holds = 1 + usize::from(inner.is_some());
                assert_eq!(outer.holds(), holds);
                drop(inner);
            }
            1 => {
                let lease = Duration::from_secs(20);
                tally.count(after(polls, outer.extend(lease)).await);
                assert!(!outer.is_lost());
            }
            _ => {
                let inner = soon(lock.acquire()).await.unwrap();
                tally.count(after(polls, inner.release()).await);
            }
        }
        soon(outer.release()).await.unwrap();
        soon(stage.client.settled()).await;
        assert!(stage.is_free("k"), "round {round}: {:?}", stage.owner_of("k"));
    }
    tally.assert_both(50);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_who_settles_waits_for_those_in_line() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let waiter = stage.in_line(stage.client.lock("k"));
    // A release that is never polled.
    drop(soon(stage.client.lock("other").acquire()).await.unwrap().release());
    soon(stage.client.settled()).await;
    assert!(stage.is_free("other") && !waiter.is_finished());
    waiter.abort();
}

#[test]
fn a_guard_can_be_dropped_outside_the_runtime() {
    let server = Server::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (client, guard) = runtime.block_on(async {
        let client = Client::connect(server.url()).await.unwrap();
        let guard = client.lock("k").acquire().await.unwrap();
        (client, guard)
    });
    // No runtime here, but one that goes on elsewhere.
    drop(guard);
    runtime.block_on(soon(client.settled()));
    assert_eq!(server.connect().run("EXISTS k"), Value::Integer(0));
}

#[test]
fn acquires_that_the_end_of_the_runtime_drops_do_no_harm() {
    let server = Server::start();
    let mut control = server.connect();
    control.run("LOCK.ACQUIRE k somebody 600000");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(Client::connect(server.url())).unwrap();
    let mine = runtime.block_on(client.lock("mine").acquire()).unwrap();
    for key in ["k", "k", "other", "other"] {
        let lock = client.lock(key);
        runtime.spawn(async move {
            let guard = lock.acquire().await;
            std::future::pending::<()>().await;
            drop(guard);
        });
    }
    observe::wait_for_waiters(&mut control, "k", 2);
    observe::wait_for_waiters(&mut control, "other", 1);
    drop(runtime);
    // Their places are passed over, and given up when nobody has come back for them.
    wait::until_is("the session is gone", SOON, 0, || {
        observe::info_number(&mut control, "kvlock_sessions")
    });
    observe::wait_for_waiters(&mut control, "k", 0);
    observe::wait_for_waiters(&mut control, "other", 0);

    // Another runtime goes on with the same client and guard.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        assert!(!mine.is_lost());
        soon(mine.release()).await.unwrap();
        soon(client.lock("mine").acquire()).await.unwrap().release().await.unwrap();
    });
}
