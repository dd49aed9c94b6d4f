//! Hand-offs to blocked clients and to a session, in turn on one server, so that other work of the machine
//! affects both alike. Each kind has one lock, and a new wait begins after each hand-off. Both locks have the
//! same number of waiters, except that at most [`BLOCKED`] clients are blocked.

use super::line::{Line, Probe};
use crate::native::owner;
use crate::wire::{Reply, request};
use driver::{Args, now};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Write as _;

/// A lease that does not end during the measurement.
const LEASE_MS: &str = "3600000";
/// Largest number of blocked clients.
const BLOCKED: usize = 1_000;
/// Number of commands sent at once: they and their replies fit into the socket buffers.
const AT_ONCE: usize = 100;

struct Pairs {
    probe: Probe,
    /// Releases both locks.
    releaser: Line,
    owners: usize,
    /// Owners and connections of the blocked clients, the next one first.
    blocked: VecDeque<(String, Line)>,
    /// Owner and connection of the holder of their lock.
    blocked_holder: (String, Option<Line>),
    session: String,
    waiter: Line,
    reader: Line,
    session_holder: String,
    ack: i64,
}

pub(crate) fn run(args: &Args) {
    let mut pairs = Pairs::line_up(args.text("url"), args.number("tasks"));
    println!("ready {}", env!("CARGO_PKG_VERSION"));
    let go = std::io::stdin().lines().next().unwrap().unwrap();
    let end: u64 = go.rsplit(' ').next().unwrap().parse().unwrap();
    let mut text = String::new();
    while now() < end {
        let blocked = pairs.hand_to_blocked();
        writeln!(text, "{blocked} {}", pairs.hand_to_session()).unwrap();
    }
    text.push_str("done\n");
    std::io::stdout().write_all(text.as_bytes()).unwrap();
}

impl Pairs {
    fn line_up(url: &str, waiters: usize) -> Self {
        let mut probe = Probe::connect(url);
        let [mut releaser, mut waiter] = [Line::connect(url), Line::connect(url)];
        for key in ["blocked", "session"] {
            let reply = releaser.call(&request(&["LOCK.ACQUIRE", key, "0", LEASE_MS]), &mut probe);
            assert!(matches!(reply, Reply::Array(_)), "{reply:?}");
        }
        let opened = waiter.call(&request(&["SESSION.OPEN", "60000"]), &mut probe);
        let Reply::Array(opened) = opened else { panic!("{opened:?}") };
        let Some(Reply::Text(id)) = opened.into_iter().next() else { panic!("no id") };
        let mut pairs = Self {
            probe,
            releaser,
            owners: 0,
            blocked: VecDeque::new(),
            blocked_holder: ("0".to_owned(), Some(Line::connect(url))),
            session: String::from_utf8(id).unwrap(),
            waiter,
            reader: Line::connect(url),
            session_holder: "0".to_owned(),
            ack: 0,
        };
        for _ in 0..waiters.min(BLOCKED) {
            pairs.block(Line::connect(url));
        }
        let mut left = waiters;
        while left > 0 {
            let some = left.min(AT_ONCE);
            pairs.queue(some);
            left -= some;
        }
        pairs.read();
        pairs
    }

    fn owner(&mut self) -> String {
        self.owners += 1;
        owner(0, self.owners.try_into().unwrap())
    }

    fn block(&mut self, mut line: Line) {
        let owner = self.owner();
        line.send(&request(&["LOCK.WAIT", "blocked", &owner, LEASE_MS, "0"]));
        self.blocked.push_back((owner, line));
    }

    fn queue(&mut self, some: usize) {
        let wait = |pairs: &mut Self| {
            let owner = pairs.owner();
            request(&["LOCK.WAIT", "session", &owner, LEASE_MS, "0", "SESSION", &pairs.session])
        };
        let commands: Vec<u8> = (0..some).flat_map(|_| wait(self)).collect();
        self.waiter.send(&commands);
        for _ in 0..some {
            let reply = self.waiter.take(&mut self.probe);
            assert!(
                matches!(&reply, Reply::Array(parts) if matches!(parts[..], [Reply::Text(_), _]))
            );
        }
    }

    /// Sends the next `SESSION.NEXT`, so that the session has a reader at each hand-off.
    fn read(&mut self) {
        let ack = self.ack.to_string();
        self.reader.send(&request(&["SESSION.NEXT", &self.session, &ack, "60000"]));
    }

    fn release(&mut self, key: &str, owner: &str) -> u64 {
        // Wait until the server has read earlier commands, because they are not measured.
        self.probe.settle();
        let begun = now();
        self.releaser.send(&request(&["LOCK.RELEASE", key, owner]));
        begun
    }

    fn hand_to_blocked(&mut self) -> u64 {
        let (owner, before) = std::mem::take(&mut self.blocked_holder);
        let begun = self.release("blocked", &owner);
        let (owner, mut line) = self.blocked.pop_front().unwrap();
        let granted = line.take(&mut self.probe);
        let took = now() - begun;
        assert!(matches!(granted, Reply::Array(_)), "{granted:?}");
        self.releaser.take(&mut self.probe);
        self.blocked_holder = (owner, None);
        if let Some(before) = before {
            self.block(before);
        }
        self.blocked_holder.1 = Some(line);
        took
    }

    fn hand_to_session(&mut self) -> u64 {
        let owner = std::mem::take(&mut self.session_holder);
        let begun = self.release("session", &owner);
        let reply = self.reader.take(&mut self.probe);
        let took = now() - begun;
        let Reply::Array(reply) = reply else { panic!("{reply:?}") };
        let Some(Reply::Array(outcomes)) = reply.into_iter().nth(1) else { panic!("no outcomes") };
        let Some(Reply::Array(parts)) = outcomes.into_iter().next() else { panic!("no outcome") };
        let mut parts = parts.into_iter();
        let (Some(Reply::Integer(number)), Some(Reply::Text(owner))) = (parts.next(), parts.nth(2))
        else {
            panic!("no outcome")
        };
        (self.ack, self.session_holder) = (number, String::from_utf8(owner).unwrap());
        self.releaser.take(&mut self.probe);
        self.read();
        self.queue(1);
        took
    }
}
