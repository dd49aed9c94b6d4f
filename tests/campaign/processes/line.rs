//! One lock, and connections that are in line for it between client processes: they do nothing but wait for
//! the answer, since whoever asks the server meanwhile may remind it.
//!
//! A token is the server's date of the grant in microseconds, so it says when that was.

use super::process::Process;
use super::scene::Scene;
use crate::Options;
use crate::report::Report;
use harness::random::Random;
use harness::{Connection, cmd, observe, wait};
use std::thread;
use std::time::{Duration, SystemTime};

/// How many locks are worked on at a time.
const AT_ONCE: u64 = 4;

/// Later than this is what we do not want.
const LATE_US: i64 = 20_000;

/// How long one in line that is served is waited for.
const SERVED: Duration = Duration::from_secs(10);

/// The lease of those in line, which is not waited for.
const LONG_MS: u64 = 60_000;

/// One in line.
pub(super) struct Waiter {
    pub(super) owner: String,
    connection: Connection,
}

/// A grant, and until when it lasts.
pub(super) struct Lease {
    pub(super) token: u64,
    end_ms: i64,
}

/// Those who want one lock.
pub(super) struct Line<'a> {
    pub(super) number: u64,
    pub(super) key: String,
    pub(super) scene: &'a Scene,
    pub(super) report: &'a Report,
    pub(super) control: Connection,
    pub(super) random: Random,
}

/// As many steps as the options say, on four locks at a time, each apart from the others. A step says
/// whether it counts; a lock is left after one that says nothing.
pub(super) fn in_lines<T>(
    scene: &Scene,
    options: &Options,
    report: &Report,
    begin: impl Fn(&Line<'_>) -> T + Sync,
    step: impl Fn(&mut Line<'_>, &mut T) -> Option<bool> + Sync,
) {
    let (times, random) = (options.times(200), Random::new(options.seed.number));
    let (parts, begin, step) = (AT_ONCE.min(times), &begin, &step);
    thread::scope(|scope| {
        for number in 0..parts {
            let (key, control) = (format!("line-{number}"), scene.server.connect());
            let random = random.part(number);
            let mut line = Line { number, key, scene, report, control, random };
            let mut left = times / parts + u64::from(number < times % parts);
            scope.spawn(move || {
                let mut those = begin(&line);
                while left > 0
                    && let Some(counts) = step(&mut line, &mut those)
                {
                    left -= u64::from(counts);
                }
            });
        }
    });
}

impl Line<'_> {
    pub(super) fn waiter(&self, number: usize) -> Waiter {
        Waiter { owner: format!("waiter-{number}"), connection: self.scene.server.connect() }
    }

    /// A waiter asks for the lock.
    pub(super) fn asks(&self, waiter: &mut Waiter) {
        waiter.connection.send(cmd!["LOCK.WAIT", self.key, waiter.owner, LONG_MS, 0]);
    }

    /// The same behind that many others.
    pub(super) fn asks_behind(&mut self, others: i64, waiter: &mut Waiter) {
        self.asks(waiter);
        observe::wait_for_waiters(&mut self.control, &self.key, others + 1);
    }

    /// For as long, drawn each time, at most.
    pub(super) fn let_pass(&mut self, most_ms: u64) {
        let time = Duration::from_millis(1 + self.random.below(most_ms));
        observe::let_pass(&mut self.control, time);
    }

    /// What a process has the lock by, as the server says, if it has it.
    pub(super) fn lease_of(&mut self, process: &Process) -> Option<Lease> {
        self.control.run("MULTI");
        self.control.call(cmd!["LOCK.INFO", self.key]);
        self.control.call(cmd!["PEXPIRETIME", self.key]);
        let both = self.control.run("EXEC");
        let owner = both[0].field("owner");
        let is_its = !owner.is_nil() && owner.text().starts_with(&process.client);
        let token = both[0].field("token");
        is_its.then(|| Lease { token: token.integer().cast_unsigned(), end_ms: both[1].integer() })
    }

    fn release(&mut self, waiter: &Waiter) {
        self.control.call(cmd!["LOCK.RELEASE", self.key, waiter.owner]);
    }

    /// The first in line has the lock soon: with that token.
    pub(super) fn is_served(&self, first: &mut Waiter) -> Option<u64> {
        let Ok(granted) = first.connection.receive(SERVED) else {
            let (key, owner) = (&self.key, &first.owner);
            self.report.violation(format!("Fifo: {key}: {owner} is not served in its turn"));
            return None;
        };
        Some(granted[0].integer().cast_unsigned())
    }

    /// The first in line has the lock when that lease is over. Notes how late, and how late it would have
    /// been if the server had not wanted a processor meanwhile.
    pub(super) fn is_served_after(
        &self,
        lease: &Lease,
        first: &mut Waiter,
        what: &str,
    ) -> Option<u64> {
        let server = self.scene.server.pid();
        let mut waited_before = waited(server);
        while date_ms() < lease.end_ms {
            waited_before = waited(server);
            wait::pass(Duration::from_millis(1));
        }
        let token = self.is_served(first)?;
        let waited_us = (waited(server) - waited_before) / 1000;
        let late = token.cast_signed() - lease.end_ms * 1000;
        if late < 0 {
            let early = format!("Early: {token} {} us before the end: {what}", -late);
            self.report.violation(early);
        }
        let own = (late - waited_us.cast_signed()).max(0);
        for (what, late) in [(what, late), (&without_waiting(what), own)] {
            self.report.time(what, late);
            self.report.add(&format!("{what}: more than 20 ms"), u64::from(late > LATE_US));
        }
        Some(token)
    }
}

/// The name of the same times, as they would be if the server had always had a processor.
fn without_waiting(what: &str) -> String {
    format!("{what}, without the time in which the server had no processor")
}

/// Half of those times are as short as we want it, if the server has a processor.
pub(super) fn is_prompt(what: &str, report: &Report) {
    report.is_mostly_below(&without_waiting(what), LATE_US);
}

/// The date of this machine, and of its servers.
pub(super) fn date_ms() -> i64 {
    let date = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    date.as_millis().try_into().expect("not for centuries")
}

/// For how many nanoseconds of its life a process wanted a processor and had none.
fn waited(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    stat.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}
