//! Others become the primary, and slots move, because somebody wants it so.

use super::{Fault, fails_over, fault, on};
use crate::topology::{MOVED, Nodes, cast};
use harness::Server;
use harness::cluster::is_master;

pub(super) const FAULTS: &[Fault] = &[
    fault("failover on demand", 3, fails_over, |at, moment, random| {
        at.fail_over(moment, random);
    }),
    fault("slots moved there and back", 2, on::<Nodes>, |at, moment, _| {
        let Some(nodes) = cast::<Nodes>(at) else { return };
        let home = nodes.home();
        let is_away = |node: &&Server| is_master(node) && node.port() != home.port();
        let away = nodes.cluster.nodes().iter().rfind(is_away).expect("there are three");
        moment.is(|| {
            nodes.cluster.reshard(home, away, MOVED);
            nodes.cluster.reshard(away, home, MOVED);
        });
    }),
];
