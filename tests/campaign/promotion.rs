//! How long after the death of a primary the next grants its first lock, beside how long it takes
//! until it does a plain write.

use crate::report::Report;
use harness::cluster::Cluster;
use harness::site::{NAME, Site};
use harness::{Connection, Server, Value, cmd, wait};
use kvlock::Client;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// How many clients want locks, each one after the other, with connections of their own.
const CLIENTS: usize = 4;

/// No failover is faster: what is granted before was granted by the one that died.
const FASTEST: Duration = Duration::from_millis(500);

/// How much later than the primary can be known the first lock is to be granted.
const LATE: Duration = Duration::from_millis(200);

const LONGEST: Duration = Duration::from_secs(120);

/// What replaces a primary.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Sentinels that give it up after a second.
    Sentinel,
    /// Nodes that give it up after a second.
    Cluster,
}

/// A failover: how long it took.
struct Taken {
    /// Until any of the other servers took a plain write.
    write: Duration,
    /// Until a client that asks all the time could know which it is, and had a plain write done.
    known: Duration,
    /// Until each client had a lock.
    grants: Vec<Duration>,
}

fn of_sentinel(count: u64) -> Vec<Taken> {
    let site = Site::of(3);
    for sentinel in site.sentinels() {
        sentinel.connect().call(cmd!["SENTINEL", "SET", NAME, "failover-timeout", 3000]);
    }
    let mut all = Vec::new();
    for _ in 0..count {
        // The next begins after twice the failover timeout only.
        sleep(Duration::from_secs(7));
        site.wait_until_in_order();
        let before = site.primary();
        let others: Vec<&Server> =
            (0..site.size()).filter(|n| *n != before).map(|n| site.server(n)).collect();
        let known = || site.successor_of(before).is_some_and(|now| writes(site.server(now), "k"));
        all.push(kill(&site.url(), site.server(before), &others, "k", known));
        site.wait_for_successor(before);
        site.server(before).restart();
    }
    all
}

fn of_cluster(count: u64) -> Vec<Taken> {
    let cluster = Cluster::start(3, 1);
    for node in cluster.nodes() {
        node.connect().call(cmd!["CONFIG", "SET", "cluster-node-timeout", 1000]);
    }
    let mut all = Vec::new();
    for _ in 0..count {
        cluster.wait_until_agreed();
        let master = cluster.node_for("k");
        let replica = cluster.replica_of(master);
        // Any of these may be asked: each server says which one has a key.
        all.push(kill(&cluster.url(), master, &[replica], "k", || writes(replica, "k")));
        cluster.wait_for_takeover(replica);
        master.restart();
    }
    all
}

/// Kills that server while locks whose names begin with that tag are wanted all the time.
fn kill(
    url: &str,
    server: &Server,
    others: &[&Server],
    tag: &str,
    known: impl Fn() -> bool,
) -> Taken {
    let runtime = Runtime::new().expect("a runtime");
    let over = Arc::new(AtomicBool::new(false));
    let mut grants = Vec::new();
    let mut tasks = JoinSet::new();
    for number in 0..CLIENTS {
        let builder = Client::builder().patience(LONGEST);
        let client = runtime.block_on(builder.connect(url)).expect("the primary answers");
        let (times, key) = (Arc::<Mutex<Vec<Instant>>>::default(), format!("{{{tag}}}{number}"));
        grants.push(times.clone());
        let over = over.clone();
        let work = async move {
            while !over.load(Ordering::SeqCst) {
                let guard = client.lock(&key).acquire().await.expect("it is granted in the end");
                times.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
                // Whether that succeeds does not matter: nobody else wants it.
                let _lost = guard.release().await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tasks.spawn_on(work, runtime.handle());
    }
    let has = |times: &Mutex<Vec<Instant>>, from: Instant| {
        let times = times.lock().unwrap_or_else(PoisonError::into_inner);
        times.iter().copied().find(|at| *at > from)
    };
    let start = Instant::now();
    wait::until_is("all have been granted something", LONGEST, true, || {
        grants.iter().all(|times| has(times, start).is_some())
    });
    server.kill9();
    let killed = Instant::now();
    let write = wait::until("a plain write is done", LONGEST, || {
        let done = others.iter().any(|other| writes(other, tag));
        if done { Ok(killed.elapsed()) } else { Err("no".to_owned()) }
    });
    let known = wait::until("it is known", LONGEST, || {
        if known() { Ok(killed.elapsed()) } else { Err("no".to_owned()) }
    });
    let grants = wait::until("all have been granted something again", LONGEST, || {
        let first = |times: &Arc<Mutex<Vec<Instant>>>| has(times, killed + FASTEST);
        let all: Option<Vec<Instant>> = grants.iter().map(first).collect();
        all.ok_or_else(String::new)
    });
    over.store(true, Ordering::SeqCst);
    runtime.block_on(async {
        while let Some(done) = tasks.join_next().await {
            done.expect("a task");
        }
    });
    let mut grants: Vec<Duration> = grants.into_iter().map(|at| at - killed).collect();
    grants.sort_unstable();
    Taken { write, known, grants }
}

/// Whether it takes a plain write now.
fn writes(server: &Server, tag: &str) -> bool {
    let Ok(mut connection) = Connection::open(server.port()) else { return false };
    connection.send(cmd!["SET", format!("{{{tag}}}plain"), "x"]);
    matches!(connection.receive(LONGEST), Ok(Value::Status(_)))
}

/// Measures that many promotions; half of the first grants must be in time.
pub(crate) fn play(kind: Kind, count: u64, report: &Report) {
    let all = match kind {
        Kind::Sentinel => of_sentinel(count),
        Kind::Cluster => of_cluster(count),
    };
    for Taken { write, known, grants } in &all {
        report.took("first plain write", *write);
        report.took("the same for a client that asks all the time", *known);
        let named = ["first grant", "first grant of the last client"];
        for (name, grant) in named.into_iter().zip([grants[0], grants[grants.len() - 1]]) {
            report.took(name, grant);
            report
                .took(&format!("{name}, later than could be known"), grant.saturating_sub(*known));
        }
    }
    report.add("primaries killed", count);
    let most = LATE.as_micros().try_into().expect("a moment");
    report.is_mostly_below("first grant, later than could be known", most);
    let spread = |what| format!("{what}: {}", report.spread(what));
    let names = ["first grant", "first grant, later than could be known"];
    report.figure(format!(
        "{count} primaries killed, {CLIENTS} clients; {}",
        names.map(spread).join("; ")
    ));
}
