//! Topologies of servers, one file for each: how they are started, repaired and inspected.
//!
//! Their faults are in [`faults`](crate::faults) and use the methods of a topology.

mod addresses;
mod cluster;
mod five;
mod fuzz_target;
mod pair;
mod sentinel;
mod single;
mod strangers;

pub(crate) use cluster::{ClusterNodes, MOVED};
pub(crate) use five::{FiveIndependent, SERVERS};
pub(crate) use fuzz_target::FuzzTarget;
pub(crate) use pair::Pair;
pub(crate) use sentinel::SentinelSite;
pub(crate) use single::Single;
pub(crate) use strangers::{GUEST, PairWithStrangers, WirePair, guest};

use crate::report::Report;
use crate::round::Moment;
use crate::workload::ClientRoute;
use harness::proxy::Proxy;
use harness::random::Random;
use harness::{Options, Server, observe};
use std::any::Any;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Servers under load.
pub(crate) trait Topology: Any + Sync {
    /// All servers.
    fn servers(&self) -> Vec<&Server>;

    /// The ways in which the workload reaches the servers, each with its own connections.
    fn routes(&self, runtime: &Runtime) -> Vec<ClientRoute>;

    /// The keys of a round.
    fn keys(&self, round: u64) -> Vec<String> {
        (0..6).map(|number| format!("r{round}-k{number}")).collect()
    }

    /// The leases of requests, in milliseconds.
    fn leases_ms(&self) -> &[u64];

    /// The primary of a random lock.
    fn primary(&self, random: &mut Random) -> &Server;

    /// The replicas that faults may stop; empty if there are none.
    fn replicas(&self) -> Vec<&Server> {
        Vec::new()
    }

    /// Returns whether a killed server still has all acknowledged grants after a restart.
    fn keeps_data(&self) -> bool {
        false
    }

    /// Returns whether clients on the given way follow a change of the primary.
    fn follows(&self, _way: usize) -> bool {
        true
    }

    /// Ports of the current primaries; empty if a primary is replaced only on demand, or never.
    fn primaries(&self) -> Vec<u16> {
        Vec::new()
    }

    /// Waits until the servers have recovered.
    fn recover(&self) {}

    /// Restarts a server, which may have been killed before.
    fn restart(&self, server: &Server) {
        server.restart();
    }

    /// State that is left after a round: holds of these locks, and any waiters, blocked clients or caught panics
    /// of the servers.
    fn left_behind(&self, keys: &[String]) -> Vec<String> {
        let here = &mut self.primary(&mut Random::new(0)).connect();
        let mut left = observe::left_behind(here, keys);
        for server in self.servers() {
            left.extend(observe::left_behind::<String>(&mut server.connect(), &[]));
        }
        left
    }

    /// The proxy before the given server, if there is one.
    fn proxy(&self, _server: &Server) -> Option<&Proxy> {
        None
    }

    /// Returns a function that waits until another server has replaced that primary. Call the method before
    /// the fault, and the function after it. `None` in a topology that does not fail over by itself.
    fn replacement<'a>(&'a self, _primary: &'a Server) -> Option<Box<dyn FnOnce() + 'a>> {
        None
    }

    /// May make a replaced server a replica of the new primary.
    fn rejoin(&self, _replaced: &Server, _random: &mut Random) {}

    /// Longest time from the replacement of a primary to its repair. In this time two servers may both act as
    /// the primary.
    fn longest_split(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Makes another server the primary on demand, where there is another.
    fn fail_over(&self, _moment: &mut Moment<'_>, _random: &mut Random) {}

    /// Text that sums up all rounds; `None` selects the usual one. May also add counts to the report.
    fn sum_up(&self, _report: &Report) -> Option<String> {
        None
    }
}

fn longest(leases_ms: &[u64]) -> Duration {
    Duration::from_millis(leases_ms.iter().copied().max().unwrap_or_default())
}

/// Options of a server that keeps its data: every answered command is in a file, on a file system in memory.
fn durable(options: Options) -> Options {
    options.in_memory().append_only("always")
}

/// The topology as type `T`; `None` if it has another type.
pub(crate) fn cast<T: Topology>(at: &dyn Topology) -> Option<&T> {
    (at as &dyn Any).downcast_ref()
}

/// A message if a server has crashed, or does not answer. Not for use during a fault.
pub(crate) fn crash(server: &Server) -> Option<String> {
    let log = server.log();
    let reported = ["BUG REPORT", "ASSERTION FAILED", "crashed by signal"];
    let report = log.lines().find(|line| reported.iter().any(|word| line.contains(word)));
    if let Some(line) = report {
        return Some(format!("the server on port {} crashed: {line}", server.port()));
    }
    (!server.is_alive()).then(|| format!("the server on port {} is dead or stuck", server.port()))
}
