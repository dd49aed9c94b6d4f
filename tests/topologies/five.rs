//! Five servers that share nothing, each behind a proxy and with a clock of its own, and locks of a
//! quorum of them. They keep nothing: whoever is killed has forgotten all when it is back.

use crate::ground::{Fault, Ground, Promises};
use crate::round::Moment;
use crate::way::Way;
use harness::clock::Clock;
use harness::proxy::Proxy;
use harness::random::Random;
use harness::{Server, observe};
use kvlock::{Client, Quorum};
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::sleep;
use std::time::Duration;

const SERVERS: usize = 5;

const LEASES_MS: [u64; 3] = [1500, 2000, 2500];

/// The longest lease and a second.
const QUARANTINE_MS: u64 = 3500;

/// Less than the margin that is left of the shortest lease: that is what a server may err by.
const STEP_MS: i64 = 300;

/// Longer than any lease.
const JUMP_MS: i64 = 10_000;

const HOUR_MS: i64 = 3_600_000;

/// How long each server may take.
const PATIENCE: Duration = Duration::from_secs(1);

const JUMP: &str = "clock of one ten seconds ahead";

/// Faults that make a server forget.
const KILLS: [&str; 3] = [
    "kill -9 of one, empty again",
    "kill -9 of two, empty again",
    "clock of one an hour back, then killed",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Setting {
    /// Whoever is back grants nothing until the leases are over that it knew of.
    Quarantine,
    /// The same, and a clock jumps ahead: all leases are over at that server. Nobody forgets.
    Jumps,
    /// Whoever is back grants at once.
    Forgetful,
}

pub(crate) struct Five {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    clocks: Vec<Clock>,
    ahead: [AtomicI64; SERVERS],
    setting: Setting,
}

impl Five {
    pub(crate) fn start(setting: &str) -> Option<Self> {
        let setting = match setting {
            "" | "quarantine" => Setting::Quarantine,
            "jumps" => Setting::Jumps,
            "forgetful" => Setting::Forgetful,
            _ => return None,
        };
        let clocks: Vec<Clock> = (0..SERVERS).map(|_| Clock::new()).collect();
        let start = |clock: &Clock| {
            let options = Server::options().clock(clock);
            let server = match setting {
                Setting::Forgetful => options.start(),
                Setting::Quarantine | Setting::Jumps => {
                    options.module_config("quarantine-ms", QUARANTINE_MS).start()
                }
            };
            observe::end_quarantine(&mut server.connect());
            server
        };
        let servers: Vec<Server> = clocks.iter().map(start).collect();
        let lead = |server: &Server| {
            let proxy = Proxy::new();
            proxy.lead_to(server);
            proxy
        };
        let proxies = servers.iter().map(lead).collect();
        Some(Self { servers, proxies, clocks, ahead: Default::default(), setting })
    }

    /// So many different ones.
    fn some(count: usize, random: &mut Random) -> Vec<usize> {
        let mut all: Vec<usize> = (0..SERVERS).collect();
        (0..count).map(|_| all.swap_remove(random.below(all.len() as u64) as usize)).collect()
    }

    fn set_clock(&self, server: usize, ahead_ms: i64) {
        self.clocks[server].set(ahead_ms);
        self.ahead[server].store(ahead_ms, Ordering::SeqCst);
    }

    fn kill(&self, count: usize, moment: &mut Moment<'_>, random: &mut Random) {
        let some = Self::some(count, random);
        moment.is(|| some.iter().for_each(|&server| self.servers[server].kill9()));
        sleep(Duration::from_millis(random.below(500)));
        self.start_again(&some);
    }

    fn start_again(&self, some: &[usize]) {
        for &server in some {
            self.set_clock(server, 0);
            self.servers[server].restart();
        }
    }

    fn hang(&self, count: usize, moment: &mut Moment<'_>, random: &mut Random) {
        let some = Self::some(count, random);
        let signal = |signal| some.iter().for_each(|&server| self.servers[server].signal(signal));
        moment.is(|| {
            signal(Signal::SIGSTOP);
            sleep(Duration::from_millis(50 + random.below(2500)));
            signal(Signal::SIGCONT);
        });
    }

    fn cut(&self, count: usize, moment: &mut Moment<'_>, random: &mut Random) {
        let some = Self::some(count, random);
        moment.is(|| {
            some.iter().for_each(|&server| self.proxies[server].cut());
            sleep(Duration::from_millis(50 + random.below(2500)));
            some.iter().for_each(|&server| self.proxies[server].heal());
        });
    }

    fn delay(&self, count: usize, moment: &mut Moment<'_>, random: &mut Random) {
        let some = Self::some(count, random);
        let ms = Duration::from_millis;
        moment.is(|| {
            some.iter().for_each(|&server| self.proxies[server].delay(ms(1), ms(200)));
            sleep(ms(500 + random.below(2500)));
            some.iter().for_each(|&server| self.proxies[server].delay(ms(0), ms(0)));
        });
    }

    /// A little back, or ahead to where it was.
    fn step(&self, moment: &mut Moment<'_>, random: &mut Random) {
        let server = Self::some(1, random)[0];
        let before = self.ahead[server].load(Ordering::SeqCst);
        moment.is(|| self.set_clock(server, if before == 0 { -STEP_MS } else { 0 }));
    }

    /// It keeps locks for an hour longer than it should. Then it forgets them all.
    fn back_and_killed(&self, moment: &mut Moment<'_>, random: &mut Random) {
        let server = Self::some(1, random)[0];
        moment.is(|| self.set_clock(server, -HOUR_MS));
        sleep(Duration::from_millis(random.below(3000)));
        self.servers[server].kill9();
        self.start_again(&[server]);
    }

    /// It is always the same one, and the others stay where they are.
    fn jump(&self, moment: &mut Moment<'_>, _: &mut Random) {
        let before = self.ahead[0].load(Ordering::SeqCst).max(0);
        moment.is(|| self.set_clock(0, before + JUMP_MS));
    }
}

impl Ground for Five {
    const FAULTS: &'static [Fault<Self>] = &[
        Fault { name: KILLS[0], weight: 2, act: |it, moment, random| it.kill(1, moment, random) },
        Fault { name: KILLS[1], weight: 2, act: |it, moment, random| it.kill(2, moment, random) },
        Fault { name: KILLS[2], weight: 2, act: Self::back_and_killed },
        Fault {
            name: "one hangs",
            weight: 2,
            act: |it, moment, random| it.hang(1, moment, random),
        },
        Fault { name: "two hang", weight: 2, act: |it, moment, random| it.hang(2, moment, random) },
        Fault {
            name: "one cut off",
            weight: 2,
            act: |it, moment, random| it.cut(1, moment, random),
        },
        Fault {
            name: "two cut off",
            weight: 2,
            act: |it, moment, random| it.cut(2, moment, random),
        },
        Fault {
            name: "links of two take 1 to 200 ms",
            weight: 2,
            act: |it, moment, random| it.delay(2, moment, random),
        },
        Fault {
            name: "links of all take 1 to 200 ms",
            weight: 2,
            act: |it, moment, random| it.delay(SERVERS, moment, random),
        },
        Fault {
            name: "connections to one closed",
            weight: 2,
            act: |it, moment, random| {
                let server = Self::some(1, random)[0];
                moment.is(|| it.proxies[server].hang_up());
            },
        },
        Fault { name: "clock of one 0.3 s back, or ahead again", weight: 2, act: Self::step },
        Fault { name: JUMP, weight: 6, act: Self::jump },
    ];

    fn happens(&self, fault: &str) -> bool {
        match self.setting {
            // Tokens may go back if whoever forgets is behind the others.
            Setting::Jumps => !KILLS.contains(&fault),
            Setting::Quarantine | Setting::Forgetful => fault != JUMP,
        }
    }

    fn promises(&self) -> Promises {
        let safe = self.setting == Setting::Quarantine;
        Promises { no_overlap: safe, no_loss: false }
    }

    async fn ways(&self) -> Vec<Way> {
        let mut ways = Vec::new();
        for _ in 0..3 {
            let mut clients = Vec::new();
            for proxy in &self.proxies {
                let builder = Client::builder().reply_timeout(2 * PATIENCE);
                let url = format!("redis://127.0.0.1:{}/", proxy.port());
                clients.push(builder.connect(url).await.expect("the server answers"));
            }
            let quorum = Quorum::of(clients).await.expect("all are there");
            ways.push(Way::Several(quorum.server_timeout(PATIENCE)));
        }
        ways
    }

    fn keys(&self, round: u64) -> Vec<String> {
        (0..6).map(|number| format!("r{round}-k{number}")).collect()
    }

    fn leases(&self) -> Vec<Duration> {
        LEASES_MS.map(Duration::from_millis).to_vec()
    }

    /// Each is started again by whoever has killed it.
    fn recover(&self) {}

    fn left_behind(&self, keys: &[String]) -> Vec<String> {
        let of = |server: &Server| observe::left_behind(&mut server.connect(), keys);
        self.servers.iter().flat_map(of).collect()
    }

    fn servers(&self) -> Vec<&Server> {
        self.servers.iter().collect()
    }
}
