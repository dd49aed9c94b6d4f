//! Elections: candidates, leaders and observers.

mod leading;
mod observing;
mod trouble;

use super::{LONG, MOMENT, SOON, Stage, Suspended, assert_matches, calls, ok, soon, visit};
use harness::{observe, wait};
use kvlock::{Election, Leadership};

/// A candidate of the election `k` with this value.
fn candidate(stage: &Stage, value: &str) -> Election {
    stage.client.election("k").value(value)
}

async fn campaign(election: &Election) -> Leadership {
    ok(election.campaign()).await
}

/// Starts a campaign in the background, and returns once it is queued.
fn in_line(stage: &mut Stage, election: &Election) -> tokio::task::JoinHandle<Leadership> {
    let election = election.clone();
    let campaigns = tokio::spawn(async move { election.campaign().await.unwrap() });
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    campaigns
}

/// Waits until the given number of clients observes `k`. A leader starts to observe a moment after it leads.
fn observed_by(stage: &mut Stage, clients: i64) {
    wait::until_is("observers", SOON, clients, || {
        let info = stage.control.run("LOCK.INFO k");
        // Without observers the field is missing.
        let are_any = info.to_string().contains("observers");
        if are_any { info.field("observers").integer() } else { 0 }
    });
}

/// Waits until a condition holds.
fn comes_true(what: &str, so: impl FnMut() -> bool) {
    wait::until_is(what, SOON, true, so);
}
