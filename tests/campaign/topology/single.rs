//! One server behind a proxy, with its own clock.

use super::Topology;
use super::addresses::{Addresses, Dead};
use crate::setting::Setting;
use crate::workload::ClientRoute;
use harness::clock::Clock;
use harness::proxy::Proxy;
use harness::random::Random;
use harness::{Options, Server, observe};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::runtime::Runtime;

const LEASES_MS: [u64; 4] = [100, 300, 1000, 3000];

/// URL of a host with two addresses: the first one never answers, the second one leads to the proxy.
const NAME: &str = "redis://locks.test/";

/// A server behind a proxy, with a clock that faults set.
pub(crate) struct ProxiedServer {
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
    pub(crate) clock: Clock,
}

impl ProxiedServer {
    pub(super) fn start(options: Options, ahead_ms: i64) -> Self {
        let clock = Clock::new();
        clock.set(ahead_ms);
        let server = options.clock(&clock).start();
        observe::end_quarantine(&mut server.connect());
        let proxy = Proxy::before(&server);
        Self { server, proxy, clock }
    }

    pub(super) fn url(&self) -> String {
        self.proxy.url()
    }
}

pub(crate) struct Single {
    pub(crate) one: ProxiedServer,
    setting: Setting,
    dead: Dead,
}

impl Single {
    pub(crate) fn start(setting: Setting) -> Box<dyn Topology> {
        let one = ProxiedServer::start(setting.options(Duration::ZERO, 0), 0);
        Box::new(Self { one, setting, dead: Dead::new() })
    }
}

impl Topology for Single {
    fn servers(&self) -> Vec<&Server> {
        vec![&self.one.server]
    }

    /// One client connects to the proxy, one by a name whose first address is dead, and one directly to the
    /// server.
    fn routes(&self, runtime: &Runtime) -> Vec<ClientRoute> {
        let builder = || self.setting.builder(0).reply_timeout(Duration::from_secs(1));
        let alive = SocketAddr::from((Ipv4Addr::LOCALHOST, self.one.proxy.port()));
        let by_name = builder().dns_resolver(Addresses([self.dead.address, alive]));
        vec![
            ClientRoute::one(runtime, builder(), self.one.url()),
            ClientRoute::one(runtime, by_name, NAME),
            ClientRoute::one(runtime, builder(), self.one.server.url()),
        ]
    }

    fn leases_ms(&self) -> &[u64] {
        &LEASES_MS
    }

    fn primary(&self, _random: &mut Random) -> &Server {
        &self.one.server
    }

    fn proxy(&self, _server: &Server) -> Option<&Proxy> {
        Some(&self.one.proxy)
    }
}
