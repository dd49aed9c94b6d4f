//! A replica that lacks the newest grants replaces its master.

use super::{Fault, cast, fault, on};
use crate::topology::Nodes;
use harness::cmd;
use std::thread::sleep;
use std::time::Duration;

/// Time in milliseconds in which the master grants alone: the minimum, and the upper limit of a random
/// addition.
const ALONE_MS: [u64; 2] = [1000, 3000];

/// Without safeguards, this fault loses grants more often than the other faults of a cluster, but not always.
/// So it is drawn often.
pub(super) const FAULTS: &[Fault] = &[fault(
    "master killed after its replica was cut off, replaced",
    12,
    on::<Nodes>,
    |at, moment, random| {
        let nodes = cast::<Nodes>(at).expect("it is a cluster");
        let alone = Duration::from_millis(ALONE_MS[0] + random.below(ALONE_MS[1]));
        let first = at.primary(random);
        let next = nodes.cluster.replica_of(first);
        let password =
            |it: &str| drop(next.connect().call(cmd!["CONFIG", "SET", "masterauth", it]));
        moment.leaves_two();
        moment.is(|| {
            // The master has no password, and so refuses the replica that connects with one.
            password("wrong");
            first.connect().call(cmd!["CLIENT", "KILL", "TYPE", "replica"]);
            sleep(alone);
            first.kill9();
            nodes.cluster.wait_for_takeover(next);
            password("");
            at.restart(first);
        });
    },
)
.replaces(1)];
