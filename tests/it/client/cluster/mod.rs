//! A client of a cluster.
//!
//! What servers do to locks while slots move is in `tests/it/cluster`; here it is what the client
//! makes of their answers.

mod everyday;
mod failover;
mod load;
mod moves;
mod seeds;

use super::{SOON, soon};
use harness::cluster::Cluster;
use harness::{Server, Value, cmd, observe, wait};
use kvlock::{Client, Error};
use std::time::{Duration, Instant};

/// Longer than anything here takes: what ends earlier was not ended by the lease.
const LONG: Duration = Duration::from_secs(600);

/// How long a failover and what follows from it may take.
const FAILOVER: Duration = Duration::from_secs(60);

async fn client(cluster: &Cluster) -> Client {
    client_with(cluster, LONG).await
}

async fn client_with(cluster: &Cluster, lease: Duration) -> Client {
    let builder = Client::builder().lease(lease).patience(FAILOVER);
    builder.connect(cluster.url()).await.unwrap()
}

/// For what the harness does while tasks of the client go on.
fn meanwhile<T>(what: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(what)
}

/// A key at each of the three masters.
fn a_key_of_each(cluster: &Cluster) -> Vec<String> {
    let on = |node: &Server| {
        let mut keys = (0..).map(|number| format!("k{number}"));
        keys.find(|key| cluster.node_for(key).port() == node.port()).unwrap()
    };
    cluster.nodes()[..3].iter().map(on).collect()
}

/// A key in one of the slots that are moved first: the lowest of their node.
fn early_key(cluster: &Cluster) -> String {
    (0..).map(|number| format!("k{number}")).find(|key| cluster.slot_of(key) < 100).unwrap()
}

fn follows(node: &Server, master: &Server) -> bool {
    node.is_running()
        && observe::info_field(&mut node.connect(), "master_port")
            == Some(master.port().to_string())
}

fn replica_of<'a>(cluster: &'a Cluster, master: &Server) -> &'a Server {
    cluster.nodes().iter().find(|node| follows(node, master)).expect("it has a replica")
}

fn is_master(node: &Server) -> bool {
    observe::info_field(&mut node.connect(), "role").as_deref() == Some("master")
}

/// Waits until a replica has taken over, for the others too.
fn wait_for_takeover(cluster: &Cluster, replica: &Server) {
    let mut there = replica.connect();
    wait::until("the replica has taken over", FAILOVER, || {
        match observe::info_field(&mut there, "role") {
            Some(role) if role == "master" => Ok(()),
            role => Err(format!("{role:?}")),
        }
    });
    let id = cluster.id_of(replica);
    for node in cluster.nodes().iter().filter(|node| node.is_alive()) {
        let mut node = node.connect();
        wait::until("all know it", FAILOVER, || {
            let nodes = node.run("CLUSTER NODES").text();
            let line = nodes.lines().find(|line| line.starts_with(&id)).unwrap_or_default();
            if line.contains("master") && line.contains('-') { Ok(()) } else { Err(nodes) }
        });
    }
}

/// Lets its replica take over from a master in order. Returns the replica.
fn fail_over<'a>(cluster: &'a Cluster, master: &Server) -> &'a Server {
    let replica = replica_of(cluster, master);
    let mut there = replica.connect();
    let mut asked: Option<Instant> = None;
    wait::until("the replica has taken over", FAILOVER, || {
        // It gives up after five seconds if the two do not come together.
        if asked.is_none_or(|at| at.elapsed() > Duration::from_secs(6)) {
            asked = Some(Instant::now());
            there.run("CLUSTER FAILOVER");
        }
        if is_master(replica) { Ok(()) } else { Err(there.run("ROLE").to_string()) }
    });
    replica
}

/// The lock is free at the node that has it.
fn wait_until_free(cluster: &Cluster, key: &str) {
    let mut there = cluster.node_for(key).connect();
    wait::until("it is released", SOON, || match there.call(cmd!["EXISTS", key]) {
        Value::Integer(0) => Ok(()),
        held => Err(held.to_string()),
    });
}
