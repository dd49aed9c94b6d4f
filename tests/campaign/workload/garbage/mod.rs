//! Sends random commands to a live server: the module's commands, most other commands that could touch their
//! keys, options, scripts, transactions, damaged payloads, and bytes that are no commands. Connections break
//! off at random moments. The server must not crash, and after all clients have disconnected, no state may be
//! left.

mod command_source;
mod grammar;
mod words;

pub(crate) use command_source::{CROWD, CommandSource};

use self::command_source::Words;
use super::{ClientRoute, Tasks, Work};
use crate::round::Round;
use harness::random::Random;
use harness::resp::ReceiveError;
use harness::{Connection, Value, cmd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

pub(crate) const GARBAGE: Work = Work {
    name: "commands of every sort, and bytes that are none",
    tasks: Tasks::Thread(|round, route, number, random| {
        let ClientRoute::Garbage(source, port) = route else { panic!("it speaks to one server") };
        work(round, &source, port, number, &random);
    }),
};

/// While more than this number of commands have no reply, no further commands are sent.
const AHEAD: u64 = 64;

/// Longest wait for a reply before further commands are sent.
const MOMENT: Duration = Duration::from_millis(5);

/// Uses one connection after another until the round is over.
fn work(round: &Arc<Round>, source: &CommandSource, port: u16, number: usize, random: &Random) {
    for connections in 0.. {
        if round.is_over() {
            return;
        }
        let Ok(connection) = Connection::open(port) else {
            // If the server has ended, the end of the round shows it.
            sleep(MOMENT);
            continue;
        };
        round.log.add("connections", 1);
        source.clients.fetch_add(1, Ordering::SeqCst);
        let random = random.part(connections);
        let mut client = Client {
            round,
            source,
            connection,
            random,
            is_resp2: true,
            is_garbled: false,
            sent: 0,
            received: 0,
        };
        client.talk();
        round.turns[number].fetch_add(1, Ordering::SeqCst);
    }
}

struct Client<'a> {
    round: &'a Round,
    source: &'a CommandSource,
    connection: Connection,
    random: Random,
    is_resp2: bool,
    /// `true` if invalid RESP was sent, so that malformed replies are no longer reported.
    is_garbled: bool,
    sent: u64,
    received: u64,
}

impl Client<'_> {
    /// Sends commands until the server closes the connection, the round is over, or a random moment.
    fn talk(&mut self) {
        if self.random.percent(50) {
            self.connection.expect_protocol(3);
            self.is_resp2 = false;
            self.send(cmd!["HELLO", 3]);
        }
        if self.random.percent(30) {
            let db = self.random.below(3);
            self.send(cmd!["SELECT", db]);
        }
        if self.random.percent(30) {
            self.source.put_all_back().into_iter().for_each(|words| self.send(words));
        }
        while !self.round.is_over() {
            if self.sent <= self.received + AHEAD {
                self.burst();
            }
            if !self.listen() || self.random.percent(2) {
                return;
            }
        }
    }

    /// Sends some commands without waiting for replies.
    fn burst(&mut self) {
        let long = self.random.percent(10);
        for _ in 0..=self.random.below(if long { 60 } else { 8 }) {
            match self.random.below(1_000) {
                0..=569 => {
                    let words = self.source.ours(&mut self.random);
                    self.send(words);
                }
                570..=799 => {
                    let words = self.source.other(&mut self.random);
                    self.send(words);
                }
                800..=997 => {
                    let all = self.source.draw(&mut self.random);
                    all.into_iter().for_each(|words| self.send(words));
                }
                _ => return self.garble(),
            }
        }
        // `RESET` returns the connection to RESP2, but `CLIENT REPLY SKIP` may suppress its reply. So `RESET` is
        // sent only where RESP2 is in use already.
        if self.is_resp2 && self.random.percent(1) {
            self.send(cmd!["RESET"]);
        }
    }

    fn send(&mut self, mut words: Words) {
        let is_flush = words[0].to_ascii_uppercase().starts_with(b"FLUSH");
        if is_flush && !self.source.pauses.load(Ordering::SeqCst) {
            words.truncate(1);
            words.push(b"ASYNC".to_vec());
        }
        self.sent += 1;
        self.round.log.add("commands sent", 1);
        let shown = words.iter().map(|word| word[..word.len().min(200)].escape_ascii().to_string());
        self.round.log.sent(shown.collect::<Vec<_>>().join(" "));
        self.connection.send(words);
    }

    /// Sends a malformed, incomplete or inline command, and random bytes.
    fn garble(&mut self) {
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
        self.is_garbled = true;
        let noise = 0..self.random.below(64);
        let noise: Vec<u8> = noise.map(|_| self.random.below(256) as u8).collect();
        let bytes = [*self.random.pick(&WRONG), &noise].concat();
        self.round.log.sent(bytes.escape_ascii().to_string());
        self.connection.send_raw(&bytes);
    }

    /// Reads replies. Returns false if the connection is closed, or received a malformed reply.
    fn listen(&mut self) -> bool {
        while self.received < self.sent {
            match self.connection.receive(MOMENT) {
                Ok(reply) => self.heard(&reply),
                Err(ReceiveError::Timeout) => return true,
                Err(ReceiveError::Closed) => {
                    self.round.log.add("connections that the server cut", 1);
                    return false;
                }
                Err(ReceiveError::Malformed(_)) if self.is_garbled => return false,
                Err(ReceiveError::Malformed(why)) => {
                    self.round.log.surprise(format!("what arrives is no RESP: {why}"));
                    return false;
                }
            }
        }
        true
    }

    fn heard(&mut self, reply: &Value) {
        self.received += 1;
        self.round.log.add("replies", 1);
        match reply {
            // A reply to `RESET`, or to `LOCK.PROFILE RESET` whose first word was removed at random.
            Value::Status(word) if word == "RESET" => {
                self.connection.expect_protocol(2);
                self.is_resp2 = true;
            }
            Value::Array(opened) => {
                if let [Value::Bulk(name), Value::Integer(_)] = &opened[..]
                    && name.len() == 32
                {
                    words::note_session(name);
                }
            }
            Value::Error { code, .. } => self.round.log.add(&format!("errors: {code}"), 1),
            _ => {}
        }
    }
}
