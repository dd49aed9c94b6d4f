//! Operations of administrators: commands, coordinated failovers, moves of slots, and restarts one after
//! another.

use super::{Fault, anywhere, fails_over, fault, is_a};
use crate::round::Moment;
use crate::topology::{ClusterNodes, MOVED, SentinelSite, cast};
use harness::cluster::is_master;
use harness::random::Random;
use harness::{Server, cmd};
use std::time::Duration;

const RESTARTED: &str = "all restarted in turn";

pub(crate) const SLOTS_MOVED: &str = "slots moved there and back";

pub(super) const FAULTS: &[Fault] = &[
    fault("CLIENT KILL", 2, anywhere, |at, moment, random| {
        kill_clients(&[at.primary(random)], moment);
    }),
    fault("CLIENT KILL at all servers", 2, is_a::<ClusterNodes>, |at, moment, _| {
        kill_clients(&at.servers(), moment);
    }),
    fault("CLIENT PAUSE WRITE", 2, anywhere, |at, moment, random| {
        pause(at.primary(random), "WRITE", moment, random);
    }),
    fault("CLIENT PAUSE ALL", 2, anywhere, |at, moment, random| {
        pause(at.primary(random), "ALL", moment, random);
    }),
    fault("DEBUG SLEEP", 2, anywhere, |at, moment, random| {
        // At least 0.1 s, so that short leases end. Shorter than the time after which a failover begins.
        let time = format!("0.{}", 10 + random.below(50));
        let mut connection = at.primary(random).connect();
        moment.is(|| connection.call(cmd!["DEBUG", "SLEEP", time]));
    }),
    fault("failover on demand", 3, fails_over, |at, moment, random| {
        at.fail_over(moment, random);
    })
    .replaces(1),
    fault(SLOTS_MOVED, 2, is_a::<ClusterNodes>, |at, moment, _| {
        let Some(nodes) = cast::<ClusterNodes>(at) else { return };
        let home = nodes.home();
        let is_away = |node: &&Server| is_master(node) && node.port() != home.port();
        let away = nodes.cluster.nodes().iter().rfind(is_away).expect("there are three");
        moment.is(|| {
            nodes.cluster.reshard(home, away, MOVED);
            nodes.cluster.reshard(away, home, MOVED);
        });
    }),
    fault(RESTARTED, 1, is_a::<SentinelSite>, |at, moment, random| {
        let before = at.primary(random).port();
        let replicas = at.servers().into_iter().filter(|server| server.port() != before);
        for replica in replicas {
            replica.shut_down();
            replica.restart();
            at.recover();
        }
        at.fail_over(moment, random);
        at.recover();
        let deposed = at.servers().into_iter().find(|server| server.port() == before);
        let deposed = deposed.expect("it is one of them");
        deposed.shut_down();
        deposed.restart();
    })
    .replaces(1),
];

fn kill_clients(servers: &[&Server], moment: &mut Moment<'_>) {
    let mut connections: Vec<_> = servers.iter().map(|server| server.connect()).collect();
    moment.is(|| {
        for connection in &mut connections {
            connection.call(cmd!["CLIENT", "KILL", "TYPE", "normal"]);
        }
    });
}

fn pause(server: &Server, which: &str, moment: &mut Moment<'_>, random: &mut Random) {
    let time = 50 + random.below(250);
    server.connect().call(cmd!["CLIENT", "PAUSE", time, which]);
    moment.lasts(Duration::from_millis(time));
}
