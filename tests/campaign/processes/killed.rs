//! A holder that renews its lease is killed while ten wait: the next in line has the lock when the
//! lease ends, not earlier, and nobody else has it.

use super::AT_ONCE;
use super::end::{End, LATE_US, without_waiting};
use super::process::{Process, SOON};
use super::role::Role;
use super::said::{End as Why, Grant, Said};
use super::scene::{Scene, late_us};
use crate::Options;
use crate::report::Report;
use harness::random::Random;
use harness::{Connection, Value, cmd, observe, wait};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const LEASE_MS: u64 = 1000;
const WAITERS: usize = 10;

/// What a waiter is offered until it says that it is there: no more than its lease.
const OFFER_MS: i64 = 1000;

const KILLS: &str = "holders killed with ten in line";
const ANEW: &str = "lines begun anew: somebody had no processor time, and lost the lock";
const MEASURED: &str = "hand-offs measured";
const AFTER_THE_LEASE: &str = "granted after the end of that lease";

/// Each lock has a line of its own.
pub(super) fn run(scene: &Scene, options: &Options, report: &Report) {
    let (kills, random) = (options.times(200), Random::new(options.seed.number));
    let lines = AT_ONCE.min(kills);
    thread::scope(|scope| {
        for line in 0..lines {
            let share = kills / lines + u64::from(line < kills % lines);
            let random = random.part(line);
            scope.spawn(move || in_line(scene, &format!("line-{line}"), share, random, report));
        }
    });
    report.wants(KILLS, kills);
    // One that comes too early is over before the end of the lease can be asked for.
    report.wants(MEASURED, kills.div_ceil(2));
    report.excuses(ANEW, kills);
    report.is_mostly_below(&without_waiting(AFTER_THE_LEASE), LATE_US);
}

fn in_line(scene: &Scene, key: &str, kills: u64, mut random: Random, report: &Report) {
    let mut control = scene.server.connect();
    let mut line: VecDeque<Arc<Process>> = VecDeque::new();
    let mut done = 0;
    while done < kills {
        fill(scene, key, &mut line, &mut control);
        // Anywhere between two renewals.
        observe::let_pass(&mut control, Duration::from_millis(1 + random.below(LEASE_MS / 2)));
        let queue = queue(&mut control, key);
        let came: Vec<_> = line.iter().skip(1).filter_map(|process| process.client()).collect();
        if queue != came || served_behind(&line).is_some() {
            if !lost(&line[0]) {
                report.violation(format!("Fifo: {key}: {queue:?} wait, and came as {came:?}"));
            }
            report.add(ANEW, 1);
            line.drain(..).for_each(|process| process.kill9());
            continue;
        }
        let Some(holder) = line.pop_front() else { return };
        holder.kill9();
        done += 1;
        report.add(KILLS, 1);
        let Some(end) = end_of_lease(&mut control, key, &holder) else {
            report.add("kills whose hand-off came before it could be measured", 1);
            line.drain(..).for_each(|process| process.kill9());
            continue;
        };
        let served = || granted_first(&line[0]).or_else(|| served_behind(&line));
        let ((grant, known), waited) = end.await_next(scene.server.pid(), served);
        if let Some((behind, _)) = served_behind(&line) {
            // A waiter that does not take what it is handed loses it when the offer is over.
            if end.is_before(behind.token, OFFER_MS) {
                report.violation(format!("Fifo: {behind} was granted to one further back in line"));
            }
            report.add(ANEW, 1);
            line.drain(..).for_each(|process| process.kill9());
            continue;
        }
        report.add(MEASURED, 1);
        end.judge(grant.token, &waited, AFTER_THE_LEASE, report);
        report.time("known to the next after that end", late_us(known, end.at));
    }
}

/// A grant to another than the first of these.
fn served_behind(line: &VecDeque<Arc<Process>>) -> Option<(Grant, u64)> {
    line.iter().skip(1).find_map(|process| granted_first(process))
}

/// Whether it has lost the lock, though nobody had killed it.
fn lost(process: &Process) -> bool {
    process.said().iter().any(|said| matches!(said, Said::Ends { why: Why::Lost, .. }))
}

/// Lets somebody hold the lock, and ten wait, each seen in line before the next one comes.
fn fill(scene: &Scene, key: &str, line: &mut VecDeque<Arc<Process>>, control: &mut Connection) {
    let role = Role::new(key, LEASE_MS);
    while line.len() <= WAITERS {
        let before = line.len() as i64;
        line.push_back(scene.enter(&role));
        if before == 0 {
            first_grant(&line[0]);
        } else {
            observe::wait_for_waiters(control, key, before);
        }
    }
}

/// Waits until it says that it holds the lock, and returns which grant that was, and since when it
/// believes.
fn first_grant(process: &Process) -> (Grant, u64) {
    wait::until("it holds the lock", SOON, || {
        granted_first(process).ok_or_else(|| process.name.clone())
    })
}

fn granted_first(process: &Process) -> Option<(Grant, u64)> {
    process.said().iter().find_map(|said| match said {
        Said::Holds { grant, from, .. } => Some((grant.clone(), *from)),
        _ => None,
    })
}

/// Whose clients wait, first in line first.
fn queue(control: &mut Connection, key: &str) -> Vec<String> {
    let info = control.call(cmd!["LOCK.INFO", key, "WAITERS", 1000]);
    let client = |owner: &Value| owner.text().split(':').next().unwrap_or_default().to_owned();
    info.field("queue").elements().iter().map(|waiter| client(&waiter[0])).collect()
}

/// When the lease of a killed holder ends. `None` if it has expired.
fn end_of_lease(control: &mut Connection, key: &str, dead: &Process) -> Option<End> {
    // What it had sent before it died has been carried out when a second answer comes.
    control.run("PING");
    control.run("MULTI");
    control.call(cmd!["LOCK.INFO", key]);
    control.call(cmd!["PEXPIRETIME", key]);
    let both = control.run("EXEC");
    let owner = both[0].field("owner");
    let client = dead.client().expect("it was connected");
    if owner.is_nil() || !owner.text().starts_with(&client) {
        return None;
    }
    Some(End::at_date(both[1].integer()))
}
