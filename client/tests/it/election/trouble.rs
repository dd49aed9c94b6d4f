//! What others get wrong when connections break, servers hang and candidates give up.

use super::*;
use crate::cancel::after;
use crate::proxy::Proxy;
use harness::{Server, Value};
use kvlock::{Client, Error};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_that_gives_up_or_fails_is_one_no_more() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    // Dropped in line.
    let election = candidate(&stage, "a");
    let campaigns = in_line(&mut stage, &election);
    campaigns.abort();
    assert!(soon(campaigns).await.unwrap_err().is_cancelled());
    observe::wait_for_waiters(&mut stage.control, "k", 0);
    // The time is over.
    assert!(soon(election.campaign_within(Duration::from_millis(20))).await.unwrap().is_none());
    observe::wait_for_waiters(&mut stage.control, "k", 0);
    // It was told of trouble: somebody has withdrawn it and takes its right away.
    let campaigns = tokio::spawn(async move { election.campaign().await });
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    stage.control.run("ACL SETUSER default -lock.acquire -lock.wait");
    let owner = stage.control.run("LOCK.INFO k WAITERS 1").field("queue")[0][0].text();
    assert_eq!(stage.control.call(harness::cmd!["LOCK.CANCEL", "k", owner]), Value::Integer(1));
    assert!(matches!(soon(campaigns).await.unwrap(), Err(Error::Denied(_))));
    stage.control.run("ACL SETUSER default +lock.acquire +lock.wait");
    observe::wait_for_waiters(&mut stage.control, "k", 0);
    stage.control.run("LOCK.RELEASE k somebody");
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_does_not_outlive_its_session() {
    let server = Server::start();
    let proxy = Proxy::before(&server).await;
    let client = Client::connect(proxy.url()).await.unwrap();
    let mut stage = Stage { control: server.connect(), server, client };
    stage.taken("k");
    let election = candidate(&stage, "a");
    let campaigns = in_line(&mut stage, &election);
    proxy.freeze(true);
    // Cut off for so long that the server gives its place up.
    wait::until_is("nobody is in line", 2 * SOON, 0, || {
        stage.control.run("LOCK.INFO k").field("waiters").integer()
    });
    stage.control.run("LOCK.RELEASE k somebody");
    assert!(stage.is_free("k") && !election.is_leader());
    stage.taken("k");
    proxy.freeze(false);
    // It is a candidate again, once.
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    assert!(!election.is_leader() && !campaigns.is_finished());
    stage.control.run("LOCK.RELEASE k somebody");
    soon(soon(campaigns).await.unwrap().resign()).await.unwrap();
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_never_lead_around_a_reconnect() {
    let server = Server::start();
    let proxy = Proxy::before(&server).await;
    let builder = || Client::builder().lease(Duration::from_secs(3));
    let cut_off = builder().connect(proxy.url()).await.unwrap();
    let client = builder().connect(server.url()).await.unwrap();
    let mut stage = Stage { control: server.connect(), server, client };
    let (first, second) = (cut_off.election("k").value("a"), candidate(&stage, "b"));
    let mut term = campaign(&first).await;
    let campaigns = in_line(&mut stage, &second);
    proxy.freeze(true);
    let next = soon(campaigns).await.unwrap();
    assert!(!first.is_leader() && term.is_lost(), "{term:?}");
    proxy.freeze(false);
    // Back again it is told no other thing, and waits for its turn.
    assert!(matches!(soon(term.proclaim("a")).await, Err(Error::Lost)));
    assert!(soon(first.campaign_within(Duration::ZERO)).await.unwrap().is_none());
    let again = first.clone();
    let campaigns = tokio::spawn(async move { again.campaign().await.unwrap() });
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    assert!(second.is_leader() && !first.is_leader());
    drop(next);
    term = soon(campaigns).await.unwrap();
    assert!(first.is_leader() && !second.is_leader());
    soon(term.resign()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_resigns_does_not_wait_for_a_server_that_hangs() {
    let server = Server::start();
    let builder = Client::builder().reply_timeout(Duration::from_millis(200));
    let client = builder.connect(server.url()).await.unwrap();
    let stage = Stage { control: server.connect(), server, client };
    let (first, second) = (candidate(&stage, "a"), stage.client.election("l"));
    let (leader, dropped) = (campaign(&first).await, campaign(&second).await);
    stage.server.signal(Signal::SIGSTOP);
    let began = Instant::now();
    drop(dropped);
    assert!(leader.resign().await.is_err() && !first.is_leader());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    stage.server.signal(Signal::SIGCONT);
    // In the background it goes on.
    let mut stage = stage;
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_dropped_at_any_point_leaves_no_candidate_and_no_observer() {
    let mut stage = Stage::set().await;
    let election = candidate(&stage, "a");
    let (mut done, mut dropped) = (0, 0);
    let mut count = |was_done: bool| if was_done { done += 1 } else { dropped += 1 };
    for round in 0..200 {
        let polls = 1 + round / 4 % 6;
        match round % 4 {
            // Whatever an earlier round has left would hold this up.
            0 => {
                let leader = soon(after(polls, election.campaign())).await.map(Result::unwrap);
                count(leader.is_some());
            }
            1 => {
                let leader = campaign(&election).await;
                count(soon(after(polls, leader.proclaim("b"))).await.map(Result::unwrap).is_some());
                assert!(!leader.is_lost());
                count(soon(after(polls, leader.resign())).await.map(Result::unwrap).is_some());
            }
            2 => {
                let seen = soon(after(polls, election.observe())).await.map(Result::unwrap);
                count(seen.is_some());
            }
            _ => {
                let work = |_| tokio::task::yield_now();
                let led = soon(after(polls, election.lead(work))).await.map(Result::unwrap);
                count(led.is_some());
            }
        }
    }
    assert!(done > 20 && dropped > 20, "{done} done, {dropped} dropped");
    stage.assert_nothing_is_left();
    wait::until("nobody observes", SOON, || {
        let info = stage.control.run("LOCK.INFO k").to_string();
        if info.contains("observers") { Err(info) } else { Ok(()) }
    });
}
