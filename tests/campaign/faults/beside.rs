//! Faults of replicas, Sentinels and links during another fault.
//!
//! The servers are chosen before the other fault begins, because it can keep servers from answering.

use super::{On, has_proxy, is_a, is_replicated};
use crate::topology::{SentinelSite, Topology, cast};
use harness::Server;
use harness::random::Random;
use nix::sys::signal::Signal;
use std::thread::sleep;
use std::time::Duration;

/// Causes a fault of a server or of its links, and repairs it.
pub(crate) type Act<'a> = Box<dyn FnOnce() + Send + 'a>;

/// A fault that can overlap with any other on its topology.
pub(crate) struct Beside {
    pub(crate) name: &'static str,
    /// `true` if the fault can happen on a topology.
    pub(crate) on: On,
    /// Chooses the server, and returns the action that causes and repairs the fault.
    pub(crate) prepare: for<'a> fn(&'a dyn Topology, &mut Random) -> Act<'a>,
}

/// Upper limits, in milliseconds, of the delay before the fault begins and of its duration.
const BEGINS_MS: u64 = 1500;
const LASTS_MS: u64 = 2000;

pub(crate) const BESIDE: &[Beside] = &[
    Beside {
        name: "beside another fault: a replica stopped",
        on: is_replicated,
        prepare: |at, random| {
            let replica = one(&at.replicas(), random);
            let (begins, lasts) = times(random);
            Box::new(move || {
                sleep(begins);
                replica.signal(Signal::SIGSTOP);
                sleep(lasts);
                replica.signal(Signal::SIGCONT);
            })
        },
    },
    Beside {
        name: "beside another fault: a Sentinel killed and back",
        on: is_a::<SentinelSite>,
        prepare: |at, random| {
            let SentinelSite { site, .. } = cast(at).expect("it has Sentinels");
            // The first Sentinel is not killed, because the campaign asks it for the primary.
            let sentinel = random.pick(&site.sentinels()[1..]);
            let (begins, lasts) = times(random);
            Box::new(move || {
                sleep(begins);
                sentinel.kill9();
                sleep(lasts);
                sentinel.restart();
            })
        },
    },
    Beside {
        name: "beside another fault: links of the primary take 1 to 100 ms",
        on: has_proxy,
        prepare: |at, random| {
            let link = at.proxy(at.primary(random)).expect("it has one");
            let (begins, lasts) = times(random);
            Box::new(move || {
                sleep(begins);
                link.delay(Duration::from_millis(1), Duration::from_millis(100));
                sleep(lasts);
                link.delay(Duration::ZERO, Duration::ZERO);
            })
        },
    },
];

fn one<'a>(servers: &[&'a Server], random: &mut Random) -> &'a Server {
    random.pick::<&'a Server>(servers)
}

fn times(random: &mut Random) -> (Duration, Duration) {
    let [begins, lasts] = [BEGINS_MS, LASTS_MS].map(|most| random.below(most));
    (Duration::from_millis(begins), Duration::from_millis(lasts))
}
