//! Futures that are dropped before they are done leave nothing behind.

use super::{SOON, Stage, ok, quorum, soon, visit};
use harness::{Server, Value, observe, wait};
use kvlock::{Client, Error, MultiLock};
use nix::sys::signal::Signal;
use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::timeout;

/// Time after which a polled call is dropped.
const MOMENT: Duration = Duration::from_millis(50);

/// Polls a future at most `polls` times, for at most [`MOMENT`]. Then drops it, or its result. Returns
/// whether it was done.
async fn polled<T: Debug>(mut polls: usize, call: impl Future<Output = Result<T, Error>>) -> bool {
    let mut call = pin!(call);
    let outcome = poll_fn(|context| {
        polls -= 1;
        match call.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    timeout(MOMENT, outcome).await.ok().flatten().map(Result::unwrap).is_some()
}

/// Calls that can wait for other clients.
const WAITS: [&str; 8] =
    ["acquire", "share", "all of two", "permits", "latch", "campaign", "lead", "majority"];

/// Other calls that need more than one poll.
const OTHERS: [&str; 12] = [
    "try",
    "hand-off",
    "all permits",
    "re-enter",
    "extend",
    "downgrade",
    "release one",
    "release",
    "observe",
    "proclaim",
    "resign",
    "release the majority",
];

/// Runs a call of [`WAITS`] or [`OTHERS`] with at most `polls` polls. Returns whether it was done.
async fn does(what: &str, polls: usize, client: &Client, majority: &quorum::Stage) -> bool {
    let me = client.owner();
    let lock = client.lock("k").owner(&me);
    let election = client.election("k").value("a");
    let majority = majority.quorum.lock("k");
    let hold = || async { ok(lock.acquire()).await };
    let lead = || async { ok(election.campaign()).await };
    match what {
        "acquire" => polled(polls, lock.acquire()).await,
        "share" => polled(polls, lock.shared().acquire()).await,
        "all of two" => {
            let two = ["a", "k"].map(|key| client.lock(key));
            polled(polls, MultiLock::new(two).unwrap().acquire()).await
        }
        "permits" => polled(polls, client.semaphore("s").acquire()).await,
        "latch" => polled(polls, client.latch("l").wait()).await,
        "campaign" => polled(polls, election.campaign()).await,
        "lead" => polled(polls, election.lead(|_| yield_now())).await,
        "majority" => polled(polls, majority.acquire()).await,
        "try" => polled(polls, lock.try_acquire()).await,
        "hand-off" => {
            let (holder, next) = (hold().await, client.lock("k"));
            // The acquire is polled first. The release does not wait for it.
            let (done, released) = tokio::join!(polled(polls, next.acquire()), holder.release());
            released.unwrap();
            done
        }
        "all permits" => polled(polls, client.semaphore("s").try_drain()).await,
        "re-enter" => {
            let outer = hold().await;
            let done = polled(polls, lock.acquire()).await;
            soon(client.settled()).await;
            assert_eq!((outer.holds(), outer.is_lost()), (1, false));
            assert_eq!(ok(lock.hold_count(&me)).await, 1);
            done
        }
        "extend" => {
            let mut held = hold().await;
            let done = polled(polls, held.extend(Duration::from_secs(20))).await;
            assert!(!held.is_lost());
            done
        }
        "downgrade" => polled(polls, hold().await.downgrade()).await,
        "release one" => {
            let (outer, inner) = (hold().await, hold().await);
            let done = polled(polls, inner.release()).await;
            ok(outer.release()).await;
            done
        }
        "release" => polled(polls, hold().await.release()).await,
        "observe" => polled(polls, election.observe()).await,
        "proclaim" => {
            let leader = lead().await;
            let done = polled(polls, leader.proclaim("b")).await;
            assert!(!leader.is_lost());
            done
        }
        "resign" => polled(polls, lead().await.resign()).await,
        "release the majority" => {
            let held = ok(majority.acquire()).await;
            polled(polls, held.release()).await
        }
        _ => unreachable!("{what}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_future_dropped_at_any_point_leaves_nothing() {
    let (mut stage, majority) = (Stage::set().await, quorum::Stage::set(3).await);
    ok(stage.client.semaphore("s").set(1)).await;
    for what in WAITS.into_iter().chain(OTHERS) {
        let (mut done, mut rounds) = (0, 0);
        while rounds < 180 || done < 10 || done > rounds - 10 {
            done += usize::from(does(what, 1 + rounds % 12, &stage.client, &majority).await);
            rounds += 1;
            // Waits for the end of background work too.
            soon(stage.client.settled()).await;
            assert_eq!(stage.control.run("EXISTS k a"), Value::Integer(0), "{what}");
            let used = stage.control.run("SEM.INFO s").field("used").integer();
            assert_eq!(used, 0, "{what}");
            assert!(rounds < 10_000, "{what}: {done} were done before they were dropped");
        }
    }
    soon(majority.quorum.settled()).await;
    stage.control.run("DEL s");
    wait::until("nobody observes", SOON, || {
        let info = stage.control.run("LOCK.INFO k").to_string();
        if info.contains("observers") { Err(info) } else { Ok(()) }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_wait_leaves_the_queue() {
    let (mut stage, majority) = (Stage::set().await, quorum::Stage::set(3).await);
    stage.taken("k");
    majority.taken_at([0, 1]);
    stage.control.run("SEM.SET s 1");
    stage.control.run("SEM.ACQUIRE s somebody 1 600000");
    stage.control.run("LATCH.SET l 1");
    for what in WAITS {
        for polls in [1, 2, 3, 4, 5, 6, 8, 11, 16, 32] {
            assert!(!does(what, polls, &stage.client, &majority).await, "{what}");
        }
        soon(stage.client.settled()).await;
        observe::wait_for_info(&mut stage.control, "kvlock_waiters", 0);
        assert_eq!(stage.control.run("EXISTS a"), Value::Integer(0), "{what}");
    }
    stage.control.run("DEL k s l");
    [0, 1].into_iter().for_each(|server| drop(majority.connect(server).run("DEL k")));
}

/// The lease may be as long as the extension, but no later call waits for its reply.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_extension_delays_no_later_call() {
    let stage = Stage::set().await;
    let mut guard = ok(stage.client.lock("k").acquire()).await;
    stage.server.signal(Signal::SIGSTOP);
    let extension = guard.extend(Duration::from_secs(20));
    assert!(timeout(MOMENT, extension).await.is_err());
    stage.server.signal(Signal::SIGCONT);
    ok(guard.release_in(Duration::from_secs(1))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settled_does_not_wait_for_queued_waits() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let waiter = stage.in_line(stage.client.lock("k"));
    // A release that is never polled.
    drop(ok(stage.client.lock("other").acquire()).await.release());
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
    // This thread has no runtime; the client's runtime exists elsewhere.
    drop(guard);
    runtime.block_on(soon(client.settled()));
    assert_eq!(server.connect().run("EXISTS k"), Value::Integer(0));
}

#[test]
fn acquires_dropped_by_the_end_of_the_runtime_are_harmless() {
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
    // The waiters are removed when their session has expired.
    wait::until_is("the session is gone", SOON, 0, || {
        observe::info_number(&mut control, "kvlock_sessions")
    });
    observe::wait_for_waiters(&mut control, "k", 0);
    observe::wait_for_waiters(&mut control, "other", 0);

    // Another runtime continues with the same client and guard.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        assert!(!mine.is_lost());
        ok(mine.release()).await;
        visit(&client.lock("mine")).await;
    });
}

/// A user without the right to cancel a wait may release a granted lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_released_even_if_the_wait_cannot_be_cancelled() {
    let mut stage =
        Stage::with(Client::builder().confirm(true).lease(Duration::from_secs(600))).await;
    stage.control.run("ACL SETUSER default -lock.cancel");
    stage.taken("k");
    let waiter = stage.in_line(stage.client.lock("k"));
    // The client must confirm the grant, but the server delays its confirmation.
    for line in ["MULTI", "LOCK.RELEASE k somebody", "CLIENT PAUSE 600000 WRITE", "EXEC"] {
        assert!(!stage.control.run(line).is_error());
    }
    wait::until("it is being confirmed", SOON, || match stage.control.run("CLIENT LIST").text() {
        list if list.contains("cmd=lock.renew") => Ok(()),
        list => Err(list),
    });
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    stage.control.run("CLIENT UNPAUSE");
    soon(stage.client.settled()).await;
    stage.wait_until_free("k");
}
