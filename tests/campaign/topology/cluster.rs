//! A cluster of three masters with a replica each. Some of the locks are in slots that a fault moves.

use super::{Topology, durable, longest};
use crate::round::Moment;
use crate::setting::Setting;
use crate::workload::ClientRoute;
use harness::cluster::{Cluster, is_master};
use harness::random::Random;
use harness::{Server, cmd, observe, wait};
use std::time::Duration;
use tokio::runtime::Runtime;

/// The longest is longer than a failover takes on a busy machine.
const LEASES_MS: [u64; 8] = [30, 50, 100, 100, 300, 1000, 3000, 10_000];

/// Number of slots that move: the lowest ones.
pub(crate) const MOVED: u32 = 8;

pub(crate) struct ClusterNodes {
    pub(crate) cluster: Cluster,
    setting: Setting,
    /// Hash tags: first those of slots that move, then one for a slot of each master.
    tags: Vec<String>,
    keeps_data: bool,
}

impl ClusterNodes {
    pub(crate) fn start(setting: Setting) -> Box<dyn Topology> {
        Self::with(setting, true)
    }

    /// A topology whose servers have neither snapshots nor append-only files: a restarted server is empty.
    pub(crate) fn start_forgetful(setting: Setting) -> Box<dyn Topology> {
        Self::with(setting, false)
    }

    fn with(setting: Setting, keeps_data: bool) -> Box<dyn Topology> {
        let options = setting.options(longest(setting.leases_ms(&LEASES_MS)), 1);
        let options = if keeps_data { durable(options) } else { options.in_memory() };
        let cluster = Cluster::start_with(&options, 3, 1);
        for node in cluster.nodes() {
            node.connect().call(cmd!["CONFIG", "SET", "cluster-node-timeout", 1000]);
        }
        let names = || (0..).map(|number| format!("t{number}"));
        let moved = names().filter(|tag| cluster.slot_of(tag) < i64::from(MOVED)).take(2);
        let staying = [1000..5000, 6000..10_000, 12_000..16_000].map(|slots| {
            names().find(|tag| slots.contains(&cluster.slot_of(tag))).expect("there are many")
        });
        let tags = moved.chain(staying).collect();
        Box::new(Self { cluster, setting, tags, keeps_data })
    }

    /// The master of the slots that move.
    pub(crate) fn home(&self) -> &Server {
        self.cluster.node_for(&self.tags[0])
    }
}

impl Topology for ClusterNodes {
    fn servers(&self) -> Vec<&Server> {
        self.cluster.nodes().iter().collect()
    }

    fn routes(&self, runtime: &Runtime) -> Vec<ClientRoute> {
        let builder = || self.setting.builder(1).reply_timeout(Duration::from_secs(2));
        (0..4).map(|_| ClientRoute::one(runtime, builder(), self.cluster.url())).collect()
    }

    fn keys(&self, round: u64) -> Vec<String> {
        self.tags.iter().map(|tag| format!("{{{tag}}}r{round}")).collect()
    }

    fn leases_ms(&self) -> &[u64] {
        self.setting.leases_ms(&LEASES_MS)
    }

    fn primary(&self, random: &mut Random) -> &Server {
        self.cluster.node_for(random.pick(&self.tags))
    }

    fn keeps_data(&self) -> bool {
        self.keeps_data
    }

    fn replicas(&self) -> Vec<&Server> {
        self.servers().into_iter().filter(|node| node.is_running() && !is_master(node)).collect()
    }

    fn primaries(&self) -> Vec<u16> {
        self.tags.iter().map(|tag| self.cluster.node_for(tag).port()).collect()
    }

    fn recover(&self) {
        self.cluster.wait_until_agreed();
    }

    fn left_behind(&self, keys: &[String]) -> Vec<String> {
        let mut left = Vec::new();
        for key in keys {
            let mut there = self.cluster.node_for(key).connect();
            left.extend(observe::left_behind(&mut there, &[key]));
        }
        for node in self.cluster.nodes() {
            left.extend(observe::left_behind::<String>(&mut node.connect(), &[]));
        }
        left
    }

    fn replacement<'a>(&'a self, primary: &'a Server) -> Option<Box<dyn FnOnce() + 'a>> {
        let replica = self.cluster.replica_of(primary);
        Some(Box::new(move || {
            if !primary.is_running() {
                return self.cluster.wait_for_takeover(replica);
            }
            wait::until_is("its replica takes over", Duration::from_secs(60), true, || {
                is_master(replica)
            });
        }))
    }

    fn fail_over(&self, moment: &mut Moment<'_>, random: &mut Random) {
        let master = self.primary(random);
        moment.is(|| self.cluster.fail_over(master));
    }
}
