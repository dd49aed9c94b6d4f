//! A primary, two replicas and three Sentinels, each server behind a proxy. Most clients ask the
//! Sentinels; some stay at one server, whatever becomes of it.

use crate::ground::{Fault, Ground, Promises, commands};
use crate::round::Moment;
use crate::way::Way;
use harness::random::Random;
use harness::sentinel::NAME;
use harness::site::Site;
use harness::{Options, Server, cmd, observe};
use kvlock::{Builder, Client};
use nix::sys::signal::Signal;
use std::thread::sleep;
use std::time::Duration;

const REPLICAS: u32 = 2;

/// How long replicas may take to confirm.
const CONFIRM: Duration = Duration::from_millis(500);

const LEASES_MS: [u64; 8] = [50, 100, 100, 100, 200, 300, 1000, 3000];

/// With a quarantine: nothing is granted for longer than these, after each failover.
const SHORT_LEASES_MS: [u64; 5] = [50, 100, 100, 300, 1000];

/// The longest lease, the lag that a primary without replicas is granted, a second, and two until
/// one that stood still goes on.
const QUARANTINE_MS: u64 = 1000 + 1000 * MAX_LAG + 1000 + 2000;

/// In seconds.
const MAX_LAG: u64 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Setting {
    Replicas,
    Quarantine,
    Default,
}

pub(crate) struct Watched {
    site: Site,
    setting: Setting,
}

impl Watched {
    pub(crate) fn start(setting: &str) -> Option<Self> {
        let setting = match setting {
            "" | "replicas" => Setting::Replicas,
            "quarantine" => Setting::Quarantine,
            "default" => Setting::Default,
            _ => return None,
        };
        let options = setting.options();
        let site = Site::start(&[options.clone(), options.clone(), options]);
        for sentinel in site.sentinels() {
            // Another failover may begin after twice that.
            sentinel.connect().call(cmd!["SENTINEL", "SET", NAME, "failover-timeout", 3000]);
        }
        if setting == Setting::Quarantine {
            observe::end_quarantine(&mut site.server(site.primary()).connect());
        }
        Some(Self { site, setting })
    }

    fn primary(&self) -> &Server {
        self.site.server(self.site.primary())
    }

    fn builder(&self) -> Builder {
        let builder = Client::builder().reply_timeout(Duration::from_secs(2));
        match self.setting {
            Setting::Replicas => builder.all_replicas(REPLICAS, CONFIRM),
            Setting::Quarantine | Setting::Default => builder,
        }
    }

    /// For so long two may be the primary at the same time.
    fn stay_apart(&self, random: &mut Random) {
        let most = if self.setting == Setting::Quarantine { 500 } else { 3000 };
        sleep(Duration::from_millis(random.below(most)));
    }

    /// The Sentinels leave the one before as it is for some ten seconds, with whoever is beside it.
    /// Sometimes an operator is faster.
    fn depose(&self, before: usize, random: &mut Random) {
        if random.percent(70) {
            let next = self.site.proxy(self.site.primary()).port();
            self.site.server(before).connect().call(cmd!["REPLICAOF", "127.0.0.1", next]);
        }
    }

    fn kill(&self, moment: &mut Moment<'_>, random: &mut Random) {
        moment.leaves_two();
        let before = self.site.primary();
        moment.is(|| self.site.server(before).kill9());
        self.site.wait_for_successor(before);
        self.site.server(before).restart();
        self.depose(before, random);
    }

    fn stop_past_failover(&self, moment: &mut Moment<'_>, random: &mut Random) {
        moment.leaves_two();
        let before = self.site.primary();
        moment.is(|| {
            self.site.server(before).signal(Signal::SIGSTOP);
            self.site.wait_for_successor(before);
            self.stay_apart(random);
            self.site.server(before).signal(Signal::SIGCONT);
        });
        self.depose(before, random);
    }

    fn cut_past_failover(&self, moment: &mut Moment<'_>, random: &mut Random) {
        moment.leaves_two();
        let before = self.site.primary();
        moment.is(|| {
            self.site.proxy(before).cut();
            self.site.wait_for_successor(before);
            self.stay_apart(random);
            self.site.proxy(before).heal();
        });
        self.depose(before, random);
    }

    /// All that was on its way is lost, and nobody else takes over.
    fn cut_for_a_moment(&self, moment: &mut Moment<'_>, random: &mut Random) {
        let proxy = self.site.proxy(self.site.primary());
        moment.is(|| {
            proxy.cut();
            sleep(Duration::from_millis(50 + random.below(400)));
            proxy.heal();
        });
    }

    fn cut_replica(&self, moment: &mut Moment<'_>, random: &mut Random) {
        let primary = self.site.primary();
        let replica = (primary + 1 + random.below(2) as usize) % self.site.size();
        moment.is(|| {
            self.site.proxy(primary).cut_replica(self.site.proxy(replica).port());
            sleep(Duration::from_millis(100 + random.below(1500)));
            self.site.proxy(primary).heal();
        });
    }
}

impl Setting {
    fn options(self) -> Options {
        match self {
            Self::Replicas | Self::Default => Server::options(),
            Self::Quarantine => Server::options()
                .config("min-replicas-to-write", 1)
                .config("min-replicas-max-lag", MAX_LAG)
                .module_config("quarantine-ms", QUARANTINE_MS),
        }
    }
}

impl Ground for Watched {
    const FAULTS: &'static [Fault<Self>] = &[
        Fault { name: "kill -9 of the primary", weight: 3, act: Self::kill },
        Fault {
            name: "primary stopped, replaced, continued",
            weight: 3,
            act: Self::stop_past_failover,
        },
        Fault {
            name: "primary cut off, replaced, healed",
            weight: 3,
            act: Self::cut_past_failover,
        },
        Fault {
            name: "SENTINEL FAILOVER",
            weight: 2,
            act: |it, moment, _| {
                moment.leaves_two();
                moment.is(|| it.site.fail_over());
            },
        },
        Fault { name: "primary cut off for a moment", weight: 2, act: Self::cut_for_a_moment },
        Fault { name: "a replica cut off for a moment", weight: 2, act: Self::cut_replica },
        Fault {
            name: "CLIENT KILL",
            weight: 2,
            act: |it, moment, _| commands::kill_clients(it.primary(), moment),
        },
        Fault {
            name: "CLIENT PAUSE WRITE",
            weight: 2,
            act: |it, moment, random| commands::pause(it.primary(), "WRITE", moment, random),
        },
        Fault {
            name: "CLIENT PAUSE ALL",
            weight: 2,
            act: |it, moment, random| commands::pause(it.primary(), "ALL", moment, random),
        },
        Fault {
            name: "DEBUG SLEEP",
            weight: 2,
            act: |it, moment, random| commands::sleep(it.primary(), moment, random),
        },
        Fault {
            name: "primary stopped for a moment",
            weight: 2,
            act: |it, moment, random| commands::stop_for_a_moment(it.primary(), moment, random),
        },
    ];

    fn promises(&self) -> Promises {
        let safe = self.setting != Setting::Default;
        // With a quarantine alone a grant may be lost; but nobody else has it while it lasts.
        Promises { no_overlap: safe, no_loss: self.setting == Setting::Replicas }
    }

    async fn ways(&self) -> Vec<Way> {
        let mut ways = Vec::new();
        for _ in 0..3 {
            let client = self.builder().connect(self.site.url()).await;
            ways.push(Way::One(client.expect("the primary answers")));
        }
        for server in self.servers() {
            let client = self.builder().connect(server.url()).await;
            ways.push(Way::One(client.expect("the server answers")));
        }
        ways
    }

    fn keys(&self, round: u64) -> Vec<String> {
        (0..6).map(|number| format!("r{round}-k{number}")).collect()
    }

    fn leases(&self) -> Vec<Duration> {
        let leases: &[u64] = match self.setting {
            Setting::Quarantine => &SHORT_LEASES_MS,
            Setting::Replicas | Setting::Default => &LEASES_MS,
        };
        leases.iter().copied().map(Duration::from_millis).collect()
    }

    fn primaries(&self) -> Vec<u16> {
        vec![self.primary().port()]
    }

    fn recover(&self) {
        self.site.wait_until_in_order();
    }

    fn left_behind(&self, keys: &[String]) -> Vec<String> {
        let mut left = observe::left_behind(&mut self.primary().connect(), keys);
        for server in self.servers() {
            left.extend(observe::left_behind::<String>(&mut server.connect(), &[]));
        }
        left
    }

    fn servers(&self) -> Vec<&Server> {
        (0..self.site.size()).map(|number| self.site.server(number)).collect()
    }
}
