//! Candidates campaign, lead and resign.

use super::*;
use harness::Connection;
use kvlock::Error;
use std::sync::{Arc, Mutex};

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_can_set_any_value_while_it_leads() {
    let mut stage = Stage::set().await;
    let election = candidate(&stage, "a:1");
    let leader = campaign(&election).await;
    let long = vec![b'x'; 1025];
    for value in [&b"a:1"[..], b"ready", &long[1..]] {
        if value != b"a:1" {
            ok(leader.proclaim(value)).await;
        }
        let info = stage.client.lock("k").info().await.unwrap();
        assert_eq!((info.value.as_deref(), info.token), (Some(value), Some(leader.term())));
    }
    assert_matches!(leader.proclaim(&long).await, Err(Error::Invalid(_)));
    stage.control.run("DEL k");
    assert!(matches!(soon(leader.proclaim("still here")).await, Err(Error::Lost(_))));
    assert!(!election.is_leader());
}

/// Owner of the lock at each time that the work was dropped.
type Seen = Arc<Mutex<Vec<Option<String>>>>;

struct Work(u16, Seen);

impl Drop for Work {
    fn drop(&mut self) {
        let info = Connection::open(self.0).unwrap().run("LOCK.INFO k");
        let owner = info.field("owner");
        self.1.lock().unwrap().push((!owner.is_nil()).then(|| owner.text()));
    }
}

/// Leads with work that never ends, or ends at once.
fn leads(
    stage: &Stage,
    election: &Election,
    ends: bool,
) -> (tokio::task::JoinHandle<Result<(), Error>>, Seen) {
    let (election, port, seen) = (election.clone(), stage.server.port(), Seen::default());
    let notes = seen.clone();
    let leads = tokio::spawn(async move {
        let work = |_term| {
            let work = Work(port, notes.clone());
            async move {
                let _work = work;
                if !ends {
                    std::future::pending::<()>().await;
                }
            }
        };
        election.lead(work).await
    });
    (leads, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_resigns_when_its_work_is_dropped_and_not_earlier() {
    let clock = Suspended::new();
    let mut stage = Stage::with(clock.renewing()).await;
    let election = candidate(&stage, "a");
    // The work is done.
    let (done, seen) = leads(&stage, &election, true);
    ok(done).await.unwrap();
    assert!(seen.lock().unwrap().iter().all(Option::is_some) && !election.is_leader());
    stage.wait_until_free("k");
    // The caller has dropped its future.
    let (dropped, seen) = leads(&stage, &election, false);
    comes_true("it leads", || election.is_leader());
    let owner = stage.owner_of("k");
    dropped.abort();
    assert!(soon(dropped).await.unwrap_err().is_cancelled());
    assert_eq!(*seen.lock().unwrap(), [owner]);
    stage.wait_until_free("k");
    // The leadership can no longer be renewed.
    let (lost, seen) = leads(&stage, &election, false);
    comes_true("it leads", || election.is_leader());
    let owner = stage.owner_of("k");
    stage.control.run("ACL SETUSER default -lock.renew -lock.acquire -lock.wait");
    let denied = |stage: &mut Stage| observe::info_field(&mut stage.control, "errorstat_NOPERM");
    clock.suspend(LONG / 2);
    comes_true("it may not be renewed", || denied(&mut stage).is_some());
    clock.suspend(LONG / 2);
    comes_true("it leads no more", || !seen.lock().unwrap().is_empty());
    assert_eq!(*seen.lock().unwrap(), [owner]);
    lost.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_lost_the_lock_campaigns_again() {
    let mut stage = Stage::set().await;
    let (election, terms) = (candidate(&stage, "a"), Arc::<Mutex<Vec<_>>>::default());
    let (candidate, noted) = (election.clone(), terms.clone());
    let leads = tokio::spawn(async move {
        let work = |term| {
            noted.lock().unwrap().push(term);
            let last = noted.lock().unwrap().len() == 3;
            async move { if last { "done" } else { std::future::pending().await } }
        };
        candidate.lead(work).await
    });
    for nth in 1..3 {
        comes_true("it leads", || terms.lock().unwrap().len() == nth);
        stage.control.run("LOCK.FORCERELEASE k");
    }
    assert_eq!(ok(leads).await.unwrap(), "done");
    let terms = terms.lock().unwrap().clone();
    assert!(terms.len() == 3 && terms.is_sorted_by(|a, b| a < b), "{terms:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_election_costs_two_commands_more_than_a_lock() {
    let mut stage = Stage::set().await;
    let observed = |stage: &mut Stage| {
        let of = |command| calls(&mut stage.control, command);
        ["lock.observe", "lock.unobserve"].map(of)
    };
    visit(&stage.client.lock("k")).await;
    assert_eq!((observed(&mut stage), calls(&mut stage.control, "session.open")), ([0, 0], 0));
    for rounds in 1..4 {
        let leader = campaign(&candidate(&stage, "a")).await;
        wait::until_is("observed", SOON, [rounds, rounds - 1], || observed(&mut stage));
        leader.resign().await.unwrap();
        wait::until_is("observed no more", SOON, [rounds; 2], || observed(&mut stage));
    }
    let acquired = ["lock.acquire", "lock.release"].map(|it| calls(&mut stage.control, it));
    assert_eq!(acquired, [4, 4]);
}

/// Clones of an election are one candidate, so a clone of the leader would wait for itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_does_not_campaign_and_does_not_lead_after_resigning() {
    let stage = Stage::set().await;
    let election = stage.client.election("k");
    let leader = ok(election.campaign()).await;
    assert_matches!(soon(election.clone().campaign()).await, Err(Error::Invalid(_)));
    drop(leader);
    assert!(!election.is_leader());
    ok(ok(election.campaign()).await.resign()).await;
}
