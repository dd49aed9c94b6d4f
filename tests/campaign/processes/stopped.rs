//! A holder is stopped for three times its lease while it writes to a store, and goes on when
//! somebody else has written. Careful holders look at their guard before each step; careless ones,
//! when they have lost the lock, write on without looking.

use super::process::{Process, SOON};
use super::role::Role;
use super::said::{End, Grant, Said, now};
use super::scene::{Scene, in_parts};
use super::store::show;
use crate::Options;
use crate::report::Report;
use harness::random::Random;
use harness::{Connection, Server, observe, wait};
use nix::sys::signal::Signal;
use std::sync::Arc;
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
    let store = Server::options().without_module().start();
    in_parts(stops, |pair, share| at_work(scene, &store, pair, share, random.part(pair), report));
    report.wants(STOPS, stops);
    report.excuses(TOO_LATE, stops);
}

fn at_work(
    scene: &Scene,
    store: &Server,
    pair: u64,
    stops: u64,
    mut random: Random,
    report: &Report,
) {
    let (key, careless) = (format!("stock-{pair}"), if pair.is_multiple_of(2) { TRIES } else { 0 });
    let role =
        Role { hold_ms: HOLD_MS, store: store.port(), careless, ..Role::new(&key, LEASE_MS) };
    let both = [scene.enter(&role), scene.enter(&role)];
    let (mut control, mut store) = (scene.server.connect(), store.connect());
    let mut done = 0;
    while done < stops {
        let (holder, grant) = at_a_write(&both, &mut store, &key);
        observe::let_pass(&mut control, Duration::from_millis(1 + random.below(40)));
        holder.signal(Signal::SIGSTOP);
        let stopped = now();
        wait::until("three leases are over, and the next has written", SOON, || {
            let passed = Duration::from_nanos(now() - stopped);
            let token = show(&mut store, &key, "largest");
            let over = passed >= Duration::from_millis(3 * LEASE_MS) && token > grant.token;
            if over { Ok(()) } else { Err(format!("{passed:?}, {token}")) }
        });
        holder.signal(Signal::SIGCONT);
        // A loss from before the stop may have been written after, too, while nobody else had the lock.
        let (why, at, taken) = ended(holder, &grant, careless);
        if why != End::Lost || at < stopped {
            report.add(TOO_LATE, 1);
            continue;
        }
        done += 1;
        report.add(STOPS, 1);
        if taken > 0 {
            report.violation(format!("Stale: writes of {grant} were taken after the next one's"));
        }
    }
    scene.retire(&both);
    let kind = if careless > 0 { "careless" } else { "careful" };
    for (field, kept) in [("looks", "that looks at tokens"), ("takes", "that does not look")] {
        let mut count = |what: &str| show(&mut store, &key, &format!("{field}{what}"));
        let lost = count(" acknowledged").saturating_sub(count(""));
        for (what, count) in [
            ("increments acknowledged", count(" acknowledged")),
            ("of these lost", lost),
            ("stale writes taken", count(" stale")),
            ("stale writes refused", count(" refused")),
        ] {
            report.add(&format!("{kind} holders, store {kept}: {what}"), count);
        }
        if field == "looks" && lost > 0 {
            report.violation(format!("Stale: {key}: {lost} increments are lost"));
        }
    }
}

/// Waits until one of both holds the lock and has been seen by the store.
fn at_a_write<'a>(
    both: &'a [Arc<Process>; 2],
    store: &mut Connection,
    key: &str,
) -> (&'a Process, Grant) {
    wait::until("somebody writes", SOON, || {
        let largest = show(store, key, "largest");
        let has = |it: &'a Arc<Process>| Some((&**it, it.held().filter(|it| it.token == largest)?));
        both.iter().find_map(has).ok_or_else(|| format!("the largest token is {largest}"))
    })
}

/// Waits until it believes no more, and says why and since when; and how many of the writes that it did
/// without looking the store took that looks.
fn ended(process: &Process, grant: &Grant, careless: u64) -> (End, u64, u64) {
    wait::until("it has noticed, and tried to write", SOON, || {
        let end = process.last(|said| match said {
            Said::Ends { grant: other, why, at, .. } if other == grant => Some((*why, *at)),
            _ => None,
        });
        let taken = process.last(|said| match said {
            Said::Careless { grant: other, taken, .. } if other == grant => Some(*taken),
            _ => None,
        });
        let (why, at) = end.ok_or("it believes")?;
        let writes = careless > 0 && why == End::Lost;
        Ok((why, at, if writes { taken.ok_or("it writes")? } else { 0 }))
    })
}
