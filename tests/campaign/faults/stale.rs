//! A replica that lacks the newest grants replaces its master.

use super::{Fault, cast, fault, is_a};
use crate::topology::ClusterNodes;
use crate::workload::Contested;
use harness::cmd;
use std::thread::sleep;
use std::time::Duration;

/// Time in milliseconds in which the master grants alone: the minimum, and the upper limit of a random
/// addition.
const ALONE_MS: [u64; 2] = [500, 1500];

/// Without safeguards, a grant is lost, and another client gets the lock while the first still relies on it.
pub(super) const FAULTS: &[Fault] = &[fault(
    "master killed after its replica was cut off, replaced",
    6,
    is_a::<ClusterNodes>,
    |at, moment, random| {
        let nodes = cast::<ClusterNodes>(at).expect("it is a cluster");
        let alone = Duration::from_millis(ALONE_MS[0] + random.below(ALONE_MS[1]));
        let first = at.primary(random);
        let next = nodes.cluster.replica_of(first);
        let password =
            |it: &str| drop(next.connect().call(cmd!["CONFIG", "SET", "masterauth", it]));
        // A lock in the same slot as one of the round.
        let is_there = |key: &&String| nodes.cluster.node_for(key).port() == first.port();
        let key = moment.round.keys.iter().find(is_there).expect("each master has one");
        let key = format!("{key}-contested-{}", random.below(1 << 40));
        let contested = Contested::new(moment.round, at, key);
        moment.leaves_two();
        let granted = moment.is(|| {
            // The master has no password, and so refuses the replica that connects with one.
            password("wrong");
            first.connect().call(cmd!["CLIENT", "KILL", "TYPE", "replica"]);
            let granted = contested.acquire_first();
            sleep(alone);
            first.kill9();
            nodes.cluster.wait_for_takeover(next);
            password("");
            at.restart(first);
            granted
        });
        contested.acquire_next(granted);
    },
)
.replaces(1)];
