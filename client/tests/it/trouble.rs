//! Connections that break, servers that stop: what is held stays held once, and nothing is left.

use super::proxy::{Moment, Proxy};
use super::{SOON, Stage, soon};
use harness::{Server, Value, cmd, observe, wait};
use kvlock::{Client, Error};
use std::time::{Duration, Instant};

const EVERY: [Moment; 4] =
    [Moment::BeforeTheServer, Moment::BeforeTheAnswer, Moment::InTheAnswer, Moment::AfterTheAnswer];

/// A stage whose client talks through a proxy.
async fn set(lease: Duration) -> (Stage, Proxy) {
    let server = Server::start();
    let proxy = Proxy::before(&server).await;
    let builder = Client::builder().lease(lease);
    let client = builder.connect(proxy.url()).await.unwrap();
    let control = server.connect();
    (Stage { server, client, control }, proxy)
}

const LONG: Duration = Duration::from_secs(30);

/// What a reset is around: how many holds there are before it and after it, and the command.
const AROUND: [(&str, u64, u64, &str); 5] = [
    ("acquire", 0, 1, "LOCK.ACQUIRE"),
    ("try", 0, 1, "LOCK.ACQUIRE"),
    ("re-enter", 1, 2, "LOCK.ACQUIRE"),
    ("release one", 2, 1, "LOCK.RELEASE"),
    ("release", 1, 0, "LOCK.RELEASE"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_around_an_acquire_or_a_release_counts_it_once() {
    let (mut stage, proxy) = set(LONG).await;
    for ((what, before, after, command), moment) in
        AROUND.into_iter().flat_map(|around| EVERY.map(|moment| (around, moment)))
    {
        let me = stage.client.owner();
        let lock = stage.client.lock("k").owner(&me);
        let mut guards = Vec::new();
        for _ in 0..before {
            guards.push(soon(lock.acquire()).await.unwrap());
        }
        proxy.cut(command, moment);
        match what {
            "try" => guards.push(soon(lock.try_acquire()).await.unwrap().expect("it is free")),
            _ if after > before => guards.push(soon(lock.acquire()).await.unwrap()),
            _ => soon(guards.pop().unwrap().release()).await.unwrap(),
        }
        assert!(proxy.has_cut(), "{what}, {moment:?}");
        assert_eq!(soon(lock.hold_count(&me)).await.unwrap(), after, "{what}, {moment:?}");
        for guard in guards {
            soon(guard.release()).await.unwrap();
        }
        assert!(stage.is_free("k"), "{what}, {moment:?}");
    }
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_closed_meanwhile_is_not_used() {
    let (mut stage, _proxy) = set(LONG).await;
    stage.control.run("CLIENT KILL TYPE normal SKIPME yes");
    let guard = soon(stage.client.lock("k").try_acquire()).await.unwrap().expect("it is free");
    stage.control.run("CLIENT KILL TYPE normal SKIPME yes");
    soon(guard.release()).await.unwrap();
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_arrives_after_the_release_is_released_once_more() {
    let (mut stage, proxy) = set(LONG).await;
    proxy.cut("LOCK.ACQUIRE", Moment::OnItsWay);
    let guard = soon(stage.client.lock("k").acquire()).await.unwrap();
    soon(guard.release()).await.unwrap();
    assert!(stage.is_free("k"));
    let answer = soon(proxy.deliver()).await;
    assert!(answer.starts_with(b"*2"), "granted: {}", answer.escape_ascii());
    // Its lease would last longer than anybody waits here.
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_counted_from_before_it_was_asked_for() {
    let mut stage = Stage::set().await;
    let lock = stage.client.lock("k").fixed_lease(LONG);
    let before = Instant::now();
    stage.control.run("CLIENT PAUSE 2000 WRITE");
    let guard = soon(lock.acquire()).await.unwrap();
    // 1 % and the margin are less than the pause was.
    assert!(guard.lease_left() + before.elapsed() < LONG, "{guard:?} after {:?}", before.elapsed());
    assert!(before.elapsed() > Duration::from_millis(1500));
}

/// Asked again it could set a latch that has been set, and counted down, since.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_around_the_setting_of_a_latch_is_an_error_and_sets_it_once() {
    let (mut stage, proxy) = set(LONG).await;
    for (moment, is_set) in [(Moment::BeforeTheServer, 0), (Moment::BeforeTheAnswer, 1)] {
        proxy.cut("LATCH.SET", moment);
        let answer = soon(stage.client.latch("l").set(2)).await;
        assert!(proxy.has_cut());
        assert!(matches!(answer, Err(Error::Connection(_))), "{moment:?}: {answer:?}");
        let is = || stage.server.connect().run("EXISTS l");
        wait::until("it is as it will be", SOON, || match is() {
            Value::Integer(is) if is == is_set => Ok(()),
            other => Err(other.to_string()),
        });
        stage.control.run("DEL l");
    }
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_one_hold_whose_answer_is_lost_takes_no_later_hold_away() {
    let (mut stage, proxy) = set(LONG).await;
    let me = stage.client.owner();
    let lock = stage.client.lock("k").owner(&me);
    let first = soon(lock.acquire()).await.unwrap();
    let second = soon(lock.acquire()).await.unwrap();
    proxy.cut_times("LOCK.RELEASE", Moment::BeforeTheAnswer, 2);
    let trouble = soon(second.release()).await.unwrap_err();
    assert!(matches!(trouble, Error::Connection(_)), "{trouble:?}");
    let third = soon(lock.acquire()).await.unwrap();
    soon(stage.client.settled()).await;
    assert_eq!(soon(lock.hold_count(&me)).await.unwrap(), 2);
    for guard in [third, first] {
        soon(guard.release()).await.unwrap();
    }
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_arrives_after_a_reentry_loses_nothing() {
    let (mut stage, proxy) = set(LONG).await;
    let me = stage.client.owner();
    let lock = stage.client.lock("k").owner(&me).lease(2 * LONG);
    let first = soon(lock.acquire()).await.unwrap();
    let second = soon(lock.acquire()).await.unwrap();
    proxy.cut("LOCK.RELEASE", Moment::OnItsWay);
    soon(second.release()).await.unwrap();
    let third = soon(lock.acquire()).await.unwrap();
    assert_eq!(soon(proxy.deliver()).await, b":1\r\n");
    // The server counts one hold less than there are guards.
    let fourth = soon(lock.lease(LONG).acquire()).await.unwrap();
    assert!(fourth.lease_left() > LONG, "no shorter than what the others want: {fourth:?}");
    for guard in [fourth, third, first] {
        soon(guard.release()).await.unwrap();
    }
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_believed_than_a_late_shorter_renewal_may_leave() {
    let (mut stage, proxy) = set(LONG).await;
    let mut guard = soon(stage.client.lock("k").acquire()).await.unwrap();
    proxy.cut("LOCK.RENEW", Moment::OnItsWay);
    let short = Duration::from_secs(2);
    let trouble = soon(guard.extend(short)).await.unwrap_err();
    assert!(matches!(trouble, Error::Connection(_)), "{trouble:?}");
    soon(guard.extend(2 * LONG)).await.unwrap();
    assert!(guard.lease_left() < short, "{guard:?}");
    assert_eq!(soon(proxy.deliver()).await, b":2000\r\n");
    // Long before a renewal of the longer lease would be due.
    let lock = stage.client.lock("k");
    assert!(soon(lock.acquire_within(2 * short)).await.unwrap().is_none());
    assert!(!guard.is_lost());
    assert_eq!(stage.owner_of("k").as_deref(), Some(guard.owner()));
    soon(guard.release()).await.unwrap();
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_around_a_renewal_loses_nothing() {
    let (mut stage, proxy) = set(Duration::from_secs(3)).await;
    let guard = soon(stage.client.lock("k").acquire()).await.unwrap();
    for moment in EVERY {
        proxy.cut("LOCK.RENEW", moment);
        wait::until_is("a renewal was cut", SOON, true, || proxy.has_cut());
        let token = i64::try_from(guard.token().value()).unwrap();
        // A lease ends at the same moment until it is renewed.
        let end = || Instant::now() + guard.lease_left();
        let before = end();
        wait::until("it is renewed after that", SOON, || {
            let renewed = end() > before + Duration::from_millis(100);
            if renewed { Ok(()) } else { Err(format!("{guard:?}")) }
        });
        assert!(!guard.is_lost(), "{moment:?}");
        assert_eq!(stage.control.run("LOCK.INFO k").field("token").integer(), token);
    }
    soon(guard.release()).await.unwrap();
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_around_a_wait_does_not_end_it() {
    let (mut stage, proxy) = set(LONG).await;
    let commands = EVERY.map(|moment| ("LOCK.WAIT", moment)).into_iter();
    let next = [Moment::BeforeTheServer, Moment::BeforeItAnswers, Moment::BeforeTheAnswer];
    for (command, moment) in commands.chain(next.map(|moment| ("SESSION.NEXT", moment))) {
        stage.taken("k");
        proxy.cut(command, moment);
        let lock = stage.client.lock("k");
        let waiter = tokio::spawn(async move { lock.acquire().await });
        wait::until("it was cut, or will be with the grant", SOON, || {
            let cut = proxy.has_cut();
            let waiters = stage.control.run("LOCK.INFO k").field("waiters").integer();
            if cut && waiters == 1 { Ok(()) } else { Err(format!("{cut}, {waiters} waiters")) }
        });
        if moment == Moment::BeforeItAnswers {
            soon(proxy.is_reset_unanswered()).await;
        }
        stage.control.run("LOCK.RELEASE k somebody");
        let guard = soon(waiter).await.unwrap().unwrap();
        let info = stage.control.run("LOCK.INFO k");
        assert_eq!(info.field("holds"), &Value::Integer(1));
        assert_eq!(info.field("owner").text(), guard.owner());
        soon(guard.release()).await.unwrap();
        assert!(stage.is_free("k"), "{moment:?}");
    }
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_of_the_cancellation_leaves_no_waiter() {
    let (mut stage, proxy) = set(LONG).await;
    for moment in EVERY {
        stage.taken("k");
        let lock = stage.client.lock("k");
        let waiter = tokio::spawn(async move { lock.acquire().await });
        observe::wait_for_waiters(&mut stage.control, "k", 1);
        proxy.cut("LOCK.CANCEL", moment);
        waiter.abort();
        observe::wait_for_waiters(&mut stage.control, "k", 0);
        stage.control.run("LOCK.RELEASE k somebody");
        stage.assert_nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_cut_off_knows_before_the_server_frees_the_lock() {
    let server = Server::start();
    let proxy = Proxy::before(&server).await;
    let builder = Client::builder().lease(Duration::from_secs(4)).margin(Duration::from_secs(1));
    let client = builder.connect(proxy.url()).await.unwrap();
    let mut stage = Stage { control: server.connect(), server, client };
    let guard = soon(stage.client.lock("k").acquire()).await.unwrap();
    proxy.freeze(true);
    soon(guard.lost()).await;
    assert_eq!(stage.owner_of("k").as_deref(), Some(guard.owner()), "it was told in time");
    assert!(guard.is_lost());
    stage.wait_until_free("k");
    proxy.freeze(false);
    assert!(soon(guard.release()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_the_restarted_server_knows_is_kept() {
    let server = Server::options().append_only("always").start();
    let mut stage = Stage::of(server).await;
    let lock = stage.client.lock("k").lease(Duration::from_secs(20));
    let guard = soon(lock.acquire()).await.unwrap();
    stage.server.kill9();
    stage.server.restart();
    stage.control = stage.server.connect();
    let left = guard.lease_left();
    wait::until("it is renewed", SOON, || {
        if guard.lease_left() > left { Ok(()) } else { Err(format!("{guard:?}")) }
    });
    soon(guard.release()).await.unwrap();
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_the_restarted_server_has_forgotten_is_lost() {
    let mut stage = Stage::set().await;
    let guard = soon(stage.client.lock("k").lease(Duration::from_secs(6)).acquire()).await.unwrap();
    stage.server.kill9();
    stage.server.restart();
    stage.control = stage.server.connect();
    soon(guard.lost()).await;
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_lost_when_the_server_does_not_come_back() {
    let stage = Stage::set().await;
    let lock = stage.client.lock("k").lease(Duration::from_secs(2));
    let guard = soon(lock.acquire()).await.unwrap();
    stage.server.kill9();
    soon(guard.lost()).await;
    let trouble = soon(lock.try_acquire()).await.unwrap_err();
    assert!(matches!(trouble, Error::Connection(_)) && trouble.is_retryable(), "{trouble:?}");
    let within = soon(lock.acquire_within(Duration::from_millis(300))).await;
    assert!(within.unwrap_err().is_retryable());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_sits_a_restart_out() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let lock = stage.client.lock("k");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    stage.server.kill9();
    stage.server.restart();
    stage.control = stage.server.connect();
    let guard = soon(waiter).await.unwrap().unwrap();
    soon(guard.release()).await.unwrap();
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_in_a_pause_is_granted_once_after_it() {
    let server = Server::start();
    let builder = Client::builder().reply_timeout(Duration::from_millis(200));
    let client = builder.connect(server.url()).await.unwrap();
    let mut stage = Stage { control: server.connect(), server, client };
    stage.control.run("CLIENT PAUSE 600000 WRITE");
    let lock = stage.client.lock("k");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    // It has given up on one answer at least, and asked again over another connection.
    let connections = |list: &Value| list.text().lines().count();
    wait::until("it has tried again", SOON, || {
        let list = stage.control.run("CLIENT LIST");
        if connections(&list) >= 3 { Ok(()) } else { Err(list.text()) }
    });
    stage.control.run("CLIENT UNPAUSE");
    let guard = soon(waiter).await.unwrap().unwrap();
    assert_eq!(stage.control.run("LOCK.INFO k").field("holds"), &Value::Integer(1));
    soon(guard.release()).await.unwrap();
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_cut_now_and_then_outlasts_the_patience() {
    let server = Server::start();
    let builder = Client::builder().patience(Duration::from_secs(2));
    let client = builder.connect(server.url()).await.unwrap();
    let mut stage = Stage { control: server.connect(), server, client };
    stage.taken("k");
    let lock = stage.client.lock("k");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    for _ in 0..4 {
        observe::wait_for_waiters(&mut stage.control, "k", 1);
        observe::let_pass(&mut stage.control, Duration::from_millis(1200));
        stage.control.call(cmd!["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    stage.control.run("LOCK.RELEASE k somebody");
    let guard = soon(waiter).await.unwrap().unwrap();
    soon(guard.release()).await.unwrap();
    stage.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resets_all_the_time_leak_nothing_and_never_count_twice() {
    let server = Server::start();
    // On a slow machine it may take long until a wait comes between two resets.
    let builder = Client::builder().patience(Duration::from_secs(600));
    let client = builder.connect(server.url()).await.unwrap();
    let mut stage = Stage { control: server.connect(), server, client };
    let mut tasks = tokio::task::JoinSet::new();
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
                // That the outcome is unknown is allowed; a loss is not.
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
    stage.assert_nothing_is_left().await;
}
