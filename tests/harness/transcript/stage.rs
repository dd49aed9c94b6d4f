//! The server, the clients of a transcript, and what they do and see there.

use super::parse::{Action, Step};
use super::pattern::{NO_MORE, Names, fill_in, fits};
use crate::clock::Clock;
use crate::resp::{Connection, ReceiveError, Value, encode, split};
use crate::server::Server;
use crate::{cmd, module_file, observe};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a reply may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Between two questions to the server whether a client is blocked.
const TURN: Duration = Duration::from_millis(5);

/// A lock that is waited for and taken to see that all that was due is done.
const CANARY: &str = "canary";

/// The scene of a transcript.
pub(super) struct Stage<'a> {
    server: &'a Server,
    replica: Option<&'a Server>,
    clock: Option<&'a Clock>,
    protocol: u8,
    control: Connection,
    clients: BTreeMap<String, Client>,
    pub(super) names: Names,
    /// The names that were known before the loop, and where that begins.
    before: (usize, Names),
    /// Which turn of a loop this is, for messages.
    pub(super) turn: String,
    turns: usize,
    counters: BTreeMap<String, i64>,
}

struct Client {
    connection: Connection,
    id: i64,
    db: String,
    /// In a command whose reply has not come.
    blocked: bool,
    /// The lock that it waits for, and its owner.
    waits: Option<[String; 2]>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        server: &'a Server,
        replica: Option<&'a Server>,
        clock: Option<&'a Clock>,
        protocol: u8,
    ) -> Self {
        let mut stage = Self {
            server,
            replica,
            clock,
            protocol,
            control: server.connect(),
            clients: BTreeMap::new(),
            names: Names::from([("port".to_owned(), server.port().into())]),
            before: Default::default(),
            turn: String::new(),
            turns: 0,
            counters: BTreeMap::new(),
        };
        stage.names.extend(replica.map(|it| ("replica".to_owned(), it.port().into())));
        stage.counters = stage.counted();
        stage
    }

    /// Does what the step says and returns what was seen, as lines.
    pub(super) fn act(&mut self, step: &Step, expected: &[String]) -> Vec<String> {
        let (name, compact) = (&step.client, step.compact);
        if !name.is_empty() && !self.clients.contains_key(name) {
            self.enter(name);
        }
        match &step.action {
            Action::Command(command) | Action::Together(command) => {
                self.command(name, command, expected, compact)
            }
            Action::Sent(command) => {
                let words = self.words(name, command);
                let client = self.clients.get_mut(name).expect("it has entered");
                words.map(|words| client.connection.send(words)).err().into_iter().collect()
            }
            Action::Until(command) => self.until(name, command, expected, compact),
            Action::Field(field, command) => self.field(name, command, field),
            Action::Arrives => self.arrival(name, expected, compact),
            Action::WaitClosed => self.closing(name),
            Action::Close => self.leave(name, Connection::close),
            Action::Reset => self.leave(name, Connection::reset),
            Action::Blocked => {
                observe::wait_until_blocked(&mut self.control, self.clients[name].id);
                Vec::new()
            }
            Action::Counted(field) => self.until_counted(field, expected),
            Action::Begin => Vec::new(),
            Action::Pass(ms) => {
                observe::let_pass(&mut self.control, Duration::from_millis(*ms));
                Vec::new()
            }
            Action::Settle => self.settle(),
            Action::Logged(text) if self.server.log().contains(text) => Vec::new(),
            Action::Logged(_) => vec!["(not logged)".to_owned()],
            Action::Clock(ms) => {
                self.clock.expect("a transcript that sets it has one").set(*ms);
                Vec::new()
            }
        }
    }

    /// What a counter is when it is what is expected, or at last.
    fn until_counted(&mut self, field: &str, expected: &[String]) -> Vec<String> {
        let before = self.counters.get(field).copied().unwrap_or(0);
        let deadline = Instant::now() + DEADLINE;
        loop {
            let now = self.counted().get(field).copied().unwrap_or(0);
            let seen = vec![(now - before).to_string()];
            if fits(expected, &seen, &mut self.names.clone()) || Instant::now() > deadline {
                return seen;
            }
        }
    }

    /// A turn of the loop at that line begins: returns which.
    pub(super) fn begin(&mut self, line: usize) -> usize {
        if self.turns == 0 || self.before.0 != line {
            self.before = (line, self.names.clone());
            self.turns = 0;
        }
        let ids = self.names.iter().filter(|(name, _)| name.starts_with("id "));
        let ids: Vec<_> = ids.map(|(name, id)| (name.clone(), *id)).collect();
        self.names = self.before.1.clone();
        self.names.extend(ids);
        self.counters = self.counted();
        self.turns += 1;
        self.turns
    }

    /// The counters of the module.
    fn counted(&mut self) -> BTreeMap<String, i64> {
        let info = self.control.call(cmd!["INFO", "everything"]).text();
        let fields = info.lines().filter_map(|line| line.strip_prefix("kvlock_")?.split_once(':'));
        let numbers = fields.filter_map(|(name, it)| Some((name.to_owned(), it.parse().ok()?)));
        numbers.collect()
    }

    fn enter(&mut self, name: &str) {
        let home = self.replica.filter(|_| name.starts_with("replica")).unwrap_or(self.server);
        let mut connection = home.connect_resp(self.protocol);
        let id = connection.client_id();
        self.names.insert(format!("id {name}"), id.into());
        let db = "0".to_owned();
        let client = Client { connection, id, db, blocked: false, waits: None };
        self.clients.insert(name.to_owned(), client);
    }

    fn leave(&mut self, name: &str, how: fn(Connection)) -> Vec<String> {
        let Some(client) = self.clients.remove(name) else {
            return Vec::new();
        };
        how(client.connection);
        observe::wait_until_gone(&mut self.control, client.id);
        Vec::new()
    }

    /// The words of a command, with what is known put in.
    fn words(&mut self, name: &str, command: &str) -> Result<Vec<Vec<u8>>, String> {
        let mut line = fill_in(command, &self.names);
        for (name, path) in [
            ("$MODULE", module_file::path as fn() -> PathBuf),
            ("$PLANTED", module_file::planted_path),
        ] {
            if line.contains(name) {
                line = line.replace(name, &path().display().to_string());
            }
        }
        let words = split(&line).map_err(|why| format!("({why})"))?;
        let client = self.clients.get_mut(name).expect("it has entered");
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
        if self.clients[name].blocked {
            return Err(format!("({name} is blocked and cannot send)"));
        }
        let words = self.words(name, command)?;
        self.clients.get_mut(name).expect("it has entered").connection.send(words);
        Ok(())
    }

    /// Sends commands of one client in one write, which arrives in one read.
    pub(super) fn send_together<'s>(&mut self, steps: impl Iterator<Item = &'s Step>) {
        let mut bytes = Vec::new();
        let mut name = "";
        for step in steps {
            name = &step.client;
            if !self.clients.contains_key(name) {
                self.enter(name);
            }
            if let Action::Together(command) | Action::Command(command) = &step.action {
                let words = self.words(name, command).unwrap_or_else(|why| panic!("{why}"));
                bytes.extend(encode(&words));
            }
        }
        self.clients.get_mut(name).expect("it has entered").connection.send_raw(&bytes);
    }

    fn command(
        &mut self,
        name: &str,
        command: &str,
        expected: &[String],
        compact: bool,
    ) -> Vec<String> {
        match self.send(name, command) {
            Ok(()) => self.reply(name, expected, compact),
            Err(why) => vec![why],
        }
    }

    /// The reply to what was sent, or that there is none.
    pub(super) fn reply(&mut self, name: &str, expected: &[String], compact: bool) -> Vec<String> {
        let client = self.clients.get_mut(name).expect("it has entered");
        // Where a reply is expected, a moment in which the client is blocked is none of our business.
        let wants_reply = !expected.is_empty() && expected != ["(blocked)"];
        let deadline = Instant::now() + DEADLINE;
        loop {
            if !wants_reply
                && observe::is_blocked(&mut self.control, client.id)
                && !client.connection.has_unread()
            {
                client.blocked = true;
                return vec!["(blocked)".to_owned()];
            }
            match client.connection.receive(if wants_reply { DEADLINE } else { TURN }) {
                Err(ReceiveError::Timeout) if !wants_reply && Instant::now() < deadline => {}
                other => return lines(other, compact),
            }
        }
    }

    fn until(
        &mut self,
        name: &str,
        command: &str,
        expected: &[String],
        compact: bool,
    ) -> Vec<String> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let seen = self.command(name, command, expected, compact);
            if fits(expected, &seen, &mut self.names.clone()) || Instant::now() > deadline {
                return seen;
            }
        }
    }

    fn field(&mut self, name: &str, command: &str, field: &str) -> Vec<String> {
        if let Err(why) = self.send(name, command) {
            return vec![why];
        }
        let client = self.clients.get_mut(name).expect("it has entered");
        match client.connection.receive(DEADLINE) {
            Ok(reply @ (Value::Array(_) | Value::Map(_))) => vec![reply.field(field).line()],
            other => lines(other, true),
        }
    }

    fn arrival(&mut self, name: &str, expected: &[String], compact: bool) -> Vec<String> {
        match expected {
            [waits] if waits == "(waits)" => return self.waiting(name),
            [closed] if closed == "(closed)" => {
                let seen = self.closing(name);
                return if seen.is_empty() { vec!["(closed)".to_owned()] } else { seen };
            }
            [away] if away == "(sent away)" => return self.sent_away(name),
            _ => {}
        }
        let client = self.clients.get_mut(name).expect("it has entered");
        let result = client.connection.receive(DEADLINE);
        client.blocked &= result.is_err();
        let over = expected.iter().any(|line| line.ends_with(NO_MORE));
        if let (Ok(reply), Some(_), false) = (&result, self.replica, over) {
            let told = self.as_the_key_says(name, &reply.clone());
            if let Some(other) = told {
                return vec![other];
            }
        }
        lines(result, compact)
    }

    /// What the key of a lock says that was granted, if that is something else.
    fn as_the_key_says(&mut self, name: &str, reply: &Value) -> Option<String> {
        let client = self.clients.get_mut(name).expect("it has entered");
        let [key, owner] = client.waits.take()?;
        let Value::Array(grant) = reply else { return None };
        let [Value::Integer(token), Value::Integer(1)] = grant[..] else { return None };
        self.control.call(cmd!["SELECT", client.db]);
        let held = self.control.call(cmd!["HGETALL", key]);
        let left = self.control.call(cmd!["PTTL", key]).integer();
        let mut held: Vec<_> = held.elements().iter().map(Value::text).collect();
        held.sort();
        let mut granted = [owner, "1".to_owned(), "fencing-token".to_owned(), format!("t{token}")];
        granted.sort();
        (held != granted || left <= 0)
            .then(|| format!("(granted {granted:?}, but {held:?} for {left} ms)"))
    }

    /// That a client is in line and was told nothing, after all that was due is done.
    fn waiting(&mut self, name: &str) -> Vec<String> {
        let seen = self.settle();
        let client = self.clients.get_mut(name).expect("it has entered");
        if client.connection.has_unread() {
            return lines(client.connection.receive(DEADLINE), true);
        }
        if observe::is_blocked(&mut self.control, client.id) {
            return if seen.is_empty() { vec!["(waits)".to_owned()] } else { seen };
        }
        vec!["(neither waits nor was told anything)".to_owned()]
    }

    /// A waiter of a server that is no primary any more is told so by the module, or the server closes
    /// its connection.
    fn sent_away(&mut self, name: &str) -> Vec<String> {
        let Some(mut client) = self.clients.remove(name) else { return Vec::new() };
        match client.connection.receive_or_closed() {
            Some(told) if !told.is_error() || told.code() != "UNBLOCKED" => vec![told.line()],
            _ => vec!["(sent away)".to_owned()],
        }
    }

    /// Returns when all that was due on the server has been done: a look at a lock that was due later
    /// than anything before has led to a grant.
    fn settle(&mut self) -> Vec<String> {
        let mut canary = self.server.connect();
        let id = canary.client_id();
        self.control.run("SELECT 0");
        self.control.call(cmd!["LOCK.ACQUIRE", CANARY, "nobody", 600_000]);
        canary.send(cmd!["LOCK.WAIT", CANARY, CANARY, 600_000, 0]);
        observe::wait_until_blocked(&mut self.control, id);
        self.control.call(cmd!["DEL", CANARY]);
        let granted = canary.receive(DEADLINE);
        canary.call(cmd!["LOCK.RELEASE", CANARY, CANARY]);
        *self.counters.entry("granted".to_owned()).or_default() += 2;
        if matches!(granted, Ok(Value::Array(_))) { Vec::new() } else { lines(granted, true) }
    }

    fn closing(&mut self, name: &str) -> Vec<String> {
        let Some(mut client) = self.clients.remove(name) else {
            return Vec::new();
        };
        match client.connection.receive(DEADLINE) {
            Err(ReceiveError::Closed) => Vec::new(),
            other => lines(other, false),
        }
    }

    /// What should not be there when the last line has been played.
    pub(super) fn left_over(&mut self) -> Vec<String> {
        if !self.server.is_alive() {
            return vec!["(the server is dead or stuck)".to_owned()];
        }
        // All that the server had to say to the others left before its answer to this.
        self.control.run("PING");
        let mut left = Vec::new();
        for (name, client) in &mut self.clients {
            if client.connection.has_unread() {
                left.push(format!(
                    "({name} has unread) {}",
                    lines(client.connection.receive(DEADLINE), false).join("\n")
                ));
            } else if observe::is_blocked(&mut self.control, client.id) {
                left.push(format!("({name} is still blocked)"));
            }
        }
        left
    }
}

fn lines(result: Result<Value, ReceiveError>, compact: bool) -> Vec<String> {
    match result {
        Ok(value) if compact => vec![value.line()],
        Ok(value) => value.to_string().lines().map(str::to_owned).collect(),
        Err(why) => vec![format!("({why})")],
    }
}
