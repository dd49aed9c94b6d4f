//! Leases that end while others wait: of a holder that is killed while it renews its lock and ten are in
//! line, and of what the first in line is offered, which is stopped. The next in line has the lock when the
//! lease ends, not earlier, and nobody else has it.

use super::line::{Line, Waiter, date_ms, in_lines, is_prompt};
use super::process::Process;
use super::said::Role;
use super::scene::Scene;
use crate::Options;
use crate::report::Report;
use harness::{cmd, observe};
use nix::sys::signal::Signal;

/// The lease of a holder that is killed.
const LEASE_MS: u64 = 1000;

/// What a waiter is offered until it says that it is there.
const OFFER_MS: i64 = 2000;

const KILLS: &str = "holders killed with ten in line";
const MEASURED: &str = "hand-offs measured";
const OVER: &str = "kills of holders that had no processor time, and had lost the lock";
const AFTER_THE_LEASE: &str = "granted after the end of that lease";

const STOPS: &str = "waiters stopped who were handed the lock";
const UNSEEN: &str = "offers that were over before the server was asked for them";
const AFTER_THE_OFFER: &str = "handed to the next after the end of the offer";

pub(super) fn killed(scene: &Scene, options: &Options, report: &Report) {
    let ten = |line: &Line<'_>| -> Vec<_> { (0..10).map(|number| line.waiter(number)).collect() };
    in_lines(scene, options, report, ten, |line, ten| outlive_a_holder(line, ten));
    let kills = options.times(200);
    report.wants(KILLS, kills);
    // One that comes too early is over before the end of the lease can be asked for.
    report.wants(MEASURED, kills.div_ceil(2));
    report.excuses(OVER, kills);
    is_prompt(AFTER_THE_LEASE, report);
}

/// A holder is killed anywhere between two renewals, and the ten have the lock one after another.
fn outlive_a_holder(line: &mut Line<'_>, ten: &mut [Waiter]) -> Option<bool> {
    let report = line.report;
    let holder = line.scene.enter(&Role::new(vec![line.key.clone()], LEASE_MS));
    let tenure = holder.wait_for("it holds the lock", |heard| heard.tenures.keys().next().copied());
    for (waiter, others) in ten.iter_mut().zip(0..) {
        line.asks_behind(others, waiter);
    }
    line.let_pass(LEASE_MS / 2);
    let info = line.control.call(cmd!["LOCK.INFO", line.key, "WAITERS", 1000]);
    let killed = holder.kill9();
    report.add(KILLS, 1);
    let queue = info.field("queue").elements().iter().map(|waiter| waiter[0].text());
    let was_lost = holder.heard().tenures[&tenure].ended(killed) < killed;
    if !was_lost && !queue.eq(ten.iter().map(|waiter| waiter.owner.clone())) {
        report.violation(format!("Fifo: {}: not in line as they came: {info}", line.key));
    }
    // What it had sent before it died has been carried out when a second answer comes.
    line.control.run("PING");
    if let Some(lease) = line.lease_of(&holder) {
        line.is_served_after(&lease, &mut ten[0], AFTER_THE_LEASE)?;
        report.add(MEASURED, 1);
    } else {
        line.is_served(&mut ten[0])?;
        report.add(OVER, 1);
    }
    line.release(&ten[0]);
    for next in &mut ten[1..] {
        line.is_served(next)?;
        line.release(next);
    }
    Some(true)
}

pub(super) fn waiting(scene: &Scene, options: &Options, report: &Report) {
    let three = |line: &Line<'_>| {
        // What a waiter is offered is shorter than its lease.
        let role = Role { hold_ms: Some(300), ..Role::new(vec![line.key.clone()], 10_000) };
        (scene.enter(&role), [0, 1].map(|number| line.waiter(number)))
    };
    in_lines(scene, options, report, three, |line, (first, others)| {
        pass_by_a_waiter(line, first, others)
    });
    let stops = options.times(200);
    report.wants(STOPS, stops);
    report.excuses(UNSEEN, stops);
    is_prompt(AFTER_THE_OFFER, report);
}

/// The first in line is stopped, and handed the lock: it costs the next what it was offered.
fn pass_by_a_waiter(
    line: &mut Line<'_>,
    first: &Process,
    [before, next]: &mut [Waiter; 2],
) -> Option<bool> {
    let report = line.report;
    // The process comes again and again.
    line.asks(before);
    line.is_served(before)?;
    observe::wait_for_waiters(&mut line.control, &line.key, 1);
    line.asks_behind(1, next);
    first.signal(Signal::SIGSTOP);
    let released_ms = date_ms();
    line.release(before);
    let Some(offer) = line.lease_of(first) else {
        first.signal(Signal::SIGCONT);
        let token = line.is_served(next)?;
        if token.cast_signed() < (released_ms + OFFER_MS) * 1000 {
            report.violation(format!("Fifo: {} was not handed the lock", first.name));
            return None;
        }
        report.add(UNSEEN, 1);
        line.release(next);
        return Some(false);
    };
    let token = line.is_served_after(&offer, next, AFTER_THE_OFFER)?;
    first.signal(Signal::SIGCONT);
    line.release(next);
    // It has the lock in its turn.
    first.wait_for("it is granted the lock", |heard| {
        heard.tenures.values().find(|tenure| tenure.token > token).map(drop)
    });
    if first.heard().tenures.values().any(|tenure| tenure.token == offer.token) {
        report.violation(format!("Late: {} believed in an offer that was over", first.name));
    }
    report.add(STOPS, 1);
    report.time("what the stopped waiter cost", (token - offer.token).cast_signed());
    Some(true)
}
