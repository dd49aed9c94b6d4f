//! A holder is stopped for three times its lease while it writes to a store, and goes on when
//! somebody else has written. Careful holders look at their guard before each step; careless ones,
//! when they have lost the lock, write on without looking.

use super::AT_ONCE;
use super::process::{Process, SOON};
use super::role::Role;
use super::said::{End, Grant, Said, now};
use super::scene::Scene;
use super::store::{Counter, Store};
use crate::Options;
use crate::report::Report;
use harness::random::Random;
use harness::{observe, wait};
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const LEASE_MS: u64 = 300;

/// Longer than most stops: the other process holds the lock for a while meanwhile.
const HOLD_MS: u64 = 400;

/// Stale writes after each stop of a careless holder.
const TRIES: u64 = 1000;

const STOPS: &str = "holders stopped for three times their lease, who lost the lock";
const TOO_LATE: &str = "stops that came when the lock had just been released or lost";

/// Every other pair of processes is careless.
pub(super) fn run(scene: &Scene, options: &Options, report: &Report) {
    let (stops, random) = (options.times(200), Random::new(options.seed.number));
    let pairs = AT_ONCE.min(stops);
    let store = Store::start();
    thread::scope(|scope| {
        let store = &store;
        for pair in 0..pairs {
            let share = stops / pairs + u64::from(pair < stops % pairs);
            let random = random.part(pair);
            let careless = if pair % 2 == 0 { TRIES } else { 0 };
            scope.spawn(move || at_work(scene, store, (pair, share, careless), random, report));
        }
    });
    report.wants(STOPS, stops);
    report.excuses(TOO_LATE, stops);
}

fn at_work(
    scene: &Scene,
    store: &Store,
    (pair, stops, careless): (u64, u64, u64),
    mut random: Random,
    report: &Report,
) {
    let key = format!("stock-{pair}");
    let socket = store.socket();
    let role = Role { hold_ms: HOLD_MS, store: socket, careless, ..Role::new(&key, LEASE_MS) };
    let both = [scene.enter(&role), scene.enter(&role)];
    let mut control = scene.server.connect();
    let mut done = 0;
    while done < stops {
        let (holder, grant, next) = at_a_write(&both, store, &key);
        observe::let_pass(&mut control, Duration::from_millis(1 + random.below(40)));
        holder.signal(Signal::SIGSTOP);
        let stopped = now();
        wait::until("three leases are over, and the next has written", SOON, || {
            let passed = Duration::from_nanos(now() - stopped);
            let token = store.show(&key).largest;
            let over = passed >= Duration::from_millis(3 * LEASE_MS) && token > grant.token;
            if over { Ok(()) } else { Err(format!("{passed:?}, {token}, {:?}", next.held())) }
        });
        holder.signal(Signal::SIGCONT);
        // A loss from before the stop may have been written after, too, while nobody else had the lock.
        if matches!(ended(holder, &grant), (End::Lost, at) if at > stopped) {
            done += 1;
            report.add(STOPS, 1);
            if careless > 0 && wrote_on(holder, &grant) > 0 {
                report
                    .violation(format!("Stale: writes of {grant} were taken after the next one's"));
            }
        } else {
            report.add(TOO_LATE, 1);
        }
    }
    scene.retire(&both);
    let sheet = store.show(&key);
    let kind = if careless > 0 { "careless" } else { "careful" };
    count(kind, "that looks at tokens", &sheet.looks, report);
    count(kind, "that does not look", &sheet.takes, report);
    if sheet.looks.lost() > 0 || sheet.looks.stale > 0 {
        report.violation(format!("Stale: {key}: {:?}", sheet.looks));
    }
}

/// Waits until one of both holds the lock and has been seen by the store; the other one is next.
fn at_a_write<'a>(
    both: &'a [Arc<Process>; 2],
    store: &Store,
    key: &str,
) -> (&'a Process, Grant, &'a Process) {
    wait::until("somebody writes", SOON, || {
        let largest = store.show(key).largest;
        for (this, other) in [(0, 1), (1, 0)] {
            if let Some(grant) = both[this].held().filter(|grant| grant.token == largest) {
                return Ok((&*both[this], grant, &*both[other]));
            }
        }
        Err(format!("the largest token is {largest}"))
    })
}

/// Waits until it believes no more, and says why and since when.
fn ended(process: &Process, grant: &Grant) -> (End, u64) {
    wait::until("it has noticed", SOON, || {
        let end = process.last(|said| match said {
            Said::Ends { grant: other, why, at, .. } if other == grant => Some((*why, *at)),
            _ => None,
        });
        end.ok_or_else(|| process.name.clone())
    })
}

/// Waits until it has written without looking; how many of these writes the store took that looks.
fn wrote_on(process: &Process, grant: &Grant) -> u64 {
    wait::until("it has tried to write", SOON, || {
        let taken = process.last(|said| match said {
            Said::Careless { grant: other, taken, .. } if other == grant => Some(*taken),
            _ => None,
        });
        taken.ok_or_else(|| process.name.clone())
    })
}

fn count(kind: &str, store: &str, counter: &Counter, report: &Report) {
    for (what, count) in [
        ("increments acknowledged", counter.acknowledged),
        ("of these lost", counter.lost()),
        ("stale writes taken", counter.stale),
        ("stale writes refused", counter.refused),
    ] {
        report.add(&format!("{kind} holders, store {store}: {what}"), count);
    }
}
