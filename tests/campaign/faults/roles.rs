//! Others become the primary, and slots move, because somebody wants it so.

use super::Fault;
use crate::topology::MOVED;
use harness::Server;
use harness::cluster::is_master;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "failover on demand",
        weight: 3,
        on: |at| at.fails_over(),
        act: |at, moment, random| at.fail_over(moment, random),
    },
    Fault {
        name: "slots moved there and back",
        weight: 2,
        on: |at| at.nodes().is_some(),
        act: |at, moment, _| {
            let Some(nodes) = at.nodes() else { return };
            let home = nodes.home();
            let is_away = |node: &&Server| is_master(node) && node.port() != home.port();
            let away = nodes.cluster.nodes().iter().rfind(is_away).expect("there are three");
            moment.is(|| {
                nodes.cluster.reshard(home, away, MOVED);
                nodes.cluster.reshard(away, home, MOVED);
            });
        },
    },
];
