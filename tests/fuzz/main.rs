//! Throws commands at a live server: those of the module, every other one that could touch their
//! keys, options, scripts, transactions, damaged payloads, and bytes that are no commands; over
//! connections that break off in the middle. The server has to stay up, and when everybody has
//! left, nothing may be left behind.
//!
//! Goes on until the server has executed so many. Ends with 0 when nothing was wrong; at the first
//! thing that was, with 1 and what it was. The seed decides what is sent, not how the connections
//! meet.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_truncation,
    reason = "a test that is run by hand, too: a panic is how it fails, and its numbers are small"
)]

mod grammar;
mod hand;
mod subject;
mod wire;
mod words;

use crate::grammar::Grammar;
use crate::hand::Hand;
use crate::subject::Subject;
use crate::wire::Wire;
use clap::{Parser, value_parser};
use harness::random::{Random, Seed};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::process::ExitCode;
use std::time::Instant;

/// How many commands make a round, after which everything is put back and looked at.
const ROUND: u64 = 20_000;

/// How many of the latest commands are shown when something is wrong.
const REMEMBERED: usize = 4_000;

/// Throws commands of any sort at a live server, which has to stay up
#[derive(Parser)]
#[command(name = "fuzz", args_override_self = true)]
struct Options {
    /// Goes on until the server has executed so many
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    commands: u64,
    #[command(flatten)]
    seed: Seed,
    /// So many connections at a time
    #[arg(
        long,
        value_name = "C",
        default_value_t = 24,
        value_parser = value_parser!(u64).range(1..),
    )]
    connections: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let began = Instant::now();
    let mut subject = Subject::start();
    println!(
        "seed {}, {} connections, {} on port {}",
        options.seed.number,
        options.connections,
        subject.server.kind(),
        subject.server.port()
    );
    let grammar = Grammar::of(&mut subject.server.connect());
    let payloads = subject.payloads();
    if let Err(why) = subject.settle() {
        println!("before anything was sent: {why}");
        return ExitCode::FAILURE;
    }
    let base = subject.memory;
    let random = Random::new(options.seed.number);
    let (mut total, mut rounds) = (Total::default(), 0);
    while total.executed < options.commands {
        rounds += 1;
        let enough = ROUND.min(2 * (options.commands - total.executed));
        let (payloads, defaults) = (payloads.clone(), subject.options.clone());
        let hand =
            Hand { payloads, options: defaults, pauses: rounds % 2 == 0, damaged: Cell::default() };
        let mut round = Round {
            grammar: &grammar,
            hand,
            port: subject.server.port(),
            random: random.part(rounds),
            clients: 1,
            sent: 0,
            latest: VecDeque::new(),
        };
        let went = round.run(enough, options.connections, &mut total);
        if let Err(why) = went.and_then(|()| subject.settle()) {
            println!("WRONG in round {rounds} of seed {}: {why}", options.seed.number);
            round.keep(&subject);
            return ExitCode::FAILURE;
        }
        total.sent += round.sent;
        total.damaged += round.hand.damaged.get();
        total.executed = subject.called().iter().map(|(_, calls, _)| calls).sum();
        if rounds % 10 == 0 {
            let (executed, memory) = (total.executed, subject.memory);
            println!("{executed} commands in {:.0?}, {memory} bytes used", began.elapsed());
        }
    }
    total.print(&subject, began, base);
    println!("{}", options.seed.origin());
    ExitCode::SUCCESS
}

#[derive(Default)]
struct Total {
    sent: u64,
    /// Of which so many to restore a damaged value.
    damaged: u64,
    /// By the server's own count.
    executed: u64,
    replies: u64,
    errors: BTreeMap<String, u64>,
    connections: u64,
    cut: u64,
}

impl Total {
    fn leave(&mut self, wire: &Wire) {
        self.replies += wire.replies;
        for (code, count) in &wire.errors {
            *self.errors.entry(code.clone()).or_default() += count;
        }
        self.cut += u64::from(wire.closed);
    }

    fn print(&self, subject: &Subject, began: Instant, base: i64) {
        let mut called = subject.called();
        called.sort_by_key(|(_, calls, _)| std::cmp::Reverse(*calls));
        let ours = called.iter().filter(|(name, ..)| {
            ["lock.", "sem.", "latch."].iter().any(|family| name.starts_with(family))
        });
        for (name, calls, failed) in ours.clone() {
            println!("{calls:>9} {name}, of which {failed} failed");
        }
        let of_ours: u64 = ours.map(|(_, calls, _)| calls).sum();
        let kinds = self.errors.iter().filter(|(_, count)| **count >= self.sent / 1_000);
        let kinds: Vec<String> = kinds.map(|(code, count)| format!("{count} {code}")).collect();
        let Self { sent, damaged, executed, replies, errors, connections, cut } = self;
        println!(
            "{sent} commands sent in {:.1?} over {connections} connections, of which the server cut {cut}; \
             {replies} replies, of which {} errors: {}",
            began.elapsed(),
            errors.values().sum::<u64>(),
            kinds.join(", ")
        );
        let restored = called.iter().find(|(name, ..)| name == "restore");
        if let Some((_, calls, failed)) = restored {
            println!(
                "{damaged} values damaged; {calls} restore executed, of which {failed} failed"
            );
        }
        println!(
            "{executed} commands executed, scripts included: {of_ours} of the module, {} different ones",
            called.len()
        );
        println!("{base} bytes used before, {} after; 0 crashes", subject.memory);
    }
}

struct Round<'a> {
    grammar: &'a Grammar,
    hand: Hand,
    port: u16,
    random: Random,
    /// About how many clients the server has had.
    clients: u64,
    sent: u64,
    latest: VecDeque<String>,
}

impl Round<'_> {
    fn run(&mut self, enough: u64, connections: u64, total: &mut Total) -> Result<(), String> {
        let mut wires = Vec::new();
        let mut probe = harness::Connection::open(self.port).map_err(|e| e.to_string())?;
        self.clients = probe.client_id().cast_unsigned();
        probe.close();
        for _ in 0..connections {
            wires.push(self.open(total)?);
        }
        while self.sent < enough {
            let at = self.random.below(wires.len() as u64) as usize;
            if !wires[at].is_full() && !wires[at].closed {
                self.burst(&mut wires[at]);
            }
            for wire in &mut wires {
                wire.pump()?;
            }
            let full = wires.iter().filter(|wire| wire.is_full()).count();
            if full * 4 > wires.len() * 3 {
                wire::rest(&wires);
            }
            if wires[at].closed || self.random.percent(2) {
                // In the middle of whatever was going on.
                let opened = self.open(total)?;
                let gone = std::mem::replace(&mut wires[at], opened);
                total.leave(&gone);
                if self.random.percent(30) {
                    for words in self.hand.put_all_back() {
                        self.send(&mut wires[at], words);
                    }
                }
            }
        }
        // What can still be answered is read.
        for _ in 0..40 {
            wire::rest(&wires);
            wires.iter_mut().try_for_each(Wire::pump)?;
        }
        wires.iter().for_each(|wire| total.leave(wire));
        Ok(())
    }

    fn open(&mut self, total: &mut Total) -> Result<Wire, String> {
        total.connections += 1;
        self.clients += 1;
        let protocol = if self.random.percent(50) { 3 } else { 2 };
        let mut wire =
            Wire::open(self.port, protocol).map_err(|e| format!("no connection: {e}"))?;
        if self.random.percent(30) {
            wire.send(harness::cmd!["SELECT", self.random.below(3)]);
        }
        Ok(wire)
    }

    /// Some commands, in one go.
    fn burst(&mut self, wire: &mut Wire) {
        let long = self.random.percent(10);
        for _ in 0..=self.random.below(if long { 60 } else { 8 }) {
            match self.random.below(1_000) {
                0..=649 => {
                    let words = self.grammar.one_of_ours(&mut self.random);
                    if self.random.percent(12)
                        && let Some(key) = words.get(1)
                    {
                        let is_semaphore = words[0].starts_with(b"SEM");
                        self.send(wire, harness::cmd!["DEL", key]);
                        if is_semaphore {
                            self.send(wire, harness::cmd!["SEM.SET", key, 5]);
                        }
                    }
                    self.send(wire, words);
                }
                650..=879 => {
                    let words = self.grammar.other(&mut self.random);
                    self.send(wire, words);
                }
                880..=997 => {
                    for words in self.hand.draw(self.grammar, self.clients, &mut self.random) {
                        self.send(wire, words);
                    }
                }
                _ => return self.garble(wire),
            }
        }
        if wire.protocol() == 2 && self.random.percent(1) {
            self.send(wire, harness::cmd!["RESET"]);
        }
    }

    fn send(&mut self, wire: &mut Wire, mut words: Vec<Vec<u8>>) {
        self.sent += 1;
        let flush = words[0].to_ascii_uppercase().starts_with(b"FLUSH");
        if flush && !self.hand.pauses {
            words.truncate(1);
            words.push(b"ASYNC".to_vec());
        }
        wire.send(&words);
        let shown = words.iter().map(|word| {
            let shown = word.escape_ascii().to_string();
            shown.chars().take(200).collect::<String>()
        });
        self.remember(shown.collect::<Vec<_>>().join(" "));
    }

    fn remember(&mut self, line: String) {
        if self.latest.len() == REMEMBERED {
            self.latest.pop_front();
        }
        self.latest.push_back(line);
    }

    /// Sends what is no command, or only the beginning of one.
    fn garble(&mut self, wire: &mut Wire) {
        const WRONG: [&[u8]; 9] = [
            b"*3\r\n$12\r\nLOCK.ACQUIRE\r\n$1\r\nk\r\n",
            b"*2147483648\r\n",
            b"*-5\r\n",
            b"*2\r\n$-1\r\n",
            b"*2\r\n$9999999999\r\n",
            b"*1\r\n$x\r\n",
            b"LOCK.ACQUIRE k1 \"ann 20\r\n",
            b"*5\r\n$9\r\nLOCK.WAIT\r\n$2\r\nk1\r\n$3\r\nbob\r\n$2\r\n20\r\n:5\r\n",
            b"LOCK.WAIT k1 inline 20 5\r\n",
        ];
        self.sent += 1;
        wire.garbled = true;
        let wrong = self.random.pick(&WRONG);
        self.remember(wrong.escape_ascii().to_string());
        wire.send_raw(wrong);
        let noise: Vec<u8> =
            (0..self.random.below(64)).map(|_| self.random.below(256) as u8).collect();
        wire.send_raw(&noise);
    }

    /// Leaves what was sent last, and what the server logged, where somebody can read it.
    fn keep(&self, subject: &Subject) {
        let path = std::env::temp_dir().join(format!("kvlock-fuzz-{}.txt", std::process::id()));
        let mut lines: Vec<String> = self.latest.iter().cloned().collect();
        lines.push(subject.server.log());
        match std::fs::write(&path, lines.join("\n")) {
            Ok(()) => println!("the latest commands and the log are in {}", path.display()),
            Err(why) => println!("the latest commands are lost: {why}"),
        }
    }
}
