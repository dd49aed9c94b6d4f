//! Connections that break and servers that stop: no hold is counted twice, and no state is left.

use super::{
    LONG, SOON, Stage, Suspended, assert_matches, assert_served, calls, ok, soon, visit,
    wait_for_more, wait_for_renewals,
};
use crate::story::{ALONE, ELECTION, PERMITS, SHARED, Story};
use harness::proxy::{Moment, Proxy};
use harness::{Connection, Server, Value, cmd, observe, wait};
use kvlock::{Client, Error, Loss, Token};
use nix::sys::signal::Signal;
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinSet;

const EVERY: [Moment; 4] =
    [Moment::BeforeTheServer, Moment::BeforeTheAnswer, Moment::InTheAnswer, Moment::AfterTheAnswer];

/// The default lease.
const LEASE: Duration = Duration::from_secs(30);

/// Commands that a client repeats after a reset, each with a chapter of the story that sends it.
const REPEATED: [(&str, &str); 10] = [
    ("LOCK.ACQUIRE", ALONE),
    ("LOCK.ACQUIRE", SHARED),
    ("LOCK.WAIT", ALONE),
    ("LOCK.CANCEL", ALONE),
    ("LOCK.RELEASE", ALONE),
    ("LOCK.RELEASE", SHARED),
    ("SESSION.OPEN", ALONE),
    ("SESSION.NEXT", ALONE),
    ("LOCK.OBSERVE", ELECTION),
    ("SEM.ACQUIRE", PERMITS),
];

/// The reset is at the first occurrence of the command, at the second, and so on.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_around_any_command_is_harmless() {
    let server = Server::start();
    let mut stories = JoinSet::new();
    for (command, chapter) in REPEATED {
        let (proxy, there) = (Proxy::before(&server), server.port());
        stories.spawn(async move {
            for (passed, moment) in (0..).flat_map(|passed| EVERY.map(|moment| (passed, moment))) {
                proxy.reset_after(passed, command, moment);
                let client = Client::connect_lazy(proxy.url()).unwrap();
                let slot = format!("{} {passed} {moment:?}", proxy.port());
                let mut story = Story { client, there: Connection::open(there).unwrap(), slot };
                story.tell(chapter).await;
                if !proxy.has_reset() {
                    return (chapter, command, passed);
                }
            }
            unreachable!("a story has an end")
        });
    }
    while let Some(told) = stories.join_next().await {
        let (chapter, command, times) = told.unwrap();
        assert!(times > 0, "{command} is not in {chapter}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn try_acquire_survives_a_connection_that_was_closed_while_idle() {
    let mut stage = Stage::set().await;
    visit(&stage.client.lock("k")).await;
    stage.control.run("CLIENT KILL TYPE normal SKIPME yes");
    ok(stage.client.lock("k").try_acquire()).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_arrives_after_the_release_is_released_again() {
    let (mut stage, proxy) = Stage::behind(Client::builder()).await;
    proxy.reset("LOCK.ACQUIRE", Moment::OnItsWay);
    visit(&stage.client.lock("k")).await;
    assert!(stage.is_free("k"));
    // The first repetition is sent at once. Only one after the acquire releases the lock.
    wait_for_more(1, || calls(&mut stage.control, "lock.release"));
    // The lock was granted, and its lease would outlast every wait of this test.
    assert_eq!(proxy.deliver()[1], Value::Integer(1));
    stage.assert_nothing_is_left();
}

/// A repetition could set a latch that another client has set and counted down since.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_around_the_setting_of_a_latch_is_an_error_and_sets_it_once() {
    let (mut stage, proxy) = Stage::behind(Client::builder()).await;
    for (moment, is_set) in [(Moment::BeforeTheServer, 0), (Moment::BeforeTheAnswer, 1)] {
        proxy.reset("LATCH.SET", moment);
        let answer = soon(stage.client.latch("l").set(2)).await;
        assert!(proxy.has_reset());
        assert_matches!(answer, Err(Error::Connection(_)));
        wait::until_is("it is as it will be", SOON, Value::Integer(is_set), || {
            stage.control.run("EXISTS l")
        });
        stage.control.run("DEL l");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_release_of_one_hold_does_not_remove_a_later_hold() {
    let (stage, proxy) = Stage::behind(Client::builder()).await;
    let me = stage.client.owner();
    let lock = stage.client.lock("k").owner(&me);
    let first = ok(lock.acquire()).await;
    let second = ok(lock.acquire()).await;
    (0..2).for_each(|_| proxy.reset("LOCK.RELEASE", Moment::BeforeTheAnswer));
    assert_matches!(soon(second.release()).await.unwrap_err(), Error::Connection(_));
    let third = ok(lock.acquire()).await;
    soon(stage.client.settled()).await;
    assert_eq!(ok(lock.hold_count(&me)).await, 2);
    for guard in [third, first] {
        ok(guard.release()).await;
    }
}

/// The work was done while the lock was held, so the caller gets its result.
#[tokio::test(flavor = "multi_thread")]
async fn lost_replies_to_the_release_do_not_lose_the_works_result() {
    let (mut stage, proxy) = Stage::behind(Client::builder()).await;
    (0..2).for_each(|_| proxy.reset("LOCK.RELEASE", Moment::BeforeTheAnswer));
    let done = ok(stage.client.lock("k").with(async |_| 42)).await;
    assert!(done == 42 && proxy.has_reset());
    soon(stage.client.settled()).await;
    let mut there = stage.server.connect();
    let lock = stage.client.lock("k");
    let lost = lock.with(async |_| there.run("LOCK.FORCERELEASE k"));
    assert!(soon(lost).await.unwrap_err().is_lost());
    assert!(stage.is_free("k"));
}

/// The lock was detached for another process, which can try again.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_could_not_be_adopted_stays_as_it_is() {
    let (mut stage, proxy) = Stage::behind(Client::builder()).await;
    for moment in [Moment::BeforeTheServer, Moment::BeforeTheAnswer] {
        let lock = stage.client.lock("k").lease(LONG);
        let guard = ok(lock.acquire()).await;
        let (owner, token) = (guard.owner().to_owned(), guard.token());
        ok(guard.detach()).await;
        (0..2).for_each(|_| proxy.reset("LOCK.ACQUIRE", moment));
        let told = soon(lock.adopt(&owner, token)).await.unwrap_err();
        assert!(told.is_retryable() && proxy.has_reset(), "{told}");
        soon(stage.client.settled()).await;
        assert_eq!(stage.owner_of("k").as_deref(), Some(&*owner));
        // If the future is dropped, the lock does not change either.
        let mut dropped = Box::pin(lock.adopt(&owner, token));
        let polled = std::future::poll_fn(|context| Poll::Ready(dropped.as_mut().poll(context)));
        assert!(polled.await.is_pending());
        drop(dropped);
        soon(stage.client.settled()).await;
        // Nor does it if it cannot be bound.
        stage.control.run("ACL SETUSER default -session.open");
        let refused = soon(lock.clone().bound().adopt(&owner, token)).await;
        assert_matches!(refused, Err(Error::Denied(_)));
        soon(stage.client.settled()).await;
        assert_eq!(stage.owner_of("k").as_deref(), Some(&*owner));
        stage.control.run("ACL SETUSER default +session.open");
        let guard = ok(lock.adopt(&owner, token)).await;
        ok(guard.release()).await;
        assert!(soon(lock.adopt(&owner, token)).await.unwrap_err().is_lost());
        assert!(stage.is_free("k"), "nothing is granted anew");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_arrives_after_a_reentry_loses_nothing() {
    let (stage, proxy) = Stage::behind(Client::builder()).await;
    let me = stage.client.owner();
    let lock = stage.client.lock("k").owner(&me).lease(2 * LEASE);
    let first = ok(lock.acquire()).await;
    let second = ok(lock.acquire()).await;
    proxy.reset("LOCK.RELEASE", Moment::OnItsWay);
    ok(second.release()).await;
    let third = ok(lock.acquire()).await;
    assert_eq!(proxy.deliver(), Value::Integer(1));
    // The server counts one hold less than there are guards.
    let fourth = ok(lock.lease(LEASE).acquire()).await;
    assert!(fourth.lease_left() > LEASE, "no shorter than what the others want: {fourth:?}");
    for guard in [fourth, third, first] {
        ok(guard.release()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn validity_never_exceeds_what_a_late_shorter_renewal_leaves() {
    let (mut stage, proxy) = Stage::behind(Client::builder()).await;
    let mut guard = ok(stage.client.lock("k").acquire()).await;
    proxy.reset("LOCK.RENEW", Moment::OnItsWay);
    let short = Duration::from_secs(2);
    assert_matches!(soon(guard.extend(short)).await.unwrap_err(), Error::Connection(_));
    ok(guard.extend(2 * LEASE)).await;
    assert!(guard.lease_left() < short, "{guard:?}");
    assert_eq!(proxy.deliver(), Value::Integer(2000));
    // The client renews the lock long before a renewal of the longer lease would be due.
    let lock = stage.client.lock("k");
    assert!(ok(lock.acquire_within(2 * short)).await.is_none());
    assert!(!guard.is_lost());
    assert_eq!(stage.owner_of("k").as_deref(), Some(guard.owner()));
    ok(guard.release()).await;
}

/// The server refuses the shorter lease for longer than it would last.
#[tokio::test(flavor = "multi_thread")]
async fn a_shorter_lease_that_is_refused_for_a_moment_loses_nothing() {
    let patience = Duration::from_secs(3);
    let mut stage = Stage::with(Client::builder().patience(patience)).await;
    let mut guard = ok(stage.client.lock("k").acquire()).await;
    let short = Duration::from_millis(500);
    stage.control.run("CONFIG SET min-replicas-to-write 1");
    let told = soon(guard.extend(short)).await.unwrap_err();
    assert_eq!(told.code(), Some("NOREPLICAS"));
    assert_eq!(guard.why_lost(), None);
    assert!(guard.lease_left() > LEASE / 2, "{guard:?}");
    let extension = tokio::spawn(async move {
        let told = guard.extend(short).await;
        (guard, told)
    });
    observe::let_pass(&mut stage.control, 2 * short);
    assert!(!extension.is_finished());
    stage.control.run("CONFIG SET min-replicas-to-write 0");
    let (guard, told) = ok(extension).await;
    told.unwrap();
    assert!(guard.lease_left() < short, "{guard:?}");
    ok(guard.release()).await;
}

/// The client does not learn that the server refuses the value. Its later renewals are not refused.
#[tokio::test(flavor = "multi_thread")]
async fn an_unanswered_extension_that_the_server_refuses_loses_nothing() {
    let lease = Duration::from_secs(6);
    let (mut stage, proxy) = Stage::behind(Client::builder().lease(lease)).await;
    stage.control.run("CONFIG SET kvlock.max-lease-ms 60000");
    let mut guard = ok(stage.client.lock("k").acquire()).await;
    let token = guard.token();
    for raises in [false, true] {
        proxy.reset("LOCK.RENEW", Moment::BeforeTheAnswer);
        let told = if raises {
            soon(guard.raise_token(Token::from(1 << 51), lease)).await
        } else {
            soon(guard.extend(Duration::from_secs(61))).await
        };
        assert_matches!(told.unwrap_err(), Error::Connection(_));
        let left = guard.lease_left();
        wait_for_more(left, || guard.lease_left());
        assert!(!guard.is_lost() && guard.token() == token);
        // A later extension is set.
        ok(guard.raise_token(token, lease)).await;
    }
    ok(guard.release()).await;
}

/// The next guard of the owner shows that the server has raised it.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_the_server_raised_without_an_answer_loses_no_lock() {
    let lease = Duration::from_secs(60);
    let (stage, proxy) = Stage::behind(Client::builder().lease(lease)).await;
    let lock = stage.client.lock("k").owner(&stage.client.owner());
    let mut guard = ok(lock.acquire()).await;
    let raised = Token::from(guard.token().value() + 1);
    proxy.reset("LOCK.RENEW", Moment::BeforeTheAnswer);
    let told = soon(guard.raise_token(raised, lease)).await;
    assert_matches!(told.unwrap_err(), Error::Connection(_));
    let again = ok(lock.acquire()).await;
    assert_eq!([again.token(), guard.token()], [raised; 2]);
    ok(again.release()).await;
    ok(guard.release()).await;
}

/// A renewal was not answered either, but the loss counts: a repetition of the call is of no use.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_lost_while_the_server_was_silent_is_not_detached() {
    let stage = Stage::with(Client::builder().lease(Duration::from_secs(2))).await;
    let guard = ok(stage.client.lock("k").acquire()).await;
    stage.server.signal(Signal::SIGSTOP);
    soon(guard.lost()).await;
    let told = soon(guard.detach()).await;
    stage.server.signal(Signal::SIGCONT);
    assert_matches!(told, Err(Error::Lost(Loss::Expired)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_around_a_renewal_loses_nothing() {
    let clock = Suspended::new();
    let (mut stage, proxy) = Stage::behind(clock.renewing()).await;
    let guard = ok(stage.client.lock("k").acquire()).await;
    for moment in EVERY {
        proxy.reset("LOCK.RENEW", moment);
        clock.suspend(LONG / 2);
        wait::until_is("a renewal was reset", SOON, true, || proxy.has_reset());
        let token = i64::try_from(guard.token().value()).unwrap();
        wait_for_more(LONG * 3 / 4, || guard.lease_left());
        assert!(!guard.is_lost(), "{moment:?}");
        assert_eq!(stage.control.run("LOCK.INFO k").field("token").integer(), token);
    }
    ok(guard.release()).await;
}

/// The holder is disconnected, or the server is stopped while renewals wait in its socket.
#[tokio::test(flavor = "multi_thread")]
async fn a_disconnected_holder_is_notified_before_the_server_frees_the_lock() {
    let builder = Client::builder().lease(Duration::from_secs(8)).margin(Duration::from_secs(2));
    let (mut stage, proxy) = Stage::behind(builder).await;
    let other = stage.other().await;
    for sleeps in [false, true] {
        let guard = ok(stage.client.lock("k").acquire()).await;
        let next = stage.in_line(other.lock("k"));
        if sleeps {
            wait_for_renewals(&mut stage.control, 1);
            stage.server.stand_still();
        } else {
            proxy.cut();
        }
        soon(guard.lost()).await;
        if sleeps {
            stage.server.signal(Signal::SIGCONT);
        } else {
            assert_eq!(stage.owner_of("k").as_deref(), Some(guard.owner()), "it was told in time");
        }
        assert!(guard.is_lost());
        let next = ok(next).await.unwrap();
        assert!(!next.is_lost() && next.token() > guard.token());
        proxy.heal();
        assert!(soon(guard.release()).await.is_err());
        ok(next.release()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_survives_a_restart_if_the_server_saved_it() {
    for knows in [true, false] {
        let server = Server::options();
        let server = if knows { server.append_only("always") } else { server }.start();
        let mut stage = Stage::of(server, Client::builder().lease(SOON)).await;
        let guard = ok(stage.client.lock("k").acquire()).await;
        let waiter = stage.in_line(stage.client.lock("k"));
        stage.restart();
        let left = guard.lease_left();
        if knows {
            wait_for_more(left, || guard.lease_left());
            ok(guard.release()).await;
        } else {
            soon(guard.lost()).await;
            assert!(guard.release().await.unwrap_err().is_lost());
        }
        assert_served(waiter).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_with_occasional_disconnects_outlasts_the_retry_limit() {
    let mut stage = Stage::with(Client::builder().patience(Duration::from_secs(3))).await;
    stage.taken("k");
    let waiter = stage.in_line(stage.client.lock("k"));
    for _ in 0..4 {
        observe::wait_for_waiters(&mut stage.control, "k", 1);
        observe::let_pass(&mut stage.control, Duration::from_millis(1200));
        // The session ends, and the wait with it.
        stage.control.run("CONFIG SET kvlock.drain yes");
        observe::wait_for_waiters(&mut stage.control, "k", 0);
        stage.control.run("CONFIG SET kvlock.drain no");
    }
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    stage.control.run("LOCK.RELEASE k somebody");
    assert_served(waiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn constant_resets_leak_nothing_and_count_nothing_twice() {
    // On a slow machine it may take long until a command succeeds between two resets: longer than
    // the two seconds of the first lease after a wait.
    let patient = Client::builder().patience(Duration::from_secs(600)).confirm(true);
    let mut stage = Stage::with(patient).await;
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let client = stage.client.clone();
        tasks.spawn(async move {
            let me = client.owner();
            for cycle in 0..25 {
                let lock = client.lock(format!("k{}", (task + cycle) % 3)).owner(&me);
                let outer = lock.acquire().await.unwrap();
                let inner = lock.acquire().await.unwrap();
                assert_eq!(outer.holds(), 2);
                drop(inner);
                // An unknown outcome is allowed; a loss is not.
                if let Err(trouble) = outer.release().await {
                    assert!(!trouble.is_lost(), "{trouble}");
                }
            }
        });
    }
    while !tasks.is_empty() {
        stage.control.call(cmd!["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        while let Ok(Some(done)) =
            tokio::time::timeout(Duration::from_millis(20), tasks.join_next()).await
        {
            done.unwrap();
        }
    }
}
