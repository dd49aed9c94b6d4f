//! Throws commands at a live server: those of the module, every other one that could touch their
//! keys, options, scripts, transactions, damaged payloads, and bytes that are no commands; over
//! connections that break off in the middle. The server has to stay up, and when everybody has
//! left, nothing may be left behind. The seed decides what is sent, not how the connections meet.

mod grammar;
mod hand;
mod subject;
mod wire;
mod words;

use self::grammar::Grammar;
use self::hand::Hand;
use self::subject::Subject;
use self::wire::Wire;
use crate::Options;
use crate::report::Report;
use harness::docs::is_ours;
use harness::random::Random;
use std::cell::Cell;
use std::collections::VecDeque;

/// How many commands make a round, after which everything is put back and looked at.
const ROUND: u64 = 20_000;

/// How many connections there are at a time.
const CONNECTIONS: u64 = 24;

/// How many of the latest commands are shown when something is wrong.
const REMEMBERED: usize = 4_000;

/// Goes on until the server has executed as many as the options say.
pub(crate) fn play(suite: &str, options: &Options, report: &Report) {
    let mut subject = Subject::start();
    let grammar = Grammar::of(&mut subject.server.connect());
    let payloads = subject.payloads();
    if let Err(why) = subject.settle() {
        return report.violation(format!("Left: before anything was sent: {why}"));
    }
    let (base, wanted) = (subject.memory, options.commands.unwrap_or(1_000_000));
    let random = Random::new(options.seed.number);
    for number in 1.. {
        let executed: u64 = subject.called().iter().map(|(_, calls, _)| calls).sum();
        if executed >= wanted {
            break;
        }
        let (payloads, defaults) = (payloads.clone(), subject.options.clone());
        let pauses = number % 2 == 0;
        let hand = Hand { payloads, options: defaults, pauses, damaged: Cell::default() };
        let mut round = Round {
            grammar: &grammar,
            report,
            hand,
            port: subject.server.port(),
            random: random.part(number),
            clients: 1,
            sent: 0,
            latest: VecDeque::new(),
        };
        let went = round.run(ROUND.min(2 * (wanted - executed))).and_then(|()| subject.settle());
        report.add("commands sent", round.sent);
        report.add("values damaged", round.hand.damaged.get());
        if let Err(why) = went {
            report.violation(format!("Server: in round {number}: {why}"));
            round.latest.push_back(subject.server.log());
            return report.keep(suite, round.latest.make_contiguous());
        }
    }
    let (called, mut all, mut of_ours) = (subject.called(), 0, 0);
    for (name, calls, failed) in &called {
        all += calls;
        if is_ours(name.as_bytes()) || name == "restore" {
            report.add(&format!("{name}, of which {failed} failed"), *calls);
        }
        of_ours += if is_ours(name.as_bytes()) { *calls } else { 0 };
    }
    report.figure(format!(
        "{all} commands executed, scripts included: {of_ours} of the module, {} different ones; \
         {base} bytes used before, {} after",
        called.len(),
        subject.memory
    ));
}

struct Round<'a> {
    grammar: &'a Grammar,
    report: &'a Report,
    hand: Hand,
    port: u16,
    random: Random,
    /// About how many clients the server has had.
    clients: u64,
    sent: u64,
    latest: VecDeque<String>,
}

impl Round<'_> {
    fn run(&mut self, enough: u64) -> Result<(), String> {
        let mut wires = Vec::new();
        let mut probe = harness::Connection::open(self.port).map_err(|e| e.to_string())?;
        self.clients = probe.client_id().cast_unsigned();
        probe.close();
        for _ in 0..CONNECTIONS {
            wires.push(self.open()?);
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
                let opened = self.open()?;
                let gone = std::mem::replace(&mut wires[at], opened);
                self.leave(&gone);
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
        wires.iter().for_each(|wire| self.leave(wire));
        Ok(())
    }

    fn leave(&self, wire: &Wire) {
        self.report.add("replies", wire.replies);
        for (code, count) in &wire.errors {
            self.report.add(&format!("errors: {code}"), *count);
        }
        self.report.add("connections that the server cut", u64::from(wire.closed));
    }

    fn open(&mut self) -> Result<Wire, String> {
        self.report.add("connections", 1);
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
        // After `CLIENT REPLY SKIP` nobody would hear that it was done: so only where it changes nothing.
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
}
