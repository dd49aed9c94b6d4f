//! A primary, two replicas and three Sentinels, each server behind a proxy. Half of the clients ask the
//! Sentinels; each of the others always uses one server.

use super::{Topology, durable, longest};
use crate::round::Moment;
use crate::setting::Setting;
use crate::workload::ClientRoute;
use harness::proxy::Proxy;
use harness::random::Random;
use harness::site::{NAME, Site};
use harness::{Server, cmd, observe};
use kvlock::Builder;
use std::time::Duration;
use tokio::runtime::Runtime;

const REPLICAS: u32 = 2;

const LEASES_MS: [u64; 8] = [50, 100, 100, 100, 200, 300, 1000, 3000];

/// Number of ways on which clients ask the Sentinels.
const ASKING: usize = 3;

pub(crate) struct SentinelSite {
    pub(crate) site: Site,
    setting: Setting,
    keeps_data: bool,
}

impl SentinelSite {
    pub(crate) fn start(setting: Setting) -> Box<dyn Topology> {
        Self::with(setting, true)
    }

    /// A topology whose servers have neither snapshots nor append-only files: a restarted server is empty.
    pub(crate) fn start_forgetful(setting: Setting) -> Box<dyn Topology> {
        Self::with(setting, false)
    }

    fn with(setting: Setting, keeps_data: bool) -> Box<dyn Topology> {
        let options = setting.options(longest(setting.leases_ms(&LEASES_MS)), REPLICAS);
        let options = if keeps_data { durable(options) } else { options.in_memory() };
        let site = Site::start(&[options.clone(), options.clone(), options]);
        for sentinel in site.sentinels() {
            // Another failover may begin after twice this time.
            sentinel.connect().call(cmd!["SENTINEL", "SET", NAME, "failover-timeout", 3000]);
        }
        if setting == Setting::Quarantine {
            observe::end_quarantine(&mut site.server(site.primary()).connect());
        }
        Box::new(Self { site, setting, keeps_data })
    }

    fn builder(&self) -> Builder {
        self.setting.builder(REPLICAS).reply_timeout(Duration::from_secs(2))
    }

    fn number_of(&self, server: &Server) -> usize {
        let mut all = 0..self.site.size();
        all.find(|number| self.site.server(*number).port() == server.port()).expect("one of ours")
    }
}

impl Topology for SentinelSite {
    fn servers(&self) -> Vec<&Server> {
        (0..self.site.size()).map(|number| self.site.server(number)).collect()
    }

    fn routes(&self, runtime: &Runtime) -> Vec<ClientRoute> {
        let watched = (0..ASKING).map(|_| self.site.url());
        let urls = watched.chain(self.servers().into_iter().map(Server::url));
        urls.map(|url| ClientRoute::one(runtime, self.builder(), url)).collect()
    }

    fn leases_ms(&self) -> &[u64] {
        self.setting.leases_ms(&LEASES_MS)
    }

    fn keeps_data(&self) -> bool {
        self.keeps_data
    }

    fn replicas(&self) -> Vec<&Server> {
        let primary = self.site.primary();
        let others = (0..self.site.size()).filter(|number| *number != primary);
        others.map(|number| self.site.server(number)).collect()
    }

    /// The first three ways ask the Sentinels.
    fn follows(&self, route: usize) -> bool {
        route < ASKING
    }

    fn primary(&self, _random: &mut Random) -> &Server {
        self.site.server(self.site.primary())
    }

    fn primaries(&self) -> Vec<u16> {
        vec![self.site.server(self.site.primary()).port()]
    }

    fn recover(&self) {
        self.site.wait_until_in_order();
    }

    fn proxy(&self, server: &Server) -> Option<&Proxy> {
        Some(self.site.proxy(self.number_of(server)))
    }

    fn replacement<'a>(&'a self, primary: &'a Server) -> Option<Box<dyn FnOnce() + 'a>> {
        Some(Box::new(|| {
            self.site.wait_for_successor(self.number_of(primary));
        }))
    }

    /// The Sentinels reconfigure a replaced primary only after about ten seconds, and some clients use it
    /// until then. In most cases this method reconfigures it earlier, as an operator might.
    fn rejoin(&self, replaced: &Server, random: &mut Random) {
        if random.percent(70) {
            let next = self.site.proxy(self.site.primary()).port();
            replaced.connect().call(cmd!["REPLICAOF", "127.0.0.1", next]);
        }
    }

    fn longest_split(&self) -> Duration {
        // With a longer time, the quarantine might not prevent overlaps.
        Duration::from_millis(if self.setting == Setting::Quarantine { 1500 } else { 3000 })
    }

    fn fail_over(&self, moment: &mut Moment<'_>, _random: &mut Random) {
        moment.leaves_two();
        moment.is(|| self.site.fail_over());
    }
}
