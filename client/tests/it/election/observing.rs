//! Every observer knows the current leader, and learns of the end of its term.

use super::*;
use harness::{Server, cmd};
use kvlock::{Client, Error, Leader, Loss, Observer};
use std::time::Duration;

async fn observer(client: &Client) -> Observer {
    ok(client.election("k").observe()).await
}

/// Waits until the observer's state fulfils a condition.
async fn sees(observer: &mut Observer, what: &str, so: impl Fn(&Observer) -> bool) {
    soon(async {
        while !so(observer) {
            observer.changed().await;
        }
    })
    .await;
    assert!(so(observer), "{what}: {observer:?}");
}

async fn sees_vacant(observer: &mut Observer, why: Loss) {
    sees(observer, "vacant", |o| o.leader().is_none() && o.last_loss() == Some(why)).await;
}

async fn sees_value(observer: &mut Observer, value: &str) -> Leader {
    let so = |o: &Observer| o.leader().is_some_and(|leader| leader.value == value.as_bytes());
    sees(observer, value, so).await;
    observer.leader().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn observers_see_every_leader_and_every_vacancy_with_its_reason() {
    let mut stage = Stage::set().await;
    let others = [stage.other().await, stage.other().await];
    let mut observers = [observer(&others[0]).await, observer(&others[1]).await];
    assert!(observers.iter().all(|o| o.leader().is_none() && o.last_loss().is_none()));
    let election = candidate(&stage, "a").lease(LONG);
    let mut last = None;
    for (how, why) in [
        ("LOCK.RELEASE", Loss::Released),
        ("LOCK.FORCERELEASE", Loss::Forced),
        ("DEL", Loss::Deleted),
        ("FLUSHALL", Loss::Flushed),
        ("PEXPIRE", Loss::Expired),
    ] {
        // A former leader can campaign again at once.
        let leader = ok(election.campaign_within(Duration::ZERO)).await.expect(how);
        assert!(last < Some(leader.term()), "{last:?} before {how}");
        last = Some(leader.term());
        for observer in &mut observers {
            let seen = sees_value(observer, "a").await;
            assert_eq!((seen.term, &*seen.owner), (leader.term(), leader.owner().as_bytes()));
        }
        observed_by(&mut stage, 3);
        let _done = match how {
            "LOCK.RELEASE" => stage.control.call(cmd![how, "k", leader.owner()]),
            "FLUSHALL" => stage.control.call(cmd![how]),
            "PEXPIRE" => stage.control.call(cmd![how, "k", 1]),
            _ => stage.control.call(cmd![how, "k"]),
        };
        for observer in &mut observers {
            sees_vacant(observer, why).await;
        }
        // The holder gets the same reason.
        assert_eq!(soon(leader.lost()).await, why, "{how}");
        assert!(!election.is_leader());
        drop(leader);
        // Wait until the client no longer observes. Otherwise a late report of the last term's end would make
        // it check the next term with a renewal.
        observed_by(&mut stage, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_is_notified_at_once_that_the_next_one_leads() {
    let mut stage = Stage::set().await;
    let leader = campaign(&candidate(&stage, "a").lease(LONG)).await;
    observed_by(&mut stage, 1);
    let next = candidate(&stage, "b");
    let campaigns = in_line(&mut stage, &next);
    stage.control.run("LOCK.FORCERELEASE k");
    assert_eq!(soon(leader.lost()).await, Loss::Forced);
    ok(ok(campaigns).await.resign()).await;
}

/// The observed guard is acquired later, is downgraded, or adopts the lock from another client.
#[tokio::test(flavor = "multi_thread")]
async fn one_observation_serves_all_guards_of_a_lock() {
    let mut stage = Stage::set().await;
    for how in ["came in later", "goes on sharing", "took it over"] {
        // A new client, because reports about the hold of the previous round do not concern it.
        let client = stage.other().await;
        let lock = client.lock("k").lease(LONG).owner(&client.owner());
        let observing = lock.clone().observed();
        let first = ok(lock.acquire()).await;
        let guard = match how {
            "came in later" => ok(observing.acquire()).await,
            "goes on sharing" => {
                ok(first.release()).await;
                ok(ok(observing.acquire()).await.downgrade()).await
            }
            _ => {
                let (owner, token) = (first.owner().to_owned(), first.token());
                ok(first.detach()).await;
                let other = stage.other().await.lock("k").lease(LONG);
                ok(other.bound().observed().adopt(&owner, token)).await
            }
        };
        observed_by(&mut stage, 1);
        assert_eq!(
            observe::info_number(&mut stage.control, "kvlock_bound") == 1,
            how == "took it over"
        );
        stage.control.run("LOCK.FORCERELEASE k");
        assert_eq!(soon(guard.lost()).await, Loss::Forced, "{how}");
        drop(guard);
        observed_by(&mut stage, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sharer_of_an_observed_lock_sends_no_checks() {
    let mut stage = Stage::set().await;
    let lock = stage.client.lock("k").shared().observed();
    let first = ok(lock.acquire()).await;
    observed_by(&mut stage, 1);
    let second = ok(lock.acquire()).await;
    observe::let_pass(&mut stage.control, Duration::from_millis(300));
    assert_eq!(calls(&mut stage.control, "lock.renew"), 0);
    stage.control.run("LOCK.FORCERELEASE k");
    for guard in [first, second] {
        assert_eq!(soon(guard.lost()).await, Loss::Forced);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_notifies_a_client_once_for_many_observers() {
    let mut stage = Stage::set().await;
    let mut observers = Vec::new();
    for _ in 0..100 {
        observers.push(observer(&stage.client).await);
    }
    assert_eq!(calls(&mut stage.control, "lock.observe"), 1);
    observed_by(&mut stage, 1);
    let leader = campaign(&candidate(&stage, "a")).await;
    for observer in &mut observers {
        sees_value(observer, "a").await;
    }
    // Without observers no change is sent.
    drop(observers);
    leader.resign().await.unwrap();
    wait::until_is("nobody observes", SOON, 1, || calls(&mut stage.control, "lock.unobserve"));
    // A later observer gets the current state.
    let leader = campaign(&candidate(&stage, "b")).await;
    assert_eq!(observer(&stage.client).await.leader().unwrap().term, leader.term());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_survives_a_restart_of_the_server_and_sees_no_term_twice() {
    let server = Server::options().append_only("always").start();
    let mut stage = Stage::of(server, Client::builder()).await;
    let other = stage.other().await;
    let mut observer = observer(&other).await;
    let election = candidate(&stage, "a").lease(LONG);
    let mut last = None;
    for round in 0..3 {
        let leader = campaign(&election).await;
        let seen = sees_value(&mut observer, "a").await;
        assert!(Some(seen.term) > last && seen.term == leader.term(), "{round}: {last:?}");
        last = Some(seen.term);
        stage.restart();
        // The restarted server still has the leader, and the observer gets its new value.
        ok(leader.proclaim("b")).await;
        assert_eq!(sees_value(&mut observer, "b").await.term, leader.term());
        ok(leader.resign()).await;
        sees(&mut observer, "vacant", |o| o.leader().is_none()).await;
    }
}

/// The client pauses after each refusal of `LOCK.OBSERVE`, longer each time.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_observer_asks_the_server_at_once_beside_a_leader_that_is_refused() {
    let mut stage = Stage::set().await;
    stage.control.run("ACL SETUSER default -lock.observe");
    let election = candidate(&stage, "a");
    let leader = campaign(&election).await;
    soon(async {
        for _ in 0..8 {
            assert_matches!(election.observe().await, Err(Error::Denied(_)));
        }
    })
    .await;
    stage.control.run("ACL SETUSER default +lock.observe");
    assert_eq!(observer(&stage.client).await.leader().unwrap().term, leader.term());
    leader.resign().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_the_right_to_observe_leads_and_is_told() {
    let clock = Suspended::new();
    let mut stage = Stage::with(clock.renewing()).await;
    stage.control.run("ACL SETUSER default -lock.observe");
    let told = soon(stage.client.election("k").observe()).await.unwrap_err();
    assert_matches!(told, Error::Denied(_));
    let election = candidate(&stage, "a");
    let leader = campaign(&election).await;
    stage.control.run("LOCK.FORCERELEASE k");
    clock.suspend(LONG / 2);
    assert_eq!(soon(leader.lost()).await, Loss::Forgotten);
    // Once the user has the right, the leader observes without a new call.
    let leader = campaign(&election).await;
    stage.control.run("ACL SETUSER default +lock.observe");
    observed_by(&mut stage, 1);
    assert_eq!(observer(&stage.client).await.leader().unwrap().term, leader.term());
    leader.resign().await.unwrap();
}
