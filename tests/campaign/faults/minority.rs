//! What can happen to one or two of the five servers of a quorum, or to the links of all.

use super::{Act, Fault, fault, on};
use crate::round::Moment;
use crate::topology::{Five, SERVERS, Topology, cast};
use harness::proxy::Proxy;
use harness::random::Random;
use nix::sys::signal::Signal;
use std::thread::sleep;
use std::time::Duration;

/// Less than the margin that is left of the shortest lease: that is what a server may err by.
const STEP_MS: i64 = 300;

/// Longer than any lease.
const JUMP_MS: i64 = 10_000;

const HOUR_MS: i64 = 3_600_000;

pub(crate) const JUMP: &str = "clock of one ten seconds ahead";

/// Faults that make a server forget.
pub(crate) const KILLS: [&str; 3] = [
    "kill -9 of one, empty again",
    "kill -9 of two, empty again",
    "clock of one an hour back, then killed",
];

pub(super) const FAULTS: &[Fault] = &[
    of(2, KILLS[0], |at, moment, random| kill(five(at), 1, moment, random)),
    of(2, KILLS[1], |at, moment, random| kill(five(at), 2, moment, random)),
    of(2, KILLS[2], |at, moment, random| {
        // It keeps locks for an hour longer than it should. Then it forgets them all.
        let (five, server) = (five(at), some(1, random)[0]);
        moment.is(|| five.set_clock(server, -HOUR_MS));
        sleep(Duration::from_millis(random.below(3000)));
        five.nodes[server].server.kill9();
        start_again(five, &[server]);
    }),
    of(2, "one hangs", |at, moment, random| hang(five(at), 1, moment, random)),
    of(2, "two hang", |at, moment, random| hang(five(at), 2, moment, random)),
    of(2, "one cut off", |at, moment, random| links(five(at), 1, moment, random, CUT)),
    of(2, "two cut off", |at, moment, random| links(five(at), 2, moment, random, CUT)),
    of(2, "links of two take 1 to 200 ms", |at, moment, random| {
        links(five(at), 2, moment, random, DELAY);
    }),
    of(2, "links of all take 1 to 200 ms", |at, moment, random| {
        links(five(at), SERVERS, moment, random, DELAY);
    }),
    of(2, "connections to one closed", |at, moment, random| {
        let server = some(1, random)[0];
        moment.is(|| five(at).nodes[server].proxy.hang_up());
    }),
    of(2, "clock of one 0.3 s back, or ahead again", |at, moment, random| {
        let (five, server) = (five(at), some(1, random)[0]);
        let before = five.ahead_ms(server);
        moment.is(|| five.set_clock(server, if before == 0 { -STEP_MS } else { 0 }));
    }),
    of(6, JUMP, |at, moment, _| {
        // It is always the same one, and the others stay where they are.
        let before = five(at).ahead_ms(0).max(0);
        moment.is(|| five(at).set_clock(0, before + JUMP_MS));
    }),
];

const fn of(weight: u64, name: &'static str, act: Act) -> Fault {
    fault(name, weight, on::<Five>, act)
}

fn five(at: &dyn Topology) -> &Five {
    cast(at).expect("these are for a quorum")
}

/// That many different ones.
fn some(count: usize, random: &mut Random) -> Vec<usize> {
    let mut all: Vec<usize> = (0..SERVERS).collect();
    (0..count).map(|_| all.swap_remove(random.below(all.len() as u64) as usize)).collect()
}

fn kill(five: &Five, count: usize, moment: &mut Moment<'_>, random: &mut Random) {
    let some = some(count, random);
    moment.is(|| some.iter().for_each(|&server| five.nodes[server].server.kill9()));
    sleep(Duration::from_millis(random.below(500)));
    start_again(five, &some);
}

fn start_again(five: &Five, some: &[usize]) {
    for &server in some {
        five.set_clock(server, 0);
        five.nodes[server].server.restart();
    }
}

fn hang(five: &Five, count: usize, moment: &mut Moment<'_>, random: &mut Random) {
    let (some, time) = (some(count, random), a_while(random));
    let signal = |signal| some.iter().for_each(|&server| five.nodes[server].server.signal(signal));
    moment.for_a_while(time, || signal(Signal::SIGSTOP), || signal(Signal::SIGCONT));
}

/// At the proxies of so many that is done, and mended later.
fn links(
    five: &Five,
    count: usize,
    moment: &mut Moment<'_>,
    random: &mut Random,
    [harm, mend]: [fn(&Proxy); 2],
) {
    let (some, time) = (some(count, random), a_while(random));
    let each = |act: fn(&Proxy)| some.iter().for_each(|&server| act(&five.nodes[server].proxy));
    moment.for_a_while(time, || each(harm), || each(mend));
}

const CUT: [fn(&Proxy); 2] = [Proxy::cut, Proxy::heal];

const DELAY: [fn(&Proxy); 2] = [
    |proxy| proxy.delay(Duration::from_millis(1), Duration::from_millis(200)),
    |proxy| proxy.delay(Duration::ZERO, Duration::ZERO),
];

fn a_while(random: &mut Random) -> Duration {
    Duration::from_millis(50 + random.below(2500))
}
