//! A server, its client processes, and the evaluation of their reports.

use super::messages::Role;
use super::process::{Process, this_program};
use crate::report::Report;
use harness::Server;
use harness::checker::{Limits, Rule, check};
use harness::history::Call;
use harness::launch::killed_with_us;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Largest number of locks on which [`in_parts`] works at a time.
const AT_ONCE: u64 = 4;

/// Counter of grants on which their processes can have acted.
pub(super) const CHECKED: &str = "grants whose beliefs were checked";

/// The server and processes of a scenario.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) server: Server,
    seed: u64,
    wrong_clock: bool,
    processes: Mutex<Vec<Arc<Process>>>,
}

impl Scene {
    /// Starts a server without clients.
    pub(super) fn set(seed: u64, wrong_clock: bool) -> Self {
        Self { server: Server::start(), seed, wrong_clock, processes: Mutex::default() }
    }

    fn processes(&self) -> MutexGuard<'_, Vec<Arc<Process>>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a client process, and returns when it is connected.
    pub(super) fn enter(&self, role: &Role) -> Arc<Process> {
        self.enter_by(role, killed_with_us(&this_program()))
    }

    /// Starts a client process with the given role and command.
    pub(super) fn enter_by(&self, role: &Role, command: Command) -> Arc<Process> {
        let number = self.processes().len();
        let role = Role {
            address: self.server.url(),
            seed: self.seed.wrapping_add(number as u64),
            wrong_clock: self.wrong_clock,
            ..role.clone()
        };
        let process = Arc::new(Process::start(format!("client-{number}"), role, command));
        self.processes().push(process.clone());
        process
    }

    /// Number of grants that the processes have reported until now.
    pub(super) fn grants(&self) -> u64 {
        self.processes().iter().map(|process| process.heard().tenures.len() as u64).sum()
    }

    /// Kills all clients, and judges their beliefs.
    pub(super) fn close(&self, name: &str, report: &Report) {
        let mut calls = Vec::new();
        for process in self.processes().iter() {
            report.add("client processes", 1);
            calls.extend(judge(process, report));
        }
        for process in self.processes().iter().filter(|it| !it.role.what.is_empty()) {
            report.wants(&format!("{}: grants", process.role.what), 1);
        }
        let mut found = check(&calls, &Limits::default());
        found.retain(|it| matches!(it.rule, Rule::Belief | Rule::TokenOrder));
        found.iter().for_each(|violation| report.violation(violation.to_string()));
        let believed = calls.iter().filter(|call| call.valid_until.is_some()).count();
        report.add(CHECKED, believed as u64);
        if !self.server.is_alive() {
            report.violation("Server: it is dead or stuck");
        }
        if !report.is_right() {
            let mut lines = vec![format!("seed {}", self.seed)];
            lines.extend(self.processes().iter().map(|process| format!("{process:#?}")));
            lines.push(self.server.log());
            report.keep(name, &lines);
        }
    }
}

/// Kills a process and counts its reports. Returns its grants.
fn judge(process: &Process, report: &Report) -> Vec<Call> {
    let killed = process.kill9();
    let (what, heard) = (&process.role.what, process.heard());
    let add = |counted: &str, count| {
        report.add(counted, count);
        if !what.is_empty() {
            report.add(&format!("{what}: {counted}"), count);
        }
    };
    heard.counts.iter().for_each(|(counted, count)| add(counted, *count));
    heard.violations.iter().for_each(|violation| report.violation(violation));
    add("grants", heard.tenures.len() as u64);
    for tenure in heard.tenures.values() {
        add("released", tenure.released.is_some().into());
        let lost = if tenure.watched { "lost" } else { "leases that ended by themselves" };
        add(lost, tenure.lost.is_some().into());
        tenure.violation().into_iter().for_each(|violation| report.violation(violation));
    }
    heard.tenures.values().map(|tenure| tenure.call(&process.name, killed)).collect()
}

/// Runs `work` on up to four locks in parallel, each with its share of the repetitions.
pub(super) fn in_parts(times: u64, work: impl Fn(u64, u64) + Sync) {
    let (parts, work) = (AT_ONCE.min(times), &work);
    thread::scope(|scope| {
        for part in 0..parts {
            scope.spawn(move || work(part, times / parts + u64::from(part < times % parts)));
        }
    });
}
