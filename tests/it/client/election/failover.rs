//! Another server takes over: terms grow, and one leads at the end.

use super::*;
use crate::client::sentinel::settle;
use harness::cluster::Cluster;
use harness::sentinel::Watched;
use harness::{Server, Value, cmd};
use kvlock::{Client, Token};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What has happened in an election: who led, in which term.
type Terms = Arc<Mutex<Vec<(usize, Token)>>>;

/// Three that lead whenever they can, and an observer, each with a client of its own.
struct Group {
    name: String,
    candidates: Vec<Election>,
    led: Terms,
    /// The terms that were seen.
    seen: Arc<Mutex<Vec<Token>>>,
    observer: kvlock::Observer,
    tasks: tokio::task::JoinSet<()>,
}

impl Group {
    async fn of(url: &str) -> Self {
        Self::of_named(url, "k").await
    }

    async fn of_named(url: &str, name: &str) -> Self {
        let mut tasks = tokio::task::JoinSet::new();
        let (led, seen): (Terms, Arc<Mutex<Vec<Token>>>) = Default::default();
        let mut candidates = Vec::new();
        for number in 0..3 {
            let builder = Client::builder().lease(Duration::from_secs(6));
            let client = builder.patience(Duration::from_secs(120)).connect(url).await.unwrap();
            let election = client.election(name).value(number.to_string());
            candidates.push(election.clone());
            let led = led.clone();
            tasks.spawn(async move {
                let work = |term| {
                    led.lock().unwrap().push((number, term));
                    std::future::pending::<()>()
                };
                election.lead(work).await.unwrap();
            });
        }
        let client = Client::connect(url).await.unwrap();
        let observer = soon(client.election(name).observe()).await.unwrap();
        let (mut watches, noted) = (observer.clone(), seen.clone());
        tasks.spawn(async move {
            loop {
                if let Some(leader) = watches.leader() {
                    noted.lock().unwrap().push(leader.term);
                }
                watches.changed().await;
            }
        });
        Self { name: name.to_owned(), candidates, led, seen, observer, tasks }
    }

    fn leaders(&self) -> Vec<usize> {
        let leads = |(number, election): (usize, &Election)| election.is_leader().then_some(number);
        self.candidates.iter().enumerate().filter_map(leads).collect()
    }

    fn terms(&self) -> usize {
        self.led.lock().unwrap().len()
    }

    /// Whoever leads is forced out where the election is now, and another one leads.
    fn force_out(&self, at: &Server) {
        let before = self.terms();
        let forced = at.connect().call(cmd!["LOCK.FORCERELEASE", self.name]);
        assert_eq!(forced, Value::Integer(1));
        comes_true("another leads", || self.terms() > before);
        self.settles();
    }

    /// Exactly one leads, everybody sees who, and no term was smaller than the one before.
    fn settles(&self) {
        wait::until("one leads, and is seen to", Duration::from_secs(60), || {
            let (leaders, seen) = (self.leaders(), self.observer.leader());
            let last = self.led.lock().unwrap().last().copied();
            let agreed = match (&leaders[..], &seen, last) {
                ([one], Some(seen), Some((who, term))) => {
                    *one == who && seen.term == term && seen.value == who.to_string().as_bytes()
                }
                _ => false,
            };
            if agreed { Ok(()) } else { Err(format!("{leaders:?} {seen:?} {last:?}")) }
        });
        let led = self.led.lock().unwrap();
        assert!(led.is_sorted_by(|a, b| a.1 < b.1), "{led:?}");
        let seen = self.seen.lock().unwrap();
        assert!(seen.is_sorted(), "{seen:?}");
    }
}

/// Waits until the leader and the observer are told of it there.
fn are_told(at: &Server, name: &str) {
    wait::until("two observe it", SOON, || {
        let info = at.connect().call(cmd!["LOCK.INFO", name]);
        let some = info.to_string().contains("observers");
        let all = some && info.field("observers") == &Value::Integer(2);
        if all { Ok(()) } else { Err(info.to_string()) }
    });
}

/// Waits until it knows it: until then it is a primary for itself.
fn is_deposed(server: &Server) {
    wait::until("it is a replica", SOON, || {
        let mut eye = server.connect();
        eye.send(cmd!["ROLE"]);
        // Its connections are closed when it becomes one.
        let role = eye.receive(SOON).map_err(|error| format!("{error:?}"))?;
        if role[0].text() == "slave" { Ok(()) } else { Err(role.to_string()) }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_after_each_failover_by_sentinels() {
    let watched = Watched::start(1);
    let mut group = Group::of(&watched.url()).await;
    group.settles();
    for _ in 0..2 {
        let before = watched.primary();
        let primary = tokio::task::block_in_place(|| watched.fail_over());
        is_deposed(before);
        settle(primary, before);
        group.settles();
        group.force_out(primary);
    }
    group.tasks.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_after_each_failover_in_a_cluster() {
    let cluster = Cluster::start(3, 1);
    let mut group = Group::of(&cluster.url()).await;
    group.settles();
    for _ in 0..2 {
        let master = cluster.node_for("k");
        let primary = tokio::task::block_in_place(|| cluster.fail_over(master));
        group.settles();
        group.force_out(primary);
    }
    group.tasks.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn observers_and_leaders_follow_a_slot_that_moves() {
    let cluster = Cluster::start(3, 0);
    // Its slot is among the first, which go first.
    let name = (0..).map(|n| format!("k{n}")).find(|name| cluster.slot_of(name) < 20).unwrap();
    let mut group = Group::of_named(&cluster.url(), &name).await;
    group.settles();
    let before = group.terms();
    let (from, to) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    are_told(from, &group.name);
    tokio::task::block_in_place(|| cluster.reshard(from, to, 20));
    assert_eq!(cluster.node_for(&group.name).port(), to.port());
    // Who has not noticed yet leads on in any case.
    are_told(to, &group.name);
    group.settles();
    assert_eq!(group.terms(), before, "it leads on");
    group.force_out(to);
    group.tasks.shutdown().await;
}
