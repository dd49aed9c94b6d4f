//! A primary and its replica. The clients use one address: a proxy that leads to the primary.

use super::{Topology, durable, longest};
use crate::round::Moment;
use crate::setting::Setting;
use crate::workload::ClientRoute;
use harness::proxy::Proxy;
use harness::random::Random;
use harness::{Options, Server, cmd, observe, wait};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Shorter than some pauses of writes.
const LEASES_MS: [u64; 1] = [100];

/// Longer than a restart takes.
const LONG_LEASES_MS: [u64; 3] = [1000, 2000, 3000];

const SOON: Duration = Duration::from_secs(60);

pub(crate) struct Pair {
    pub(super) servers: Arc<[Server; 2]>,
    primary: AtomicUsize,
    address: Proxy,
    setting: Setting,
    leases_ms: &'static [u64],
    keeps_data: bool,
}

impl Pair {
    pub(crate) fn start(setting: Setting) -> Box<dyn Topology> {
        Box::new(Self::with(setting, &LEASES_MS, |options, _| durable(options)))
    }

    /// A pair without files, and with leases that outlast the restart of a server.
    pub(crate) fn start_forgetful(setting: Setting) -> Box<dyn Topology> {
        let pair = Self::with(setting, &LONG_LEASES_MS, |options, _| options.in_memory());
        Box::new(Self { keeps_data: false, ..pair })
    }

    /// A pair whose servers start with the options that `how` returns. With a quarantine, longer leases replace
    /// the given ones.
    pub(super) fn with(
        setting: Setting,
        leases_ms: &'static [u64],
        how: impl Fn(Options, usize) -> Options,
    ) -> Self {
        let leases_ms = setting.leases_ms(leases_ms);
        let options = || setting.options(longest(leases_ms), 1);
        let first = how(options(), 0).start();
        let second = how(options(), 1).replica_of(&first).start();
        observe::wait_for_replica(&mut first.connect(), &mut second.connect());
        observe::end_quarantine(&mut first.connect());
        let address = Proxy::before(&first);
        let servers = Arc::new([first, second]);
        Self {
            servers,
            primary: AtomicUsize::default(),
            address,
            setting,
            leases_ms,
            keeps_data: true,
        }
    }

    /// The primary and the replica.
    pub(super) fn roles(&self) -> (&Server, &Server) {
        let primary = self.primary.load(Ordering::SeqCst);
        (&self.servers[primary], &self.servers[1 - primary])
    }
}

impl Topology for Pair {
    fn servers(&self) -> Vec<&Server> {
        self.servers.iter().collect()
    }

    fn routes(&self, runtime: &Runtime) -> Vec<ClientRoute> {
        let url = format!("redis://127.0.0.1:{}/", self.address.port());
        let builder = || self.setting.builder(1).reply_timeout(Duration::from_secs(1));
        (0..2).map(|_| ClientRoute::one(runtime, builder(), url.as_str())).collect()
    }

    fn leases_ms(&self) -> &[u64] {
        self.leases_ms
    }

    fn keeps_data(&self) -> bool {
        self.keeps_data
    }

    fn replicas(&self) -> Vec<&Server> {
        vec![self.roles().1]
    }

    fn primary(&self, _random: &mut Random) -> &Server {
        self.roles().0
    }

    fn recover(&self) {
        let (primary, replica) = self.roles();
        observe::wait_for_replica_link(&mut replica.connect());
        wait::until_is("the primary knows it", SOON, 1, || {
            observe::info_number(&mut primary.connect(), "connected_slaves")
        });
    }

    fn proxy(&self, _server: &Server) -> Option<&Proxy> {
        Some(&self.address)
    }

    fn fail_over(&self, moment: &mut Moment<'_>, _random: &mut Random) {
        let (before, after) = self.roles();
        moment.is(|| {
            wait::until("the failover begins", SOON, || {
                let answer = before.connect().call(cmd!["FAILOVER", "TIMEOUT", 10_000]);
                if answer.is_error() { Err(answer.to_string()) } else { Ok(()) }
            });
            wait::until("the roles have changed", SOON, || {
                let role = |server: &Server| observe::info_field(&mut server.connect(), "role");
                let roles = (role(before), role(after));
                let changed = roles == (Some("slave".into()), Some("master".into()));
                if changed { Ok(()) } else { Err(format!("{roles:?}")) }
            });
        });
        // A server that is killed later must have the same role after its restart.
        for server in self.servers() {
            server.connect().call(cmd!["CONFIG", "REWRITE"]);
        }
        self.primary.fetch_xor(1, Ordering::SeqCst);
        self.address.lead_to(after);
        observe::wait_for_replica_link(&mut before.connect());
    }
}
