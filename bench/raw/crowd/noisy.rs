//! Delays of other clients while many waits of one session are made, granted, timed out or closed together,
//! while their latch opens, or while their session is away. One thread that never sleeps acts as all of these
//! clients, so the times are mostly spent in the server.

use super::line::Line;
use super::others::Others;
use crate::wire::{Reply, request};
use driver::{Args, now};
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of commands sent at once: they and their replies fit into the socket buffers.
const AT_ONCE: usize = 100;
/// A lease that does not end during the measurement.
const LEASE_MS: &str = "3600000";
const TTL_MS: &str = "60000";
/// Largest number of outcomes in a reply. Parsing more at once would delay the other clients.
const COUNT: &str = "100";
/// Margin before the time at which all waits end together.
const SPARE_MS: usize = 1_000;
/// Largest number of waiters outside the crowd.
const OTHERS: u64 = 2;
/// Longest time without output.
const SILENCE_NS: u64 = 5_000_000_000;
/// Interval at which the state of the server is polled.
const LOOK_NS: u64 = 20_000_000;
/// Longest wait for a reply.
const PATIENCE_NS: u64 = 60_000_000_000;

struct Crowd {
    others: Others,
    /// Sends all commands except `SESSION.NEXT`.
    line: Line,
    reader: Line,
    session: String,
    waits: usize,
    /// Time at which leases or timeouts end all waits, in milliseconds since 1970; 0 in other phases.
    end: usize,
    /// Time of the last output. `u64::MAX` before `ready`, so that nothing is printed earlier.
    printed: u64,
}

pub(crate) fn run(args: &Args) {
    let (url, phase) = (args.text("url"), args.text("phase"));
    let others = Others::connect(url);
    let mut crowd = Crowd {
        others,
        line: Line::connect(url),
        reader: Line::connect(url),
        session: String::new(),
        waits: args.number("tasks"),
        end: 0,
        printed: u64::MAX,
    };
    crowd.prepare(phase);
    println!("ready {}", env!("CARGO_PKG_VERSION"));
    crowd.printed = now();
    let go = std::io::stdin().lines().next().unwrap().unwrap();
    let end: u64 = go.rsplit(' ').next().unwrap().parse().unwrap();
    crowd.settle();
    crowd.others.begin();
    let begun = now();
    if crowd.waits > 0 {
        crowd.begin_phase(phase, url);
    } else {
        while now() < end {
            crowd.look();
        }
    }
    let took = now() - begun;
    let mut text = crowd.others.end();
    text.push_str(&format!("phase {took}\ndone\n"));
    std::io::stdout().write_all(text.as_bytes()).unwrap();
}

impl Crowd {
    /// Prepares a phase: makes the waits of the crowd, unless making them is measured.
    fn prepare(&mut self, phase: &str) {
        if self.waits == 0 {
            return;
        }
        let opened = self.call(&["SESSION.OPEN", TTL_MS]);
        let Reply::Array(opened) = opened else { panic!("{opened:?}") };
        let Some(Reply::Text(id)) = opened.into_iter().next() else { panic!("no id") };
        self.session = String::from_utf8(id).unwrap();
        let session = self.session.clone();
        self.call(&["LOCK.ACQUIRE", "crowd", "holder", LEASE_MS]);
        match phase {
            "made" => {}
            "opened" => {
                self.call(&["LATCH.SET", "latch", "1"]);
                self.all(|n| {
                    request(&["LATCH.WAIT", "latch", &owner(n), "0", "SESSION", &session])
                });
            }
            "granted" => {
                let key = |n| format!("crowd:{n}");
                self.all(|n| request(&["LOCK.ACQUIRE", &key(n), "holder", LEASE_MS]));
                let begun = unix_ms();
                self.all(|n| wait(&key(n), n, "0", &session));
                let end = self.end_after(begun).to_string();
                self.all(|n| request(&["PEXPIREAT", &key(n), &end]));
            }
            "timed-out" => {
                let begun = unix_ms();
                self.all(|n| wait("crowd", n, "0", &session));
                // Send the same waits again, with timeouts that all end at the same time.
                let end = self.end_after(begun);
                self.all(|n| {
                    let left = end.saturating_sub(unix_ms()).max(1).to_string();
                    wait("crowd", n, &left, &session)
                });
            }
            _ => self.all(|n| wait("crowd", n, "0", &session)),
        }
    }

    /// Sets and returns the time at which all waits end. It leaves twice the time since `begun`, plus a
    /// margin.
    fn end_after(&mut self, begun: usize) -> usize {
        let now = unix_ms();
        self.end = now + 2 * (now - begun) + SPARE_MS;
        self.end
    }

    /// Does the measured work of a phase.
    fn begin_phase(&mut self, phase: &str, url: &str) {
        match phase {
            "made" => {
                let session = self.session.clone();
                self.all(|n| wait("crowd", n, "0", &session));
            }
            "opened" => {
                self.call(&["LATCH.COUNTDOWN", "latch", "participant"]);
                self.read_all();
            }
            "granted" | "timed-out" => self.read_all(),
            "closed" => {
                let session = self.session.clone();
                self.call(&["SESSION.CLOSE", &session]);
                self.wait_until_none_wait();
            }
            "left-away" => {
                // The session is away when the connection of its reader is closed.
                self.reader = Line::connect(url);
                self.call(&["LOCK.RELEASE", "crowd", "holder"]);
                self.wait_until_passed_over();
                let session = self.session.clone();
                self.call(&["SESSION.CLOSE", &session]);
                self.wait_until_none_wait();
            }
            other => panic!("no such phase: {other}"),
        }
    }

    fn look(&mut self) {
        self.others.look();
        if now().saturating_sub(self.printed) > SILENCE_NS {
            println!("alive");
            self.printed = now();
        }
    }

    /// Waits until the other clients have made their first round trips, which take longer; and until `end`,
    /// if leases or timeouts end the waits.
    fn settle(&mut self) {
        assert!(self.end == 0 || unix_ms() < self.end, "the machine is too slow");
        let until = now() + 10 * LOOK_NS;
        while now() < until || unix_ms() < self.end {
            self.look();
        }
    }

    fn take(&mut self, from: fn(&mut Self) -> &mut Line) -> Reply {
        let begun = now();
        loop {
            self.look();
            if let Some(reply) = from(self).look() {
                return reply;
            }
            assert!(now() - begun < PATIENCE_NS, "no reply");
        }
    }

    fn call(&mut self, command: &[&str]) -> Reply {
        self.line.send(&request(command));
        self.take(|crowd| &mut crowd.line)
    }

    /// Sends a command for each wait, and receives the replies.
    fn all(&mut self, command: impl Fn(usize) -> Vec<u8>) {
        for first in (0..self.waits).step_by(AT_ONCE) {
            let last = (first + AT_ONCE).min(self.waits);
            let commands: Vec<u8> = (first..last).flat_map(&command).collect();
            self.line.send(&commands);
            for _ in first..last {
                self.take(|crowd| &mut crowd.line);
            }
        }
        // Read the session once, since a session that is not read ends.
        self.reader.send(&request(&["SESSION.NEXT", &self.session, "0", "0", "COUNT", "1"]));
        self.take(|crowd| &mut crowd.reader);
    }

    /// Acknowledges the outcomes up to `ack`, and reads the next ones. Returns how many it read, and the
    /// number of the last one.
    fn read(&mut self, ack: &str) -> (usize, i64) {
        let next = ["SESSION.NEXT", &self.session, ack, "1000", "COUNT", COUNT];
        self.reader.send(&request(&next));
        let reply = self.take(|crowd| &mut crowd.reader);
        let Reply::Array(reply) = reply else { panic!("{reply:?}") };
        let Some(Reply::Array(outcomes)) = reply.into_iter().nth(1) else { panic!("no outcomes") };
        let number = |outcome: &Reply| {
            let Reply::Array(parts) = outcome else { panic!("{outcome:?}") };
            let Some(Reply::Integer(number)) = parts.first() else { panic!("{parts:?}") };
            *number
        };
        (outcomes.len(), outcomes.last().map_or(0, number))
    }

    /// Reads until each wait has its outcome.
    fn read_all(&mut self) {
        let (mut count, mut ack) = (0, 0);
        while count < self.waits {
            let (read, last) = self.read(&ack.to_string());
            count += read;
            ack = last.max(ack);
        }
    }

    /// Waits until the server has removed all waits of the crowd.
    fn wait_until_none_wait(&mut self) {
        while self.info("kvlock_waiters") > OTHERS {
            self.pause();
        }
    }

    /// Waits until another client can acquire the lock of the crowd.
    fn wait_until_passed_over(&mut self) {
        while matches!(self.call(&["LOCK.ACQUIRE", "crowd", "another", LEASE_MS]), Reply::Nil) {
            self.pause();
        }
    }

    fn pause(&mut self) {
        let until = now() + LOOK_NS;
        while now() < until {
            self.look();
        }
    }

    fn info(&mut self, field: &str) -> u64 {
        let reply = self.call(&["INFO", "kvlock"]);
        let Reply::Text(text) = reply else { panic!("{reply:?}") };
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|number| number.trim().parse().ok())
            .unwrap_or_else(|| panic!("no {field}: {text}"))
    }
}

fn owner(number: usize) -> String {
    crate::native::owner(0, number as u64)
}

fn wait(key: &str, number: usize, timeout: &str, session: &str) -> Vec<u8> {
    request(&["LOCK.WAIT", key, &owner(number), LEASE_MS, timeout, "SESSION", session])
}

fn unix_ms() -> usize {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis().try_into().unwrap()
}
