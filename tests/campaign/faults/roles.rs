//! Others become the primary, and slots move, because somebody wants it so.

use super::{Fault, fails_over, fault, in_a_cluster};
use crate::topology::MOVED;
use harness::Server;
use harness::cluster::is_master;

pub(super) const FAULTS: &[Fault] = &[
    fault("failover on demand", 3, fails_over, |at, moment, random| {
        at.fail_over(moment, random);
    }),
    fault("slots moved there and back", 2, in_a_cluster, |at, moment, _| {
        let Some(nodes) = at.nodes() else { return };
        let home = nodes.home();
        let is_away = |node: &&Server| is_master(node) && node.port() != home.port();
        let away = nodes.cluster.nodes().iter().rfind(is_away).expect("there are three");
        moment.is(|| {
            nodes.cluster.reshard(home, away, MOVED);
            nodes.cluster.reshard(away, home, MOVED);
        });
    }),
];
