//! Faults of servers or of their links, and their repairs. Until the repair, clients can wait, use the other
//! servers of a quorum, or use the server that replaces the primary.

use super::{
    Act, Class, Fault, On, anywhere, fault, forgets, has_proxy, is_a, is_replaced, keeps_data, new,
    not_of_five,
};
use crate::round::Moment;
use crate::setting::SESSION;
use crate::topology::{FiveIndependent, SERVERS, SentinelSite, Topology};
use harness::proxy::Proxy;
use harness::random::Random;
use harness::{Server, cmd};
use nix::sys::signal::Signal;
use std::thread::sleep;
use std::time::Duration;

pub(crate) const KILLS: [&str; 3] =
    ["kill -9 of one, empty again", "kill -9 of two, empty again", "kill -9 of three, empty again"];

/// No time: the fault is repaired at once.
const AT_ONCE: Time = (0, 1);

pub(crate) const STOPPED: &str = "primary stopped for about a session";

/// Duration in milliseconds: the minimum, and the upper limit of a random addition.
pub(super) type Time = (u64, u64);

const MOMENT: Time = (50, 500);

/// Half a second to a second: a machine that was suspended, or is short of processor time.
const STALL: Time = (500, 500);

/// The maximum is longer than a quorum waits for one server, and longer than the leases in a quorum.
const WHILE: Time = (50, 2500);

/// From two thirds to one and a half times the usual life of a session without a reader. So some sessions end
/// before their client is back, and others do not.
const SESSIONS: Time = {
    let session = SESSION.as_millis() as u64;
    (session * 2 / 3, session * 5 / 6)
};

pub(super) const FAULTS: &[Fault] = &[
    harm("primary stopped for a moment", 2, not_of_five, STOP, 1, MOMENT),
    harm("primary stalled for half a second or more", 2, not_of_five, STOP, 1, STALL),
    harm(STOPPED, 2, not_of_five, STOP, 1, SESSIONS),
    harm("primary cut off for a moment", 2, has_proxy, CUT, 1, MOMENT),
    harm("primary cut off for about a session", 3, has_proxy, CUT, 1, SESSIONS),
    harm("connections closed for the clients alone", 2, has_proxy, FORSAKE, 1, SESSIONS),
    harm("no memory for a moment", 2, anywhere, FILL, 1, MOMENT),
    harm("one hangs", 2, is_a::<FiveIndependent>, STOP, 1, WHILE),
    harm("two hang", 2, is_a::<FiveIndependent>, STOP, 2, WHILE),
    harm("one cut off", 2, is_a::<FiveIndependent>, CUT, 1, WHILE),
    harm("two cut off", 2, is_a::<FiveIndependent>, CUT, 2, WHILE),
    harm("links of two take 1 to 200 ms", 2, is_a::<FiveIndependent>, DELAY, 2, WHILE),
    harm("links of all take 1 to 200 ms", 2, is_a::<FiveIndependent>, DELAY, SERVERS, WHILE),
    harm("connections to one closed", 2, is_a::<FiveIndependent>, HANG_UP, 1, MOMENT),
    harm(KILLS[0], 2, is_a::<FiveIndependent>, KILL, 1, MOMENT),
    harm(KILLS[1], 2, is_a::<FiveIndependent>, KILL, 2, MOMENT),
    harm(KILLS[2], 2, is_a::<FiveIndependent>, KILL, 3, MOMENT),
    harm("primary killed, back at once with its data", 3, keeps_data, KILL, 1, AT_ONCE),
    harm("primary killed, back at once and empty", 6, forgets, FORGET, 1, AT_ONCE).of(Class::Empty),
    replaced("primary killed with -9, replaced", is_replaced, KILL),
    replaced("primary stopped, replaced, continued", is_replaced, STOP),
    replaced("primary cut off, replaced, healed", |it| has_proxy(it) && is_replaced(it), CUT),
    fault("a replica cut off for a moment", 2, is_a::<SentinelSite>, |at, moment, random| {
        let primary = at.primary(random);
        let replicas: Vec<&Server> =
            at.servers().into_iter().filter(|it| it.port() != primary.port()).collect();
        let replica = link(at, random.pick::<&Server>(&replicas)).port();
        let time = Duration::from_millis(100 + random.below(1500));
        moment.is(|| {
            link(at, primary).cut_replica(replica);
            sleep(time);
            link(at, primary).heal();
        });
    }),
];

/// A fault of a server, and its repair.
#[derive(Clone, Copy)]
pub(crate) struct Harm {
    harm: fn(&dyn Topology, &Server),
    mend: fn(&dyn Topology, &Server),
}

const STOP: Harm = Harm {
    harm: |_, server| server.signal(Signal::SIGSTOP),
    mend: |_, server| server.signal(Signal::SIGCONT),
};

const KILL: Harm = Harm { harm: |_, server| server.kill9(), mend: Topology::restart };

const FORGET: Harm = Harm {
    harm: |_, server| {
        server.kill9();
        server.forget();
    },
    mend: Topology::restart,
};

const FILL: Harm = Harm { harm: |_, server| limit(server, 1), mend: |_, server| limit(server, 0) };

/// A silent cut: messages in flight are lost.
const CUT: Harm = Harm { harm: |at, it| link(at, it).cut(), mend: |at, it| link(at, it).heal() };

const FORSAKE: Harm = Harm { harm: |at, it| link(at, it).forsake(), ..CUT };

const HANG_UP: Harm = Harm { harm: |at, it| link(at, it).hang_up(), mend: |_, _| {} };

const DELAY: Harm = Harm {
    harm: |at, it| link(at, it).delay(Duration::from_millis(1), Duration::from_millis(200)),
    mend: |at, it| link(at, it).delay(Duration::ZERO, Duration::ZERO),
};

fn link<'a>(at: &'a dyn Topology, server: &Server) -> &'a Proxy {
    at.proxy(server).expect("it can only happen where there is one")
}

fn limit(server: &Server, bytes: u64) {
    server.connect().call(cmd!["CONFIG", "SET", "maxmemory", bytes]);
}

/// A fault of `servers` servers at once. A single server is a primary, or in a quorum any server.
const fn harm(
    name: &'static str,
    weight: u64,
    on: On,
    harm: Harm,
    servers: usize,
    time: Time,
) -> Fault {
    new(name, weight, on, Act::Harm(harm, servers, time))
}

const fn replaced(name: &'static str, on: On, harm: Harm) -> Fault {
    new(name, 3, on, Act::Replaced(harm)).replaces(1)
}

impl Harm {
    pub(super) fn for_a_while(
        self,
        servers: usize,
        (least, more): Time,
        at: &dyn Topology,
        moment: &mut Moment<'_>,
        random: &mut Random,
    ) {
        let mut all = at.servers();
        let other = |_| all.swap_remove(random.below(all.len() as u64) as usize);
        let harmed: Vec<&Server> =
            if servers == 1 { vec![at.primary(random)] } else { (0..servers).map(other).collect() };
        let time = Duration::from_millis(least + random.below(more));
        moment.is(|| {
            harmed.iter().for_each(|server| (self.harm)(at, server));
            sleep(time);
            harmed.iter().for_each(|server| (self.mend)(at, server));
        });
    }

    /// Causes a fault of the primary, and repairs it a random time after another server has become the
    /// primary. Two servers may act as primary for a while.
    pub(super) fn until_replaced(
        self,
        at: &dyn Topology,
        moment: &mut Moment<'_>,
        random: &mut Random,
    ) {
        let primary = at.primary(random);
        let replacement = at.replacement(primary).expect("it can only happen where there is one");
        moment.leaves_two();
        moment.is(|| {
            (self.harm)(at, primary);
            replacement();
            let most = at.longest_split().as_millis().try_into().expect("seconds");
            sleep(Duration::from_millis(random.below(most)));
            (self.mend)(at, primary);
        });
        at.rejoin(primary, random);
    }
}
