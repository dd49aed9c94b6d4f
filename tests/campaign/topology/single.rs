//! One server behind a proxy, with a clock of its own.

use super::Topology;
use crate::setting::Setting;
use crate::workload::Way;
use harness::clock::Clock;
use harness::proxy::Proxy;
use harness::random::Random;
use harness::{Server, observe};
use std::time::Duration;
use tokio::runtime::Runtime;

const LEASES_MS: [u64; 4] = [100, 300, 1000, 3000];

pub(crate) struct Single {
    server: Server,
    proxy: Proxy,
    pub(crate) clock: Clock,
    setting: Setting,
}

impl Single {
    pub(crate) fn start(setting: Setting) -> Box<dyn Topology> {
        let clock = Clock::new();
        let server = setting.options(Duration::ZERO).clock(&clock).start();
        observe::end_quarantine(&mut server.connect());
        let proxy = Proxy::new();
        proxy.lead_to(&server);
        Box::new(Self { server, proxy, clock, setting })
    }
}

impl Topology for Single {
    fn servers(&self) -> Vec<&Server> {
        vec![&self.server]
    }

    /// One of the clients reaches the server whatever happens to the way of the others.
    fn ways(&self, runtime: &Runtime) -> Vec<Way> {
        let there = format!("redis://127.0.0.1:{}/", self.proxy.port());
        let urls = [there.clone(), there, self.server.url()];
        let builder = || self.setting.builder(0).reply_timeout(Duration::from_secs(1));
        urls.map(|url| Way::one(runtime, builder(), url)).into()
    }

    fn leases_ms(&self) -> &[u64] {
        &LEASES_MS
    }

    fn primary(&self, _random: &mut Random) -> &Server {
        &self.server
    }

    fn proxy(&self, _server: &Server) -> Option<&Proxy> {
        Some(&self.proxy)
    }
}
