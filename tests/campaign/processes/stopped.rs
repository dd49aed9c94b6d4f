//! A holder is stopped for three times its lease while it uses a store, and resumes after another process has
//! used the store. Careful holders check their guard before each write. Careless ones continue to write
//! after they have lost the lock.

use super::messages::{Role, Tenure, now};
use super::process::{Process, SOON};
use super::scene::{Scene, in_parts};
use super::store::Counters;
use crate::Options;
use crate::report::Report;
use harness::random::Random;
use harness::{Server, observe, wait};
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::time::Duration;

const LEASE_MS: u64 = 300;

/// Longest time for which a lock is held. Long enough that most holders still hold the lock when they are
/// stopped.
const HOLD_MS: u64 = 400;

/// Number of stale writes after each stop of a careless holder.
const TRIES: u64 = 1000;

const STOPS: &str = "holders stopped for three times their lease, who lost the lock";
const TOO_LATE: &str = "stops that came when the lock had just been released or lost";

/// Stops the holders of several pairs of processes. Every other pair is careless.
pub(super) fn run(scene: &Scene, options: &Options, report: &Report) {
    let (stops, random) = (options.times(200), Random::new(options.seed.number));
    let store = Server::options().without_module().start();
    in_parts(stops, |pair, share| {
        let role = Role {
            hold_ms: Some(HOLD_MS),
            store: Some(store.port()),
            careless: if pair.is_multiple_of(2) { TRIES } else { 0 },
            ..Role::new(vec![format!("stock-{pair}")], LEASE_MS)
        };
        at_work(scene, &role, share, random.part(pair), report);
    });
    report.wants(STOPS, stops);
    report.excuses(TOO_LATE, stops);
}

fn at_work(scene: &Scene, role: &Role, stops: u64, mut random: Random, report: &Report) {
    let both = [scene.enter(role), scene.enter(role)];
    let mut control = scene.server.connect();
    let mut store = Counters::open(role.store.expect("they count"));
    let key = &role.keys[0];
    let mut done = 0;
    while done < stops {
        let (holder, grant) = at_a_write(&both, &mut store, key);
        observe::let_pass(&mut control, Duration::from_millis(1 + random.below(40)));
        holder.signal(Signal::SIGSTOP);
        let stopped = now();
        wait::until("three leases are over, and the next has written", SOON, || {
            let passed = now() - stopped;
            let token = store.show(key, "largest");
            let over = passed >= Duration::from_millis(3 * LEASE_MS) && token > grant.token;
            if over { Ok(()) } else { Err(format!("{passed:?}, {token}")) }
        });
        holder.signal(Signal::SIGCONT);
        let ended = holder.wait_for("it has noticed, and tried to write", |heard| {
            let tenure = &heard.tenures[&grant.number];
            tenure.released.or(tenure.lost).map(|_| tenure.clone())
        });
        // A release, or a loss before the stop, does not count. After such a loss the holder may have written
        // while no other owner had the lock.
        if ended.lost.is_none_or(|at| at < stopped) {
            report.add(TOO_LATE, 1);
            continue;
        }
        done += 1;
        report.add(STOPS, 1);
        if ended.taken > 0 {
            report.violation(format!("Stale: writes were taken after the next one's: {ended:?}"));
        }
    }
    for process in both {
        process.kill9();
    }
    let kind = if role.careless > 0 { "careless" } else { "careful" };
    for (field, kept) in [("looks", "that looks at tokens"), ("takes", "that does not look")] {
        let mut count = |what: &str| store.show(key, &format!("{field}{what}"));
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

/// Waits until one of the two processes holds the lock and has read or written its counters.
fn at_a_write<'a>(
    both: &'a [Arc<Process>; 2],
    store: &mut Counters,
    key: &str,
) -> (&'a Process, Tenure) {
    wait::until("somebody writes", SOON, || {
        let largest = store.show(key, "largest");
        let has = |it: &'a Arc<Process>| Some((&**it, it.held().filter(|it| it.token == largest)?));
        both.iter().find_map(has).ok_or_else(|| format!("the largest token is {largest}"))
    })
}
