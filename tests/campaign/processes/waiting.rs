//! The first in line is stopped, and handed the lock: it costs the others what it was offered, and
//! then the next has it.

use super::AT_ONCE;
use super::end::{End, LATE_US, without_waiting};
use super::process::{Process, SOON};
use super::role::Role;
use super::said::{Grant, Said};
use super::scene::Scene;
use crate::Options;
use crate::report::Report;
use harness::{Connection, Value, cmd, wait};
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::thread;

/// Longer than what a waiter is offered.
const LEASE_MS: u64 = 10_000;

/// What a waiter is offered at most, until it says that it is there.
const OFFER_MS: i64 = 2000;

const HOLD_MS: u64 = 300;

const STOPS: &str = "waiters stopped who were handed the lock";
const NOT_IN_LINE: &str = "waiters stopped who were not in line any more";
const AFTER_THE_OFFER: &str = "handed to the next after the end of the offer";

pub(super) fn run(scene: &Scene, options: &Options, report: &Report) {
    let stops = options.times(200);
    let locks = AT_ONCE.min(stops);
    thread::scope(|scope| {
        for lock in 0..locks {
            let share = stops / locks + u64::from(lock < stops % locks);
            scope.spawn(move || in_turns(scene, &format!("turns-{lock}"), share, report));
        }
    });
    report.wants(STOPS, stops);
    report.excuses(NOT_IN_LINE, stops);
    report.is_mostly_below(&without_waiting(AFTER_THE_OFFER), LATE_US);
}

fn in_turns(scene: &Scene, key: &str, stops: u64, report: &Report) {
    let role = Role { hold_ms: HOLD_MS, ..Role::new(key, LEASE_MS) };
    let three = [scene.enter(&role), scene.enter(&role), scene.enter(&role)];
    let mut control = scene.server.connect();
    let mut done = 0;
    while done < stops {
        let (first, second) = two_in_line(&mut control, key, &three);
        first.signal(Signal::SIGSTOP);
        let handed = handed_over(&mut control, key, first);
        if let Some((token, end)) = handed {
            let next = || granted_after(second, token);
            let (next, waited) = end.await_next(scene.server.pid(), next);
            first.signal(Signal::SIGCONT);
            served(first, next.token);
            // It may have heard of the grant before it was stopped, and even have sent its release.
            match told(first, token) {
                Some(at) if at < end.at => report.add(NOT_IN_LINE, 1),
                told => {
                    done += 1;
                    report.add(STOPS, 1);
                    end.judge(next.token, &waited, AFTER_THE_OFFER, report);
                    let cost = i64::try_from(next.token - token).expect("a while");
                    report.time("what the stopped waiter cost", cost);
                    if told.is_some() {
                        let name = &first.name;
                        report
                            .violation(format!("Late: {name} believed in an offer that was over"));
                    }
                }
            }
        } else {
            report.add(NOT_IN_LINE, 1);
            first.signal(Signal::SIGCONT);
        }
    }
}

/// Waits until two are in line, and returns them, the first one first.
fn two_in_line<'a>(
    control: &mut Connection,
    key: &str,
    three: &'a [Arc<Process>; 3],
) -> (&'a Process, &'a Process) {
    let of = |owner: &str| {
        let its = |process: &&Arc<Process>| process.client().is_some_and(|c| owner.starts_with(&c));
        three.iter().find(its).map(|process| &**process)
    };
    wait::until("two are in line", SOON, || {
        let info = control.call(cmd!["LOCK.INFO", key, "WAITERS", 10]);
        let waiters: Vec<_> =
            info.field("queue").elements().iter().map(|waiter| waiter[0].text()).collect();
        match waiters.as_slice() {
            [first, second] => of(first).zip(of(second)).ok_or_else(|| info.to_string()),
            _ => Err(info.to_string()),
        }
    })
}

/// Waits until that one, which is stopped, is handed the lock; its token, and when the offer
/// ends. `None` if it was not in line when it was stopped.
fn handed_over(control: &mut Connection, key: &str, first: &Process) -> Option<(u64, End)> {
    let client = first.client().expect("it is connected");
    let mut gone = 0;
    wait::until("it is handed the lock", SOON, || {
        control.run("MULTI");
        control.call(cmd!["LOCK.INFO", key, "WAITERS", 10]);
        control.call(cmd!["PEXPIRETIME", key]);
        let both = control.run("EXEC");
        let info = &both[0];
        let its = |owner: &Value| !owner.is_nil() && owner.text().starts_with(&client);
        if its(info.field("owner")) {
            let token = u64::try_from(info.field("token").integer()).expect("a token");
            let end_ms = both[1].integer();
            let offered = end_ms - i64::try_from(token / 1000).expect("a date") <= OFFER_MS;
            return Ok(offered.then(|| (token, End::at_date(end_ms))));
        }
        if info.field("queue").elements().iter().any(|waiter| its(&waiter[0])) {
            gone = 0;
        } else {
            gone += 1;
        }
        // What it had sent before it was stopped has arrived by then.
        if gone > 100 { Ok(None) } else { Err(info.to_string()) }
    })
}

/// Its first grant after that one: it may have given that back again when somebody looks.
fn granted_after(process: &Process, token: u64) -> Option<Grant> {
    process.said().into_iter().find_map(|said| match said {
        Said::Holds { grant, .. } if grant.token > token => Some(grant),
        _ => None,
    })
}

/// When it was told that it holds the lock with that token, if it was.
fn told(process: &Process, token: u64) -> Option<u64> {
    process.last(|said| match said {
        Said::Holds { grant, from, .. } if grant.token == token => Some(*from),
        _ => None,
    })
}

/// Waits until it has the lock in its turn.
fn served(process: &Process, after: u64) {
    wait::until("the stopped process has its turn", SOON, || {
        let held = process.held();
        let later = held.as_ref().is_some_and(|grant| grant.token > after);
        if later { Ok(()) } else { Err(format!("{held:?}")) }
    });
}
