//! Leases that end while clients wait. In one case, a holder that renews its lock is killed while ten clients
//! wait. In the other, the first waiter is stopped and then offered the lock. The next waiter must get the
//! lock when the lease or the offer ends, not earlier, and no other client may rely on the lock then.
//!
//! The next waiters are plain connections that only wait for the reply: a request could make the server
//! notice the end of the lease. A token is about the server's date of the grant in microseconds, so it gives
//! the time of the grant.

use super::messages::{Role, now};
use super::process::Process;
use super::scene::{Scene, in_parts};
use crate::Options;
use crate::report::Report;
use harness::random::Random;
use harness::{Connection, cmd, observe, wait};
use nix::sys::signal::Signal;
use std::time::{Duration, SystemTime};

/// Limit, in microseconds, for the delay of a hand-off. At most half of the delays may exceed it.
const LATE_US: i64 = 20_000;

/// Least repetitions of a run whose delays are limited. The locks of a short run are handed off in the same
/// moments, so that a single pause of the machine delays most of them.
const LIMITED: u64 = 20;

/// Longest wait for a waiter to be served.
const SERVED: Duration = Duration::from_secs(10);

/// The lease of a holder that is killed.
const LEASE_MS: u64 = 1000;

/// The lease of the waiters. No test waits for its end.
const LONG_MS: u64 = 60_000;

/// Duration of an offer: the lease of a granted waiter until it confirms the grant by a renewal.
const OFFER_MS: i64 = 2000;

const KILLS: &str = "holders killed with ten in line";
const MEASURED: &str = "hand-offs measured";
const OVER: &str = "kills of holders that had no processor time, and had lost the lock";
const AFTER_THE_LEASE: &str = "granted after the end of that lease";

const STOPS: &str = "waiters stopped who were handed the lock";
const UNSEEN: &str =
    "waiters stopped whose offer was not seen: away, or over when the server was asked";
const AFTER_THE_OFFER: &str = "handed to the next after the end of the offer";

/// Kills holders of several locks, each with its own queue.
pub(super) fn killed(scene: &Scene, options: &Options, report: &Report) {
    let (kills, random) = (options.times(200), Random::new(options.seed.number));
    in_parts(kills, |line, share| {
        let mut random = random.part(line);
        let mut line = Line::open(scene, report, format!("line-{line}"));
        let mut ten: Vec<Waiter> = (0..10).map(|number| line.waiter(number)).collect();
        for _ in 0..share {
            if line.outlives_its_holder(&mut ten, &mut random).is_none() {
                return;
            }
        }
    });
    report.wants(KILLS, kills);
    // A kill just before the end of a lease leaves no time to read that end.
    report.wants(MEASURED, kills.div_ceil(2));
    report.excuses(OVER, kills);
    limit(AFTER_THE_LEASE, kills, report);
}

pub(super) fn waiting(scene: &Scene, options: &Options, report: &Report) {
    let stops = options.times(200);
    in_parts(stops, |line, share| {
        let mut line = Line::open(scene, report, format!("turns-{line}"));
        // The lease of 10 s is longer than an offer.
        let role = Role { hold_ms: Some(300), ..Role::new(vec![line.key.clone()], 10_000) };
        let (process, mut both) = (scene.enter(&role), [0, 1].map(|number| line.waiter(number)));
        let mut done = 0;
        while done < share {
            let Some(stopped) = line.passes_by(&process, &mut both) else { return };
            done += u64::from(stopped);
        }
    });
    report.wants(STOPS, stops);
    report.excuses(UNSEEN, stops);
    limit(AFTER_THE_OFFER, stops, report);
}

/// Limits the delays of a run with enough repetitions.
fn limit(what: &str, times: u64, report: &Report) {
    if times >= LIMITED {
        report.is_mostly_below(&without_waiting(what), LATE_US);
    }
}

/// Returns the name under which the report keeps the times of `what` without the time in which the server waited
/// for a processor.
fn without_waiting(what: &str) -> String {
    format!("{what}, without the time in which the server had no processor")
}

/// A waiter that is a plain connection.
struct Waiter {
    owner: String,
    connection: Connection,
}

/// A grant, and the end of its lease.
struct Lease {
    token: u64,
    end_ms: i64,
}

/// A grant after the end of another lease.
struct Served {
    token: u64,
    late_us: i64,
    /// Time in which the server waited for a processor, from about the end of the lease to the grant.
    waited_us: i64,
}

/// One lock for which clients wait.
struct Line<'a> {
    scene: &'a Scene,
    report: &'a Report,
    key: String,
    control: Connection,
}

impl<'a> Line<'a> {
    fn open(scene: &'a Scene, report: &'a Report, key: String) -> Self {
        Self { scene, report, key, control: scene.server.connect() }
    }

    fn waiter(&self, number: usize) -> Waiter {
        Waiter { owner: format!("waiter-{number}"), connection: self.scene.server.connect() }
    }

    /// Kills a holder at a random moment. Then the ten waiters must get the lock one after another; `None` if
    /// they do not.
    fn outlives_its_holder(&mut self, ten: &mut [Waiter], random: &mut Random) -> Option<()> {
        let holder = self.scene.enter(&Role::new(vec![self.key.clone()], LEASE_MS));
        let tenure =
            holder.wait_for("it holds the lock", |heard| heard.tenures.keys().next().copied());
        for (waiter, in_line) in ten.iter_mut().zip(1..) {
            waiter.asks_for(&self.key);
            observe::wait_for_waiters(&mut self.control, &self.key, in_line);
        }
        observe::let_pass(&mut self.control, Duration::from_millis(1 + random.below(LEASE_MS / 2)));
        let queue = self.queue();
        let killed = holder.kill9();
        self.report.add(KILLS, 1);
        let was_lost = holder.heard().tenures[&tenure].ended(killed) < killed;
        if !was_lost && !queue.iter().eq(ten.iter().map(|waiter| &waiter.owner)) {
            self.report
                .violation(format!("Fifo: {}: not in line as they came: {queue:?}", self.key));
        }
        // After the replies to this command and the next, the server has executed all commands that the
        // process sent before it died.
        self.control.run("PING");
        match self.lease_of(&holder) {
            Some(lease) => {
                let served = self.is_served_after(&lease, &mut ten[0])?;
                self.note(&served, AFTER_THE_LEASE);
                self.report.add(MEASURED, 1);
            }
            None => {
                self.report.add(OVER, 1);
                self.is_served(&mut ten[0])?;
            }
        }
        self.release(&ten[0]);
        for next in &mut ten[1..] {
            self.is_served(next)?;
            self.release(next);
        }
        Some(())
    }

    /// Stops the first waiter and lets the server hand it the lock: the next waiter must get the lock only
    /// after the offer. Returns whether the offer was seen and the stopped process had not received it; `None`
    /// if a waiter did not get the lock in its turn.
    fn passes_by(&mut self, first: &Process, [before, next]: &mut [Waiter; 2]) -> Option<bool> {
        // The process queues again repeatedly.
        before.asks_for(&self.key);
        self.is_served(before)?;
        observe::wait_for_waiters(&mut self.control, &self.key, 1);
        next.asks_for(&self.key);
        observe::wait_for_waiters(&mut self.control, &self.key, 2);
        first.signal(Signal::SIGSTOP);
        // If the process is stopped while no read of its session is blocked, the server may skip its place.
        let is_there = self.queue().first().is_some_and(|it| it.starts_with(&first.client));
        let released_ms = date_ms();
        self.release(before);
        let Some(offer) = self.lease_of(first) else {
            first.signal(Signal::SIGCONT);
            let token = self.is_served(next)?;
            if is_there && token.cast_signed() < (released_ms + OFFER_MS) * 1000 {
                self.report.violation(format!("Fifo: {} was not handed the lock", first.name));
                return None;
            }
            self.report.add(UNSEEN, 1);
            self.release(next);
            return Some(false);
        };
        let served = self.is_served_after(&offer, next)?;
        let (token, goes_on) = (served.token, now());
        first.signal(Signal::SIGCONT);
        self.release(next);
        // The process gets the lock again when it is first in line.
        first.wait_for("it is granted the lock", |heard| {
            heard.tenures.values().find(|tenure| tenure.token > token).map(drop)
        });
        let heard = first.heard();
        match heard.tenures.values().find(|tenure| tenure.token == offer.token) {
            // The process received the grant before it was stopped.
            Some(tenure) if tenure.from < goes_on => {
                self.report.add(UNSEEN, 1);
                return Some(false);
            }
            Some(_) => {
                let late = format!("Late: {} believed in an offer that was over", first.name);
                self.report.violation(late);
            }
            None => {}
        }
        self.note(&served, AFTER_THE_OFFER);
        self.report.add(STOPS, 1);
        self.report.time("what the stopped waiter cost", (token - offer.token).cast_signed());
        Some(true)
    }

    /// Owners in the queue, in order, without those whose session is away.
    fn queue(&mut self) -> Vec<String> {
        let info = self.control.call(cmd!["LOCK.INFO", self.key, "WAITERS", 1000]);
        let owners = info.field("queue").elements().iter().map(|waiter| waiter[0].text());
        owners.collect()
    }

    /// The grant of a process, as reported by the server, if it has the lock.
    fn lease_of(&mut self, process: &Process) -> Option<Lease> {
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

    /// Checks that the first waiter gets the lock soon. Returns its token.
    fn is_served(&self, first: &mut Waiter) -> Option<u64> {
        let Ok(granted) = first.connection.receive(SERVED) else {
            let (key, owner) = (&self.key, &first.owner);
            self.report.violation(format!("Fifo: {key}: {owner} is not served in its turn"));
            return None;
        };
        Some(granted[0].integer().cast_unsigned())
    }

    /// Waits until the given lease has ended, then checks that the first waiter gets the lock soon.
    fn is_served_after(&self, lease: &Lease, first: &mut Waiter) -> Option<Served> {
        let server = self.scene.server.pid();
        let mut waited_before = waited(server);
        while date_ms() < lease.end_ms {
            waited_before = waited(server);
            wait::pass(Duration::from_millis(1));
        }
        let token = self.is_served(first)?;
        let late_us = token.cast_signed() - lease.end_ms * 1000;
        let waited_us = ((waited(server) - waited_before) / 1000).cast_signed();
        Some(Served { token, late_us, waited_us })
    }

    /// Records how late the grant was, with and without the time in which the server waited for a processor.
    /// An early grant is a violation.
    fn note(&self, served: &Served, what: &str) {
        let Served { token, late_us, waited_us } = *served;
        if late_us < 0 {
            let early = format!("Early: {token} {} us before the end: {what}", -late_us);
            self.report.violation(early);
        }
        let own = (late_us - waited_us).max(0);
        for (what, late) in [(what, late_us), (&without_waiting(what), own)] {
            self.report.time(what, late);
            self.report.add(&format!("{what}: more than 20 ms"), u64::from(late > LATE_US));
        }
    }
}

impl Waiter {
    fn asks_for(&mut self, key: &str) {
        self.connection.send(cmd!["LOCK.WAIT", key, self.owner, LONG_MS, 0]);
    }
}

/// The date of this machine, and of its servers.
fn date_ms() -> i64 {
    let date = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    date.as_millis().try_into().expect("not for centuries")
}

/// Time in nanoseconds in which the main thread of a process waited for a processor.
fn waited(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    stat.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}
