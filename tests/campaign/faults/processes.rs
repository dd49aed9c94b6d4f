//! Servers are killed, stopped and restarted, with another one in their place or not.

use super::{Fault, fault, not_of_five, on};
use crate::round::Moment;
use crate::topology::{Topology, Watched};
use harness::Server;
use harness::random::Random;
use nix::sys::signal::Signal;
use std::thread::sleep;
use std::time::Duration;

pub(crate) const RESTARTED: &str = "all restarted in turn";

pub(super) const FAULTS: &[Fault] = &[
    fault("primary killed with -9, replaced", 3, is_replaced, |at, moment, random| {
        moment.leaves_two();
        let primary = at.primary(random);
        let Some(replaced) = at.replacement(primary) else { return };
        moment.is(|| primary.kill9());
        replaced();
        primary.restart();
        at.rejoin(primary, random);
    }),
    fault("primary stopped, replaced, continued", 3, is_replaced, |at, moment, random| {
        moment.leaves_two();
        let primary = at.primary(random);
        let Some(replaced) = at.replacement(primary) else { return };
        moment.is(|| {
            primary.signal(Signal::SIGSTOP);
            replaced();
            stay_apart(at, random);
            primary.signal(Signal::SIGCONT);
        });
        at.rejoin(primary, random);
    }),
    fault("primary stopped for a moment", 2, not_of_five, |at, moment, random| {
        let time = Duration::from_millis(50 + random.below(500));
        stop(at.primary(random), time, moment);
    }),
    fault(RESTARTED, 1, on::<Watched>, |at, moment, random| {
        let before = at.primary(random).port();
        let replicas = at.servers().into_iter().filter(|server| server.port() != before);
        for replica in replicas {
            replica.shut_down();
            replica.restart();
            at.recover();
        }
        at.fail_over(moment, random);
        at.recover();
        let deposed = at.servers().into_iter().find(|server| server.port() == before);
        let deposed = deposed.expect("it is one of them");
        deposed.shut_down();
        deposed.restart();
    }),
];

/// Stops that server, and lets it go on after that time.
pub(super) fn stop(server: &Server, time: Duration, moment: &mut Moment<'_>) {
    let signal = |signal| server.signal(signal);
    moment.for_a_while(time, || signal(Signal::SIGSTOP), || signal(Signal::SIGCONT));
}

fn is_replaced(at: &dyn Topology) -> bool {
    at.replacement(at.primary(&mut Random::new(0))).is_some()
}

/// For so long two may be the primary at the same time.
pub(super) fn stay_apart(at: &dyn Topology, random: &mut Random) {
    let most = at.apart().as_millis().try_into().expect("seconds");
    sleep(Duration::from_millis(random.below(most)));
}
