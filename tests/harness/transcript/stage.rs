//! Runs the steps of a transcript on its servers and clients.

use super::parse::Step;
use super::pattern::{NO_MORE, Names, fill_in, fits, in_one_line};
use crate::clock::Clock;
use crate::resp::{Connection, ReceiveError, Value, encode, split};
use crate::server::Server;
use crate::trail::trail;
use crate::{cluster, cmd, observe, wait};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest wait for a reply, and for most other effects.
const DEADLINE: Duration = Duration::from_secs(5);

/// Longest wait for a reply between two checks whether a client is blocked.
const TURN: Duration = Duration::from_millis(5);

/// The lock with which [`Stage::settle`] finds out whether everything due is done. Its slot is at the first
/// node of a cluster.
const CANARY: &str = "finch";

/// A reply, or a text in place of one. The text is empty if the step succeeded and has no reply.
pub(super) type StepResult = Result<Value, String>;

/// The servers and clients of a transcript that is being played.
pub(super) struct Stage<'a> {
    /// The servers, each with the prefix of its clients' names. Clients without such a prefix use the first.
    servers: &'a [(&'a str, &'a Server)],
    clock: Option<&'a Clock>,
    protocol: u8,
    /// One connection to each server, with which the stage itself inspects and drives it.
    controls: Vec<Connection>,
    clients: BTreeMap<String, Client>,
    pub(super) names: Names,
    /// The loops that have begun: the line of each loop, and the names that were known before the loop.
    loops: Vec<(usize, Names)>,
    counters: BTreeMap<String, i64>,
    /// Number of lines of the [`trail`] that were compared.
    written: usize,
}

struct Client {
    /// The number of its server.
    home: usize,
    connection: Connection,
    id: i64,
    db: String,
    /// The lock that the client waits for, and the owner.
    waits: Option<[String; 2]>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        servers: &'a [(&'a str, &'a Server)],
        clock: Option<&'a Clock>,
        protocol: u8,
    ) -> Self {
        let port = |(name, server): &(&str, &Server)| {
            let name = if name.is_empty() { "port" } else { name };
            (name.to_owned(), server.port().to_string())
        };
        let mut stage = Self {
            servers,
            clock,
            protocol,
            controls: servers.iter().map(|(_, server)| server.connect()).collect(),
            clients: BTreeMap::new(),
            names: servers.iter().map(port).collect(),
            loops: Vec::new(),
            counters: BTreeMap::new(),
            written: 0,
        };
        // If the server closes clients to save memory, it should close those of the transcript.
        stage.controls[0].run("CLIENT NO-EVICT ON");
        stage.counters = stage.counted();
        stage
    }

    /// Executes the step, and returns its result.
    pub(super) fn execute(&mut self, step: &Step) -> StepResult {
        let (name, text) = (&*step.client, &*step.text);
        let (word, about) = step.word.split_once(' ').unwrap_or((&step.word, ""));
        self.enter(name);
        match word {
            "" if step.mark == "<" => return self.arrival(name, &step.expected),
            "" => {
                self.send(name, text)?;
                return self.reply(name, &step.expected);
            }
            "until" => return self.until(name, text, &step.expected),
            "field" => {
                self.send(name, text)?;
                return match self.client(name).connection.receive(DEADLINE) {
                    Ok(reply @ (Value::Array(_) | Value::Map(_))) => Ok(reply.field(about).clone()),
                    other => seen(other),
                };
            }
            "counted" => return self.until_counted(about, &step.expected),
            "written" => return Err(self.look_at_the_file(text)),
            "logged" => {
                let logged = || self.servers[0].1.log().contains(text);
                wait::until_is(&step.shown, DEADLINE, true, logged);
            }
            "sent" => self.send(name, text)?,
            "close" => self.leave(name, Connection::close),
            "reset" => self.leave(name, Connection::reset),
            "turn" => self.begin(step.line),
            "restart" => self.restart(),
            "stop" => self.servers[self.home(text)].1.stand_still(),
            "continue" => self.servers[self.home(text)].1.signal(Signal::SIGCONT),
            "settle" => self.settle()?,
            "agree" => {
                let epochs = || self.servers.iter().map(|(_, node)| cluster::epochs(node));
                wait::until_is("one view of the epochs", cluster::AGREEMENT, true, || {
                    epochs().skip(1).all(|other| Some(other) == epochs().next())
                });
            }
            "pass" => {
                let ms = text.parse().expect("milliseconds");
                observe::let_pass(&mut self.controls[0], Duration::from_millis(ms));
            }
            "clock" => {
                let clock = self.clock.expect("a transcript that sets it has one");
                clock.set(text.parse().expect("milliseconds"));
            }
            _ => {}
        }
        Err(String::new())
    }

    fn client(&mut self, name: &str) -> &mut Client {
        self.clients.get_mut(name).expect("it has entered")
    }

    /// Waits until a counter has increased by the expected number. Returns its last increase.
    fn until_counted(&mut self, field: &str, expected: &[String]) -> StepResult {
        let before = self.counters.get(field).copied().unwrap_or(0);
        let deadline = Instant::now() + DEADLINE;
        loop {
            let now = self.counted().get(field).copied().unwrap_or(0);
            let seen = Ok(Value::Integer(now - before));
            if fits(expected, &seen, &mut self.names.clone()) || Instant::now() > deadline {
                return seen;
            }
        }
    }

    /// Starts a repetition of the loop at the given line. Forgets the names that the previous repetition bound.
    fn begin(&mut self, line: usize) {
        match self.loops.iter().position(|(at, _)| *at == line) {
            Some(at) => self.loops.truncate(at + 1),
            None => self.loops.push((line, self.names.clone())),
        }
        let before = self.loops.last().expect("this loop").1.clone();
        self.names.retain(|name, _| name.starts_with("id ") || before.contains_key(name));
        self.counters = self.counted();
    }

    /// The counters of the module.
    fn counted(&mut self) -> BTreeMap<String, i64> {
        let info = self.controls[0].call(cmd!["INFO", "kvlock"]).text();
        let fields = info.lines().filter_map(|line| line.strip_prefix("kvlock_")?.split_once(':'));
        let numbers = fields.filter_map(|(name, it)| Some((name.to_owned(), it.parse().ok()?)));
        numbers.collect()
    }

    /// Kills the server with SIGKILL, and starts it with its data on disk.
    fn restart(&mut self) {
        let server = self.servers[0].1;
        server.restart();
        self.clients.clear();
        self.controls[0] = server.connect();
        self.counters = self.counted();
    }

    /// Compares the additions to the append-only files since the last call with the expected ones. Returns an
    /// empty text if they are equal.
    fn look_at_the_file(&mut self, expected: &str) -> String {
        let all = trail(self.servers[0].1);
        let new = all[self.written..].join(" | ");
        let new = if new.is_empty() { "nothing" } else { &new };
        self.written = all.len();
        if expected.split(" || ").any(|one| one == new) {
            String::new()
        } else {
            format!("(written: {new})")
        }
    }

    /// The number of the server of a client with the given name.
    fn home(&self, name: &str) -> usize {
        self.servers.iter().rposition(|(of, _)| name.starts_with(of)).expect("the first is for all")
    }

    fn enter(&mut self, name: &str) {
        if name.is_empty() || self.clients.contains_key(name) {
            return;
        }
        let home = self.home(name);
        let mut connection = self.servers[home].1.connect_resp(self.protocol);
        let id = connection.client_id();
        self.names.insert(format!("id {name}"), id.to_string());
        let db = "0".to_owned();
        let client = Client { home, connection, id, db, waits: None };
        self.clients.insert(name.to_owned(), client);
    }

    fn leave(&mut self, name: &str, how: fn(Connection)) {
        let client = self.clients.remove(name).expect("it has entered");
        how(client.connection);
        observe::wait_until_gone(&mut self.controls[client.home], client.id);
    }

    /// The words of a command, with the known names replaced. Also records the client's database, and the
    /// lock that a `LOCK.WAIT` waits for.
    fn words(&mut self, name: &str, command: &str) -> Result<Vec<Vec<u8>>, String> {
        let words = split(&fill_in(command, &self.names)).map_err(|why| format!("({why})"))?;
        let client = self.client(name);
        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        match &words[..] {
            [wait, key, owner, _, _] if wait.eq_ignore_ascii_case(b"LOCK.WAIT") => {
                client.waits = Some([text(key), text(owner)]);
            }
            [select, db] if select.eq_ignore_ascii_case(b"SELECT") => client.db = text(db),
            _ => client.waits = None,
        }
        Ok(words)
    }

    fn send(&mut self, name: &str, command: &str) -> Result<(), String> {
        let words = self.words(name, command)?;
        self.client(name).connection.send(words);
        Ok(())
    }

    /// Sends commands of one client in one write.
    pub(super) fn send_together(&mut self, steps: &[&Step]) {
        let name = &*steps[0].client;
        self.enter(name);
        let mut bytes = Vec::new();
        for step in steps {
            let words = self.words(name, &step.text).unwrap_or_else(|why| panic!("{why}"));
            bytes.extend(encode(&words));
        }
        self.client(name).connection.send_raw(&bytes);
    }

    /// The reply to the client's command, or a text that says why there is none.
    pub(super) fn reply(&mut self, name: &str, expected: &[String]) -> StepResult {
        let client = self.clients.get_mut(name).expect("it has entered");
        // If a reply is expected, the client may be blocked for a moment before it.
        let wants_reply = !expected.is_empty() && expected != ["(blocked)"];
        let deadline = Instant::now() + DEADLINE;
        loop {
            if !wants_reply
                && observe::is_blocked(&mut self.controls[client.home], client.id)
                && !client.connection.has_unread()
            {
                return Err("(blocked)".to_owned());
            }
            match client.connection.receive(if wants_reply { DEADLINE } else { TURN }) {
                Err(ReceiveError::Timeout) if !wants_reply && Instant::now() < deadline => {}
                other => return seen(other),
            }
        }
    }

    fn until(&mut self, name: &str, command: &str, expected: &[String]) -> StepResult {
        let deadline = Instant::now() + DEADLINE;
        loop {
            self.send(name, command)?;
            let seen = self.reply(name, expected);
            if fits(expected, &seen, &mut self.names.clone()) || Instant::now() > deadline {
                return seen;
            }
        }
    }

    fn arrival(&mut self, name: &str, expected: &[String]) -> StepResult {
        let expected = in_one_line(expected);
        match &*expected {
            "(waits)" | "(nothing)" => return self.nothing_came(name),
            "(sent away)" => return self.sent_away(name),
            "(closed)" => {
                let mut client = self.clients.remove(name).expect("it has entered");
                return match client.connection.receive(DEADLINE) {
                    Err(ReceiveError::Closed) => Err(expected),
                    other => seen(other),
                };
            }
            _ => {}
        }
        let reply = seen(self.client(name).connection.receive(DEADLINE))?;
        if self.names.contains_key("replica") && !expected.ends_with(NO_MORE) {
            self.check_granted_key(name, &reply)?;
        }
        Ok(reply)
    }

    /// Checks that the key of a granted lock contains the grant of the reply.
    fn check_granted_key(&mut self, name: &str, reply: &Value) -> Result<(), String> {
        let client = self.client(name);
        let Some([key, owner]) = client.waits.take() else { return Ok(()) };
        let Value::Array(grant) = reply else { return Ok(()) };
        let [Value::Integer(token), Value::Integer(1)] = grant[..] else { return Ok(()) };
        let db = client.db.clone();
        self.controls[0].call(cmd!["SELECT", db]);
        let held = self.controls[0].call(cmd!["HGETALL", key]);
        let left = self.controls[0].call(cmd!["PTTL", key]).integer();
        let mut held: Vec<_> = held.elements().iter().map(Value::text).collect();
        held.sort();
        let mut granted = [owner, "1".to_owned(), "fencing-token".to_owned(), format!("t{token}")];
        granted.sort();
        let right = held == granted && left > 0;
        if right {
            Ok(())
        } else {
            Err(format!("(granted {granted:?}, but {held:?} for {left} ms)"))
        }
    }

    /// Waits until everything due is done. Returns what the client has received, or whether it is blocked if it
    /// has received nothing.
    fn nothing_came(&mut self, name: &str) -> StepResult {
        self.settle()?;
        let client = self.clients.get_mut(name).expect("it has entered");
        if client.connection.has_unread() {
            return seen(client.connection.receive(DEADLINE));
        }
        let waits = observe::is_blocked(&mut self.controls[client.home], client.id);
        Err(if waits { "(waits)" } else { "(nothing)" }.to_owned())
    }

    /// Checks that a waiter whose server is no longer primary gets the error `UNBLOCKED`, or that the server
    /// closes its connection.
    fn sent_away(&mut self, name: &str) -> StepResult {
        let mut client = self.clients.remove(name).expect("it has entered");
        match client.connection.receive_or_closed() {
            Some(told) if !told.is_error() || told.code() != "UNBLOCKED" => Ok(told),
            _ => Err("(sent away)".to_owned()),
        }
    }

    /// Returns when everything due on the server has been done. To find out, deletes a lock that has a
    /// waiter: the module grants it after all work that was due before.
    fn settle(&mut self) -> Result<(), String> {
        let mut canary = self.servers[0].1.connect();
        let id = canary.client_id();
        self.controls[0].run("SELECT 0");
        self.controls[0].call(cmd!["LOCK.ACQUIRE", CANARY, "nobody", 600_000]);
        canary.send(cmd!["LOCK.WAIT", CANARY, CANARY, 600_000, 0]);
        observe::wait_until_blocked(&mut self.controls[0], id);
        self.controls[0].call(cmd!["DEL", CANARY]);
        let granted = canary.receive(DEADLINE);
        canary.call(cmd!["LOCK.RELEASE", CANARY, CANARY]);
        *self.counters.entry("granted".to_owned()).or_default() += 2;
        let right = matches!(granted, Ok(Value::Array(_)));
        if right { Ok(()) } else { Err(format!("(the server is not done: {granted:?})")) }
    }

    /// Describes clients with unread replies, and blocked clients, after the last line; or a dead server.
    pub(super) fn left_over(&mut self) -> Vec<String> {
        if !self.servers[0].1.is_alive() {
            return vec!["(the server is dead or stuck)".to_owned()];
        }
        // The server sends all earlier replies to other clients before this one.
        self.controls[0].run("PING");
        let mut left = Vec::new();
        for (name, client) in &mut self.clients {
            if client.connection.has_unread() {
                let unread = client.connection.receive(DEADLINE);
                left.push(format!("({name} has unread) {unread:?}"));
            } else if observe::is_blocked(&mut self.controls[client.home], client.id) {
                left.push(format!("({name} is still blocked)"));
            }
        }
        left
    }
}

fn seen(received: Result<Value, ReceiveError>) -> StepResult {
    received.map_err(|why| format!("({why})"))
}
