//! A server, the client processes at it, and what is made of what they said.

use super::beliefs::{self, Belief};
use super::process::{Circumstances, Process};
use super::role::Role;
use super::said::{End, Said};
use crate::report::Report;
use harness::Server;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// How fast the clock of a client runs that counts validity wrongly, in percent.
const WRONG_CLOCK: u64 = 25;

/// How many locks are worked on at a time.
const AT_ONCE: u64 = 4;

/// Where a scenario is played.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) server: Server,
    seed: u64,
    wrong_clock: bool,
    started: AtomicU64,
    processes: Mutex<Vec<Arc<Process>>>,
}

impl Scene {
    /// With a server, and nobody at it.
    pub(super) fn set(name: &'static str, seed: u64, wrong_clock: bool) -> Self {
        Self {
            name,
            server: Server::start(),
            seed,
            wrong_clock,
            started: AtomicU64::new(0),
            processes: Mutex::new(Vec::new()),
        }
    }

    fn processes(&self) -> Vec<Arc<Process>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One more client process, which is connected.
    pub(super) fn enter(&self, role: &Role) -> Arc<Process> {
        self.enter_under(role, Circumstances::default())
    }

    /// One more client process under circumstances of its own.
    pub(super) fn enter_under(&self, role: &Role, around: Circumstances<'_>) -> Arc<Process> {
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let mut role = role.clone();
        role.address = self.server.url();
        role.seed = self.seed.wrapping_add(number);
        if self.wrong_clock {
            role.clock = WRONG_CLOCK;
        }
        let process = Arc::new(Process::start(format!("client-{number}"), &role, around));
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.push(process.clone());
        process
    }

    /// How many locks were granted so far.
    pub(super) fn grants(&self) -> u64 {
        self.processes().iter().map(|process| process.grants()).sum()
    }

    /// Kills these clients; what they believed is judged at the end.
    pub(super) fn retire(&self, clients: &[Arc<Process>]) {
        clients.iter().for_each(|client| client.kill9());
    }

    /// Kills all clients, and judges what they believed.
    pub(super) fn close(&self, report: &Report) {
        let mut beliefs: Vec<Belief> = Vec::new();
        let processes = self.processes();
        for process in &processes {
            process.kill9();
            if process.gave_up() {
                report.violation(format!("Ended: {} gave up by itself", process.name));
            }
            let killed = process.killed().expect("it was");
            let said = process.said();
            let (its, violations) = beliefs::of(&process.name, &said, killed);
            beliefs.extend(its);
            violations.into_iter().for_each(|wrong| report.violation(wrong));
            said.iter().for_each(|said| count(said, report));
        }
        report.add("client processes", processes.len() as u64);
        let empty = beliefs.iter().filter(|belief| belief.is_empty()).count();
        report.add("grants whose beliefs were checked", (beliefs.len() - empty) as u64);
        report.add("grants that were over when their process went on", empty as u64);
        beliefs::check(&beliefs).into_iter().for_each(|wrong| report.violation(wrong));
        if !self.server.is_alive() {
            report.violation("Server: it is dead or stuck");
        }
        if !report.is_right() {
            report.keep(self.name, &self.diary());
        }
    }

    /// What all clients said, for people.
    fn diary(&self) -> Vec<String> {
        let mut lines = vec![format!("seed {}", self.seed)];
        for process in self.processes() {
            lines.push(format!("{}, killed at {:?}", process.name, process.killed()));
            lines.extend(process.said().iter().map(|said| format!("{}: {said:?}", process.name)));
        }
        lines.push(self.server.log());
        lines
    }
}

/// Works on four locks at a time, each apart from the others, for its share of the times.
pub(super) fn in_parts(times: u64, work: impl Fn(u64, u64) + Sync) {
    let (parts, work) = (AT_ONCE.min(times), &work);
    thread::scope(|scope| {
        for part in 0..parts {
            scope.spawn(move || work(part, times / parts + u64::from(part < times % parts)));
        }
    });
}

impl Drop for Scene {
    fn drop(&mut self) {
        if thread::panicking() {
            Report::default().keep(self.name, &self.diary());
        }
    }
}

fn count(said: &Said, report: &Report) {
    match said {
        Said::Until { .. } => report.add("renewals", 1),
        Said::Ends { why: End::Release, .. } => report.add("released", 1),
        Said::Ends { why: End::Lost, .. } => report.add("lost", 1),
        Said::Ends { why: End::Over, .. } => report.add("leases that ended by themselves", 1),
        Said::FalseLoss { .. } => report.add("lost, while the server had it still", 1),
        Said::Refused { .. } => report.add("late writes of holders who had looked, refused", 1),
        Said::Careless { tries, taken, .. } => {
            report.add("writes of careless holders after a loss", *tries);
            // A write after a loss is not stale before the next grant.
            report.add(
                "writes of careless holders after a loss: taken, as nobody had come after them",
                *taken,
            );
        }
        Said::Waited { limit_ns, took_ns } => {
            report.add("waits that ended without the lock", 1);
            report.time("waits ended after their limit", late_us(*took_ns, *limit_ns));
            if took_ns < limit_ns {
                report
                    .violation(format!("Early: a wait of {limit_ns} ns ended after {took_ns} ns"));
            }
        }
        Said::Trouble { .. } => report.add("acquires and releases that failed, and were let be", 1),
        Said::Ready { .. } | Said::Holds { .. } => {}
    }
}

/// How many microseconds late it was, of times in nanoseconds.
pub(super) fn late_us(at: u64, expected: u64) -> i64 {
    let late = i128::from(at) - i128::from(expected);
    i64::try_from(late / 1000).expect("not for centuries")
}
