//! Five independent servers, each with a proxy and a clock, and locks on a quorum of them. The servers
//! store nothing on disk: a killed server restarts empty.

use super::Topology;
use super::single::ProxiedServer;
use crate::setting::Setting;
use crate::workload::ClientRoute;
use harness::proxy::Proxy;
use harness::random::Random;
use harness::{Server, observe};
use kvlock_quorum::Quorum;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

pub(crate) const SERVERS: usize = 5;

const LEASES_MS: [u64; 3] = [1500, 2000, 2500];

/// The longest lease plus one second.
const QUARANTINE_MS: u64 = 3500;

/// How far the clocks are ahead in [`FiveIndependent::start_apart`], in milliseconds.
const APART_MS: [i64; SERVERS] = [0, 5_000, -5_000, 3_600_000, -3_600_000];

/// Longest time that a quorum waits for one server.
const PATIENCE: Duration = Duration::from_secs(1);

pub(crate) struct FiveIndependent {
    pub(crate) nodes: [ProxiedServer; SERVERS],
    /// How far each clock is normally ahead.
    apart_ms: [i64; SERVERS],
    ahead_ms: [AtomicI64; SERVERS],
    setting: Setting,
}

impl FiveIndependent {
    /// Starts five servers. With a quarantine, a restarted server grants no lock until its earlier leases
    /// have ended; otherwise it grants at once.
    pub(crate) fn start(setting: Setting) -> Box<dyn Topology> {
        Self::with_clocks(setting, [0; SERVERS])
    }

    /// Like [`start`](Self::start), with clocks that differ by up to two hours.
    pub(crate) fn start_apart(setting: Setting) -> Box<dyn Topology> {
        Self::with_clocks(setting, APART_MS)
    }

    fn with_clocks(setting: Setting, apart_ms: [i64; SERVERS]) -> Box<dyn Topology> {
        let mut options = Server::options();
        if setting == Setting::Quarantine {
            options = options.module_config("quarantine-ms", QUARANTINE_MS);
        }
        let nodes = apart_ms.map(|ahead_ms| ProxiedServer::start(options.clone(), ahead_ms));
        Box::new(Self { nodes, apart_ms, ahead_ms: Default::default(), setting })
    }

    pub(crate) fn set_clock(&self, server: usize, ahead_ms: i64) {
        self.nodes[server].clock.set(self.apart_ms[server] + ahead_ms);
        self.ahead_ms[server].store(ahead_ms, Ordering::SeqCst);
    }

    fn number_of(&self, server: &Server) -> usize {
        let is_it = |node: &ProxiedServer| node.server.port() == server.port();
        self.nodes.iter().position(is_it).expect("one of these")
    }

    /// How far the clock of the given server is ahead of its normal time, in milliseconds.
    pub(crate) fn ahead_ms(&self, server: usize) -> i64 {
        self.ahead_ms[server].load(Ordering::SeqCst)
    }
}

impl Topology for FiveIndependent {
    fn servers(&self) -> Vec<&Server> {
        self.nodes.iter().map(|node| &node.server).collect()
    }

    fn routes(&self, runtime: &Runtime) -> Vec<ClientRoute> {
        let connect = async || {
            let mut clients = Vec::new();
            for node in &self.nodes {
                let builder = self.setting.builder(0).reply_timeout(2 * PATIENCE);
                clients.push(builder.connect(node.url()).await.expect("the server answers"));
            }
            let quorum = Quorum::of(clients).await.expect("all are there");
            ClientRoute::Quorum(quorum.server_timeout(PATIENCE))
        };
        (0..3).map(|_| runtime.block_on(connect())).collect()
    }

    fn leases_ms(&self) -> &[u64] {
        &LEASES_MS
    }

    /// A random one of the servers: there is no primary.
    fn primary(&self, random: &mut Random) -> &Server {
        &random.pick(&self.nodes).server
    }

    /// Restarts the server with its normal clock.
    fn restart(&self, server: &Server) {
        self.set_clock(self.number_of(server), 0);
        server.restart();
    }

    fn proxy(&self, server: &Server) -> Option<&Proxy> {
        Some(&self.nodes[self.number_of(server)].proxy)
    }

    fn left_behind(&self, keys: &[String]) -> Vec<String> {
        let of = |server: &Server| observe::left_behind(&mut server.connect(), keys);
        self.servers().into_iter().flat_map(of).collect()
    }
}
