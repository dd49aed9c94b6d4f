//! Clients other than the crowd. They measure how long a `PING` and a `SET` take, and how late a wait times
//! out. They also measure how long a hand-off of a lock between two clients takes.

use super::line::Line;
use crate::wire::{Reply, request};
use driver::now;
use std::collections::VecDeque;
use std::fmt::Write as _;

/// Time from the reply to a client's request until its next request.
const PAUSE_NS: u64 = 1_000_000;
/// Timeout of the waits. Only the delay after it counts.
const TIMEOUT_MS: u64 = 20;
const TIMEOUT_NS: u64 = TIMEOUT_MS * 1_000_000;
/// A lease that does not end during the measurement.
const LEASE_MS: &str = "3600000";

pub(super) struct Others {
    asking: Vec<Asking>,
    lock: HandedOver,
    records: bool,
    text: String,
}

/// A client that sends one request after another.
struct Asking {
    name: &'static str,
    line: Line,
    command: Vec<u8>,
    /// Expected time of the request, which is not recorded: the timeout of a wait.
    due_ns: u64,
    sent: Option<u64>,
    next: u64,
}

/// A lock that two clients hold in turn. The other client is blocked.
struct HandedOver {
    /// Releases the lock in the name of its holder.
    releaser: Line,
    /// The holder first, then the waiter.
    clients: VecDeque<(String, Line)>,
    sent: Option<u64>,
    is_released: bool,
    next: u64,
}

impl Others {
    pub(super) fn connect(url: &str) -> Self {
        let mut holder = Line::connect(url);
        for (key, owner) in [("others:wait", "holder"), ("others:hand", "a")] {
            call(&mut holder, &["LOCK.ACQUIRE", key, owner, LEASE_MS]);
        }
        let timeout = TIMEOUT_MS.to_string();
        let wait = ["LOCK.WAIT", "others:wait", "waiter", "1000", &timeout];
        let asking = |name, command: &[&str], due_ns| Asking {
            name,
            line: Line::connect(url),
            command: request(command),
            due_ns,
            sent: None,
            next: 0,
        };
        let [holder_of_lock, mut waiter] =
            ["a", "b"].map(|owner| (owner.to_owned(), Line::connect(url)));
        wait_for_lock(&mut waiter);
        Self {
            asking: vec![
                asking("ping", &["PING"], 0),
                asking("set", &["SET", "others:key", "value"], 0),
                asking("late", &wait, TIMEOUT_NS),
            ],
            lock: HandedOver {
                releaser: Line::connect(url),
                clients: [holder_of_lock, waiter].into(),
                sent: None,
                is_released: false,
                next: now() + PAUSE_NS,
            },
            records: false,
            text: String::new(),
        }
    }

    /// Receives replies, and sends due requests.
    pub(super) fn look(&mut self) {
        for asking in &mut self.asking {
            if let Some(took) = asking.look() {
                note(&mut self.text, self.records, asking.name, took);
            }
        }
        if let Some(took) = self.lock.look() {
            note(&mut self.text, self.records, "hand_off", took);
        }
    }

    /// Starts to record times of requests.
    pub(super) fn begin(&mut self) {
        self.records = true;
    }

    /// Waits for requests in flight, and returns all records, one line each.
    pub(super) fn end(mut self) -> String {
        for asking in &mut self.asking {
            asking.next = u64::MAX;
        }
        self.lock.next = u64::MAX;
        while self.asking.iter().any(|asking| asking.sent.is_some()) || self.lock.sent.is_some() {
            self.look();
        }
        self.text
    }
}

fn note(text: &mut String, records: bool, name: &str, took: u64) {
    if records {
        writeln!(text, "{name} {took}").unwrap();
    }
}

impl Asking {
    /// Sends the next request if it is due. If a reply has arrived, returns how much longer than expected the
    /// request took, in nanoseconds.
    fn look(&mut self) -> Option<u64> {
        let Some(sent) = self.sent else {
            if now() >= self.next {
                self.line.send(&self.command);
                self.sent = Some(now());
            }
            return None;
        };
        self.line.look()?;
        let took = (now() - sent).saturating_sub(self.due_ns);
        (self.sent, self.next) = (None, self.next.max(now() + PAUSE_NS));
        Some(took)
    }
}

impl HandedOver {
    /// Releases the lock if that is due. If a grant has arrived, returns the time since the release.
    fn look(&mut self) -> Option<u64> {
        let Some(sent) = self.sent else {
            if now() >= self.next {
                let (owner, _) = self.clients.front().unwrap();
                self.releaser.send(&request(&["LOCK.RELEASE", "others:hand", owner]));
                (self.sent, self.is_released) = (Some(now()), false);
            }
            return None;
        };
        self.is_released |= self.releaser.look().is_some();
        let granted = self.clients.back_mut().unwrap().1.look()?;
        let took = now() - sent;
        assert!(matches!(granted, Reply::Array(_)), "{granted:?}");
        // The previous holder waits again.
        let mut before = self.clients.pop_front().unwrap();
        wait_for_lock(&mut before);
        self.clients.push_back(before);
        // The reply to the release arrives at about the same time as the grant.
        while !self.is_released {
            self.is_released = self.releaser.look().is_some();
        }
        (self.sent, self.next) = (None, self.next.max(now() + PAUSE_NS));
        Some(took)
    }
}

fn wait_for_lock((owner, line): &mut (String, Line)) {
    line.send(&request(&["LOCK.WAIT", "others:hand", owner, LEASE_MS, "0"]));
}

fn call(line: &mut Line, command: &[&str]) -> Reply {
    line.send(&request(command));
    loop {
        if let Some(reply) = line.look() {
            return reply;
        }
    }
}
