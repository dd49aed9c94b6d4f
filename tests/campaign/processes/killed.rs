//! A holder that renews its lease is killed while ten wait: the next in line has the lock when the
//! lease ends, not earlier, and nobody else has it.

use super::end::{LATE_US, lease_of, queue, without_waiting};
use super::process::Process;
use super::role::Role;
use super::said::{End as Why, Said};
use super::scene::{Scene, in_parts, late_us};
use crate::Options;
use crate::report::Report;
use harness::random::Random;
use harness::{Connection, observe};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const LEASE_MS: u64 = 1000;
const WAITERS: usize = 10;

/// What a waiter is offered until it says that it is there: no more than its lease.
const OFFER_US: i64 = 1_000_000;

const KILLS: &str = "holders killed with ten in line";
const ANEW: &str = "lines begun anew: somebody had no processor time, and lost the lock";
const MEASURED: &str = "hand-offs measured";
const AFTER_THE_LEASE: &str = "granted after the end of that lease";

/// Each lock has a line of its own.
pub(super) fn run(scene: &Scene, options: &Options, report: &Report) {
    let (kills, random) = (options.times(200), Random::new(options.seed.number));
    in_parts(kills, |line, share| {
        in_line(scene, &format!("line-{line}"), share, random.part(line), report);
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
    // To another than the first of these.
    let served_behind = |line: &VecDeque<Arc<Process>>| {
        line.iter().skip(1).find_map(|process| process.granted_after(0))
    };
    let anew = |line: &mut VecDeque<Arc<Process>>, why: &str| {
        report.add(why, 1);
        line.drain(..).for_each(|process| process.kill9());
    };
    while done < kills {
        fill(scene, key, &mut line, &mut control);
        // Anywhere between two renewals.
        observe::let_pass(&mut control, Duration::from_millis(1 + random.below(LEASE_MS / 2)));
        let queue = queue(&mut control, key);
        let came: Vec<_> = line.iter().skip(1).filter_map(|process| process.client()).collect();
        if queue != came || served_behind(&line).is_some() {
            // Though nobody had killed it.
            let is_lost = |said: &Said| matches!(said, Said::Ends { why: Why::Lost, .. });
            if !line[0].said().iter().any(is_lost) {
                report.violation(format!("Fifo: {key}: {queue:?} wait, and came as {came:?}"));
            }
            anew(&mut line, ANEW);
            continue;
        }
        let Some(holder) = line.pop_front() else { return };
        holder.kill9();
        done += 1;
        report.add(KILLS, 1);
        // What it had sent before it died has been carried out when a second answer comes.
        control.run("PING");
        let Some((_, end)) = lease_of(&mut control, key, &holder) else {
            anew(&mut line, "kills whose hand-off came before it could be measured");
            continue;
        };
        let served = || line[0].granted_after(0).or_else(|| served_behind(&line));
        let ((grant, known), waited) = end.await_next(scene.server.pid(), served);
        if let Some((behind, _)) = served_behind(&line) {
            // A waiter that does not take what it is handed loses it when the offer is over.
            if end.late_us(behind.token) < OFFER_US {
                report.violation(format!("Fifo: {behind} was granted to one further back in line"));
            }
            anew(&mut line, ANEW);
            continue;
        }
        report.add(MEASURED, 1);
        end.judge(grant.token, &waited, AFTER_THE_LEASE, report);
        report.time("known to the next after that end", late_us(known, end.at));
    }
}

/// Lets somebody hold the lock, and ten wait, each seen in line before the next one comes.
fn fill(scene: &Scene, key: &str, line: &mut VecDeque<Arc<Process>>, control: &mut Connection) {
    let role = Role::new(key, LEASE_MS);
    while line.len() <= WAITERS {
        let before = line.len() as i64;
        line.push_back(scene.enter(&role));
        if before == 0 {
            line[0].await_grant_after(0);
        } else {
            observe::wait_for_waiters(control, key, before);
        }
    }
}
