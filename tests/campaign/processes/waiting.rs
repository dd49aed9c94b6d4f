//! The first in line is stopped, and handed the lock: it costs the others what it was offered, and
//! then the next has it.

use super::end::{End, LATE_US, lease_of, queue, without_waiting};
use super::process::{Process, SOON};
use super::role::Role;
use super::said::Said;
use super::scene::{Scene, in_parts};
use crate::Options;
use crate::report::Report;
use harness::{Connection, wait};
use nix::sys::signal::Signal;
use std::sync::Arc;

/// Longer than what a waiter is offered.
const LEASE_MS: u64 = 10_000;

/// What a waiter is offered at most, until it says that it is there.
const OFFER_US: i64 = 2_000_000;

const HOLD_MS: u64 = 300;

const STOPS: &str = "waiters stopped who were handed the lock";
const NOT_IN_LINE: &str = "waiters stopped who were not in line any more";
const AFTER_THE_OFFER: &str = "handed to the next after the end of the offer";

pub(super) fn run(scene: &Scene, options: &Options, report: &Report) {
    let stops = options.times(200);
    in_parts(stops, |lock, share| in_turns(scene, &format!("turns-{lock}"), share, report));
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
        let Some((token, end)) = handed_over(&mut control, key, first) else {
            report.add(NOT_IN_LINE, 1);
            first.signal(Signal::SIGCONT);
            continue;
        };
        let ((next, _), waited) =
            end.await_next(scene.server.pid(), || second.granted_after(token));
        first.signal(Signal::SIGCONT);
        // It has the lock in its turn.
        first.await_grant_after(next.token);
        let told = first.last(|said| match said {
            Said::Holds { grant, from, .. } if grant.token == token => Some(*from),
            _ => None,
        });
        // It may have heard of the grant before it was stopped, and even have sent its release.
        if told.is_some_and(|at| at < end.at) {
            report.add(NOT_IN_LINE, 1);
            continue;
        }
        done += 1;
        report.add(STOPS, 1);
        end.judge(next.token, &waited, AFTER_THE_OFFER, report);
        report.time("what the stopped waiter cost", (next.token - token).cast_signed());
        if told.is_some() {
            let name = &first.name;
            report.violation(format!("Late: {name} believed in an offer that was over"));
        }
    }
}

/// Waits until two are in line, and returns them, the first one first.
fn two_in_line<'a>(
    control: &mut Connection,
    key: &str,
    three: &'a [Arc<Process>; 3],
) -> (&'a Process, &'a Process) {
    let of =
        |client: &String| three.iter().find(|process| process.client().as_ref() == Some(client));
    wait::until("two are in line", SOON, || match &queue(control, key)[..] {
        [first, second] => Ok((&**of(first).ok_or("who?")?, &**of(second).ok_or("who?")?)),
        other => Err(format!("{other:?}")),
    })
}

/// Waits until that one, which is stopped, is handed the lock; its token, and when the offer
/// ends. `None` if it was not in line when it was stopped.
fn handed_over(control: &mut Connection, key: &str, first: &Process) -> Option<(u64, End)> {
    let mut gone = 0;
    wait::until("it is handed the lock", SOON, || {
        if let Some((token, end)) = lease_of(control, key, first) {
            return Ok((-end.late_us(token) <= OFFER_US).then_some((token, end)));
        }
        let is_in_line = first.client().is_some_and(|its| queue(control, key).contains(&its));
        gone = if is_in_line { 0 } else { gone + 1 };
        // What it had sent before it was stopped has arrived by then.
        if gone > 100 { Ok(None) } else { Err(format!("in line: {is_in_line}")) }
    })
}
