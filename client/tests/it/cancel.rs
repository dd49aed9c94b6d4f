//! Futures that are dropped before they are done leave nothing behind.

use super::{SOON, Stage, soon};
use harness::{Server, Value, observe, wait};
use kvlock::{Client, Error, Guard};
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
#[derive(Default)]
struct Tally {
    done: usize,
    dropped: usize,
}

impl Tally {
    fn count<T>(&mut self, outcome: Option<Result<T, Error>>) -> Option<T> {
        match outcome {
            Some(done) => {
                self.done += 1;
                Some(done.unwrap())
            }
            None => {
                self.dropped += 1;
                None
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_is_dropped_at_any_point_while_the_lock_is_free_leaves_nothing() {
    let mut stage = Stage::set().await;
    let mut tally = Tally::default();
    for round in 0..1000 {
        let lock = stage.client.lock("k");
        // A lock that an earlier round has left taken would hold this up.
        let guard: Option<Guard> = tally.count(soon(after(1 + round % 4, lock.acquire())).await);
        drop(guard);
        if round % 100 == 99 {
            stage.assert_nothing_is_left();
        }
    }
    assert!(tally.done > 50 && tally.dropped > 50, "{} done, {}", tally.done, tally.dropped);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_is_dropped_at_any_point_of_a_race_with_the_grant_leaves_nothing() {
    let mut stage = Stage::set().await;
    let mut tally = Tally::default();
    for round in 0..1000_usize {
        let lock = stage.client.lock("k");
        let holder = soon(lock.acquire()).await.unwrap();
        let waiter = tokio::spawn({
            let lock = lock.clone();
            async move { after(1 + round % 7, lock.acquire()).await }
        });
        match round % 4 {
            0 => {}
            1 => tokio::task::yield_now().await,
            2 => in_line_or(&mut stage, || waiter.is_finished()),
            _ => yield_often(round % 97).await,
        }
        holder.release().await.unwrap();
        drop(tally.count(soon(waiter).await.unwrap()));
        if round % 100 == 99 {
            stage.assert_nothing_is_left();
        }
    }
    assert!(tally.done > 20 && tally.dropped > 50, "{} done, {}", tally.done, tally.dropped);
}

async fn yield_often(times: usize) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

/// Waits until somebody waits for `k`, or it is in vain.
fn in_line_or(stage: &mut Stage, in_vain: impl Fn() -> bool) {
    wait::until("somebody waits", SOON, || {
        let waiters = stage.control.run("LOCK.INFO k").field("waiters").integer();
        if waiters > 0 || in_vain() { Ok(()) } else { Err(waiters.to_string()) }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_is_dropped_while_it_waits_is_withdrawn_at_once() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let lock = stage.client.lock("k");
    let waiters: Vec<_> = (0..5)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await })
        })
        .collect();
    observe::wait_for_waiters(&mut stage.control, "k", 5);
    for waiter in waiters {
        waiter.abort();
    }
    soon(stage.client.settled()).await;
    observe::wait_for_waiters(&mut stage.control, "k", 0);
    stage.control.run("LOCK.RELEASE k somebody");
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_is_dropped_in_the_line_of_its_client_holds_nobody_up() {
    let mut stage = Stage::set().await;
    for round in 0..200 {
        let lock = stage.client.lock("k");
        let holder = soon(lock.acquire()).await.unwrap();
        let tasks: Vec<_> = (0..4)
            .map(|task| {
                let lock = lock.clone();
                let polls = if task == 3 { 1000 } else { 1 + (round + task) % 6 };
                // Whoever is granted it makes room for the next.
                let work = async move { lock.acquire().await.map(drop) };
                tokio::spawn(after(polls, work))
            })
            .collect();
        yield_often(round % 23).await;
        drop(holder);
        let mut tally = Tally::default();
        for task in tasks {
            tally.count(soon(task).await.unwrap());
        }
        assert!(tally.done > 0);
    }
    stage.assert_nothing_is_left();
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
    assert!(tally.done > 50 && tally.dropped > 50, "{} done, {}", tally.done, tally.dropped);
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_dropped_goes_on_in_the_background() {
    let mut stage = Stage::set().await;
    for polls in 1..4 {
        let guard = soon(stage.client.lock("k").acquire()).await.unwrap();
        after(polls, guard.release()).await;
        soon(stage.client.settled()).await;
        assert!(stage.is_free("k"));
    }
    let guard = soon(stage.client.lock("k").acquire()).await.unwrap();
    drop(guard.release()); // never polled
    soon(stage.client.settled()).await;
    assert!(stage.is_free("k"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_who_settles_waits_for_those_in_line() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let lock = stage.client.lock("k");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    drop(soon(stage.client.lock("other").acquire()).await.unwrap());
    soon(stage.client.settled()).await;
    assert!(stage.is_free("other") && !waiter.is_finished());
    waiter.abort();
    stage.control.run("LOCK.RELEASE k somebody");
    drop(soon(waiter).await);
    stage.assert_nothing_is_left();
}

#[test]
fn a_guard_can_be_dropped_outside_the_runtime_and_after_it() {
    let server = Server::start();
    let mut control = server.connect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (client, inside, after) = runtime.block_on(async {
        let client = Client::connect(server.url()).await.unwrap();
        let inside = client.lock("inside").acquire().await.unwrap();
        let after = client.lock("after").acquire().await.unwrap();
        (client, inside, after)
    });
    // No runtime here, but one that goes on elsewhere.
    drop(inside);
    runtime.block_on(soon(client.settled()));
    assert_eq!(control.run("EXISTS inside"), Value::Integer(0));
    drop(runtime);
    drop(after);
    drop(client);
    assert_eq!(control.run("EXISTS after"), Value::Integer(1));
    assert!(control.run("PTTL after").integer() > 0, "it ends by itself");
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
