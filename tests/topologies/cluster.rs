//! A cluster of three masters with a replica each. Some of the locks are in slots that move.

use crate::ground::{Fault, Ground, Promises, commands};
use crate::round::Moment;
use crate::way::Way;
use harness::cluster::{Cluster, is_master};
use harness::random::Random;
use harness::{Server, cmd, observe, wait};
use kvlock::{Builder, Client};
use nix::sys::signal::Signal;
use std::thread::sleep;
use std::time::Duration;

/// How long a replica may take to confirm.
const CONFIRM: Duration = Duration::from_millis(500);

const LEASES_MS: [u64; 8] = [30, 50, 100, 100, 100, 300, 1000, 3000];

/// How many slots move; they are the lowest.
const MOVED: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Setting {
    Replicas,
    Default,
}

pub(crate) struct Nodes {
    cluster: Cluster,
    setting: Setting,
    /// Hash tags: of slots that move, and of one at each master after the start.
    tags: Vec<String>,
}

impl Nodes {
    pub(crate) fn start(setting: &str) -> Option<Self> {
        let setting = match setting {
            "" | "replicas" => Setting::Replicas,
            "default" => Setting::Default,
            _ => return None,
        };
        let cluster = Cluster::start(3, 1);
        for node in cluster.nodes() {
            node.connect().call(cmd!["CONFIG", "SET", "cluster-node-timeout", 1000]);
        }
        let mut connection = cluster.nodes()[0].connect();
        let mut slot = |tag: &String| connection.call(cmd!["CLUSTER", "KEYSLOT", tag]).integer();
        let names = || (0..).map(|number| format!("t{number}"));
        let moved = names().filter(|tag| slot(tag) < i64::from(MOVED)).take(2);
        let tags: Vec<String> = moved.collect();
        let staying = [1000..5000, 6000..10_000, 12_000..16_000]
            .map(|slots| names().find(|tag| slots.contains(&slot(tag))).expect("there are many"));
        Some(Self { cluster, setting, tags: tags.into_iter().chain(staying).collect() })
    }

    fn builder(&self) -> Builder {
        let builder = Client::builder().reply_timeout(Duration::from_secs(2));
        match self.setting {
            Setting::Replicas => builder.all_replicas(1, CONFIRM),
            Setting::Default => builder,
        }
    }

    /// The master of some lock.
    fn master(&self, random: &mut Random) -> &Server {
        self.cluster.node_for(random.pick(&self.tags))
    }

    fn fail_over(&self, moment: &mut Moment<'_>, random: &mut Random) {
        let master = self.master(random);
        moment.is(|| self.cluster.fail_over(master));
    }

    fn kill(&self, moment: &mut Moment<'_>, random: &mut Random) {
        moment.leaves_two();
        let master = self.master(random);
        let replica = self.cluster.replica_of(master);
        moment.is(|| master.kill9());
        self.cluster.wait_for_takeover(replica);
        master.restart();
    }

    fn stop_past_takeover(&self, moment: &mut Moment<'_>, random: &mut Random) {
        moment.leaves_two();
        let master = self.master(random);
        let replica = self.cluster.replica_of(master);
        moment.is(|| {
            master.signal(Signal::SIGSTOP);
            wait::until("its replica takes over", Duration::from_secs(60), || {
                if is_master(replica) { Ok(()) } else { Err("not yet".to_owned()) }
            });
            sleep(Duration::from_millis(random.below(1500)));
            master.signal(Signal::SIGCONT);
        });
    }

    /// The lowest slots go to another master, and back.
    fn move_slots(&self, moment: &mut Moment<'_>, _: &mut Random) {
        let home = self.cluster.node_for(&self.tags[0]);
        let mut nodes = self.cluster.nodes().iter();
        let away = nodes.rfind(|node| is_master(node) && node.port() != home.port());
        let away = away.expect("there are three");
        moment.is(|| {
            self.cluster.reshard(home, away, MOVED);
            self.cluster.reshard(away, home, MOVED);
        });
    }
}

impl Ground for Nodes {
    const FAULTS: &'static [Fault<Self>] = &[
        Fault { name: "CLUSTER FAILOVER", weight: 5, act: Self::fail_over },
        Fault { name: "slots moved there and back", weight: 2, act: Self::move_slots },
        Fault { name: "kill -9 of a master", weight: 2, act: Self::kill },
        Fault {
            name: "master stopped, replaced, continued",
            weight: 2,
            act: Self::stop_past_takeover,
        },
        Fault {
            name: "CLIENT KILL at all nodes",
            weight: 2,
            act: |it, moment, _| {
                let mut connections: Vec<_> =
                    it.cluster.nodes().iter().map(Server::connect).collect();
                moment.is(|| {
                    for connection in &mut connections {
                        connection.call(cmd!["CLIENT", "KILL", "TYPE", "normal"]);
                    }
                });
            },
        },
        Fault {
            name: "CLIENT KILL",
            weight: 2,
            act: |it, moment, random| commands::kill_clients(it.master(random), moment),
        },
        Fault {
            name: "CLIENT PAUSE WRITE",
            weight: 2,
            act: |it, moment, random| commands::pause(it.master(random), "WRITE", moment, random),
        },
        Fault {
            name: "CLIENT PAUSE ALL",
            weight: 2,
            act: |it, moment, random| commands::pause(it.master(random), "ALL", moment, random),
        },
        Fault {
            name: "DEBUG SLEEP",
            weight: 2,
            act: |it, moment, random| commands::sleep(it.master(random), moment, random),
        },
        Fault {
            name: "master stopped for a moment",
            weight: 2,
            act: |it, moment, random| {
                commands::stop_for_a_moment(it.master(random), moment, random);
            },
        },
    ];

    fn promises(&self) -> Promises {
        let safe = self.setting == Setting::Replicas;
        Promises { no_overlap: safe, no_loss: safe }
    }

    async fn ways(&self) -> Vec<Way> {
        let mut ways = Vec::new();
        for _ in 0..4 {
            let client = self.builder().connect(self.cluster.url()).await;
            ways.push(Way::One(client.expect("the cluster answers")));
        }
        ways
    }

    fn keys(&self, round: u64) -> Vec<String> {
        self.tags.iter().map(|tag| format!("{{{tag}}}r{round}")).collect()
    }

    fn leases(&self) -> Vec<Duration> {
        LEASES_MS.iter().copied().map(Duration::from_millis).collect()
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

    fn servers(&self) -> Vec<&Server> {
        self.cluster.nodes().iter().collect()
    }
}
