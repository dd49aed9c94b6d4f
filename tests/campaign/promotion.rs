//! Kills primaries, and measures how much later clients get locks from the next primary than a polling client
//! can write to it.

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

/// Number of clients, each with its own connections, that acquire locks in sequence.
const CLIENTS: usize = 4;

/// No failover is faster: earlier grants come from the primary that died.
const FASTEST: Duration = Duration::from_millis(500);

/// Limit, in microseconds, for the time from the first plain write on the new primary to the first grant. At
/// most half of these times may exceed it.
const LATE_US: i64 = 200_000;

const LONGEST: Duration = Duration::from_secs(120);

// Names of measured times.
const GRANT: &str = "first grant";
const KNOWN: &str = "a plain write for a client that asks all the time";
const LATER: &str = "first grant, later than could be known";

/// The component that replaces a primary.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Sentinels, which consider a primary dead after one second.
    Sentinel,
    /// Nodes of a cluster, which consider a master dead after one second.
    Cluster,
}

/// Measures `count` promotions. At least half of the first grants must be in time.
pub(crate) fn play(kind: Kind, count: u64, report: &Report) {
    match kind {
        Kind::Sentinel => of_sentinel(count, report),
        Kind::Cluster => of_cluster(count, report),
    }
    report.add("primaries killed", count);
    report.is_mostly_below(LATER, LATE_US);
    let spreads = [GRANT, LATER].map(|what| format!("{what}: {}", report.spread(what)));
    let spreads = spreads.join("; ");
    report.figure(format!("{count} primaries killed, {CLIENTS} clients; {spreads}"));
}

fn of_sentinel(count: u64, report: &Report) {
    let site = Site::of(3);
    for sentinel in site.sentinels() {
        sentinel.connect().call(cmd!["SENTINEL", "SET", NAME, "failover-timeout", 3000]);
    }
    for _ in 0..count {
        // The next failover can begin only after twice the failover timeout.
        sleep(Duration::from_secs(7));
        site.wait_until_in_order();
        let before = site.primary();
        let next = || site.successor_of(before).map(|next| site.server(next));
        kill(&site.url(), site.server(before), "k", next, report);
        site.wait_for_successor(before);
        site.server(before).restart();
    }
}

fn of_cluster(count: u64, report: &Report) {
    let cluster = Cluster::start(3, 1);
    for node in cluster.nodes() {
        node.connect().call(cmd!["CONFIG", "SET", "cluster-node-timeout", 1000]);
    }
    for _ in 0..count {
        cluster.wait_until_agreed();
        let master = cluster.node_for("k");
        let replica = cluster.replica_of(master);
        // The URL has all nodes. A living one redirects the clients to the node that has the key.
        kill(&cluster.url(), master, "k", || Some(replica), report);
        cluster.wait_for_takeover(replica);
        master.restart();
    }
}

/// The times of each client's grants.
type Grants = [Mutex<Vec<Instant>>; CLIENTS];

/// The time of each client's first grant after `moment`; `None` if a client had none.
fn granted_after(grants: &Grants, moment: Instant) -> Option<[Instant; CLIENTS]> {
    let mut first = [moment; CLIENTS];
    for (first, grants) in first.iter_mut().zip(grants) {
        let grants = grants.lock().unwrap_or_else(PoisonError::into_inner);
        *first = grants.iter().copied().find(|at| *at > moment)?;
    }
    Some(first)
}

/// Kills the given server while clients keep acquiring locks with the given hash tag. Measures the time to
/// the first grant, and the time until the next primary accepts a write.
fn kill<'a>(
    url: &str,
    server: &Server,
    tag: &str,
    next: impl Fn() -> Option<&'a Server>,
    report: &Report,
) {
    let runtime = Runtime::new().expect("a runtime");
    let (grants, over) = (Arc::<Grants>::default(), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for number in 0..CLIENTS {
        let builder = Client::builder().patience(LONGEST);
        let client = runtime.block_on(builder.connect(url)).expect("the primary answers");
        let (grants, over, key) = (grants.clone(), over.clone(), format!("{{{tag}}}{number}"));
        let work = async move {
            while !over.load(Ordering::SeqCst) {
                let guard = client.lock(&key).acquire().await.expect("it is granted in the end");
                grants[number].lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
                // If this fails, only this client has to wait: no other client wants this lock.
                let _lost = guard.release().await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tasks.spawn_on(work, runtime.handle());
    }
    let all_after = |moment| {
        wait::until("all have been granted something", LONGEST, || {
            granted_after(&grants, moment).ok_or_else(String::new)
        })
    };
    all_after(Instant::now());
    server.kill9();
    let killed = Instant::now();
    wait::until_is("it is known", LONGEST, true, || next().is_some_and(|next| writes(next, tag)));
    let known = killed.elapsed();
    let first = all_after(killed + FASTEST).into_iter().min().map_or(LONGEST, |at| at - killed);
    over.store(true, Ordering::SeqCst);
    runtime.block_on(tasks.join_all());
    report.took(KNOWN, known);
    report.took(GRANT, first);
    report.took(LATER, first.saturating_sub(known));
}

/// Returns whether the server accepts a plain write now.
fn writes(server: &Server, tag: &str) -> bool {
    let Ok(mut connection) = Connection::open(server.port()) else { return false };
    connection.send(cmd!["SET", format!("{{{tag}}}plain"), "x"]);
    matches!(connection.receive(LONGEST), Ok(Value::Status(_)))
}
