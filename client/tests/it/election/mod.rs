//! Elections: candidates, leaders, and those who observe them.

mod leading;
mod observing;
mod trouble;

use super::{SOON, Stage, assert_matches, calls, ok, soon, visit};
use harness::{observe, wait};
use kvlock::{Election, Leadership};

/// A candidate of the election `k` that calls itself so.
fn candidate(stage: &Stage, value: &str) -> Election {
    stage.client.election("k").value(value)
}

async fn campaign(election: &Election) -> Leadership {
    ok(election.campaign()).await
}

/// One that stands for election in the background, and is in line.
fn in_line(stage: &mut Stage, election: &Election) -> tokio::task::JoinHandle<Leadership> {
    let election = election.clone();
    let campaigns = tokio::spawn(async move { election.campaign().await.unwrap() });
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    campaigns
}

/// Waits until the server tells somebody what becomes of `k`: a moment after it leads.
fn observed(stage: &mut Stage) {
    wait::until("it is observed", SOON, || {
        let info = stage.control.run("LOCK.INFO k").to_string();
        if info.contains("observers") { Ok(()) } else { Err(info) }
    });
}

/// Waits for something that a clock or another task brings about.
fn comes_true(what: &str, so: impl Fn() -> bool) {
    wait::until_is(what, SOON, true, so);
}
