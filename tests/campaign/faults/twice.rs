//! The primary is killed, and soon after it the server that took over.

use super::{Fault, fault, is_a};
use crate::topology::{ClusterNodes, SentinelSite};
use std::thread::sleep;
use std::time::Duration;

/// Upper limit, in milliseconds, of the random delay before the server that was killed second is restarted.
const AWAY_MS: u64 = 3000;

pub(super) const FAULTS: &[Fault] = &[
    fault(
        "primary killed, and the next as it takes over",
        2,
        is_a::<SentinelSite>,
        |at, moment, random| {
            let away = Duration::from_millis(random.below(AWAY_MS));
            let first = at.primary(random);
            let second_takes_over = at.replacement(first).expect("Sentinels replace it");
            moment.leaves_two();
            let second = moment.is(|| {
                first.kill9();
                second_takes_over();
                let second = at.primary(random);
                let third_takes_over = at.replacement(second).expect("Sentinels replace it");
                second.kill9();
                third_takes_over();
                at.restart(first);
                sleep(away);
                at.restart(second);
                second
            });
            at.rejoin(first, random);
            at.rejoin(second, random);
        },
    )
    .replaces(2),
    // The old master may be elected with the data from its disk.
    fault(
        "master killed, and the next as it is back",
        2,
        is_a::<ClusterNodes>,
        |at, moment, random| {
            let away = Duration::from_millis(random.below(AWAY_MS));
            let nodes = super::cast::<ClusterNodes>(at).expect("it is a cluster");
            let first = at.primary(random);
            let next = nodes.cluster.replica_of(first);
            moment.leaves_two();
            moment.is(|| {
                first.kill9();
                nodes.cluster.wait_for_takeover(next);
                at.restart(first);
                next.kill9();
                sleep(away);
                at.restart(next);
            });
        },
    )
    .replaces(1),
];
