//! Elections while connections break, servers hang and candidates give up.

use super::*;
use harness::Value;
use kvlock::{Client, Error};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_that_gives_up_or_fails_leaves_the_queue() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let election = candidate(&stage, "a");
    // A campaign with a time limit ends when the time is over, not earlier.
    let begun = Instant::now();
    assert!(ok(election.campaign_within(MOMENT)).await.is_none());
    assert!(begun.elapsed() >= MOMENT);
    observe::wait_for_waiters(&mut stage.control, "k", 0);
    // An error ends a campaign: the user loses the right to wait, and another client cancels the wait.
    let campaigns = tokio::spawn(async move { election.campaign().await });
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    stage.control.run("ACL SETUSER default -lock.acquire -lock.wait");
    let owner = stage.control.run("LOCK.INFO k WAITERS 1").field("queue")[0][0].text();
    assert_eq!(stage.control.call(harness::cmd!["LOCK.CANCEL", "k", owner]), Value::Integer(1));
    assert_matches!(ok(campaigns).await, Err(Error::Denied(_)));
    stage.control.run("ACL SETUSER default +lock.acquire +lock.wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_does_not_outlive_its_session() {
    let (mut stage, proxy) = Stage::behind(Client::builder()).await;
    stage.taken("k");
    let election = candidate(&stage, "a");
    let campaigns = in_line(&mut stage, &election);
    proxy.cut();
    // The client is cut off until the server removes its wait.
    wait::until_is("nobody is in line", 2 * SOON, 0, || {
        stage.control.run("LOCK.INFO k").field("waiters").integer()
    });
    stage.control.run("LOCK.RELEASE k somebody");
    assert!(stage.is_free("k") && !election.is_leader());
    stage.taken("k");
    proxy.heal();
    // The candidate is queued again, once.
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    assert!(!election.is_leader() && !campaigns.is_finished());
    stage.control.run("LOCK.RELEASE k somebody");
    ok(ok(campaigns).await.resign()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resigning_does_not_wait_for_a_hanging_server() {
    let stage = Stage::with(Client::builder().reply_timeout(Duration::from_secs(1))).await;
    let (first, second) = (candidate(&stage, "a"), stage.client.election("l"));
    let (leader, dropped) = (campaign(&first).await, campaign(&second).await);
    stage.server.signal(Signal::SIGSTOP);
    // A leader does not ask the server whether it leads.
    assert!(first.is_leader() && !leader.is_lost());
    let began = Instant::now();
    drop(dropped);
    assert!(leader.resign().await.is_err() && !first.is_leader());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    stage.server.signal(Signal::SIGCONT);
    // Background tasks release the locks after this.
}
