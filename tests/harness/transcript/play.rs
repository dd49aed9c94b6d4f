//! Plays a transcript on a server.

use super::parse::{Action, Step, Transcript};
use super::pattern::{Names, fill_in, matches};
use crate::observe;
use crate::resp::{Connection, ReceiveError, split};
use crate::server::Server;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// How long a reply may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Between two questions to the server whether a client is blocked.
const TURN: Duration = Duration::from_millis(5);

/// Something else than expected was seen.
#[derive(Clone, Debug)]
pub struct Mismatch {
    place: String,
    action: String,
    expected: Vec<String>,
    /// Of which step; past the last one at the end of the file.
    pub(super) step: usize,
    pub(super) seen: Vec<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: something else was seen than is expected (-)", self.place)?;
        writeln!(f, "    {}", self.action)?;
        for line in 0..self.expected.len().max(self.seen.len()) {
            match (self.expected.get(line), self.seen.get(line)) {
                (Some(expected), Some(seen)) if expected == seen => writeln!(f, "    {seen}")?,
                (expected, seen) => {
                    expected.iter().try_for_each(|line| writeln!(f, "  - {line}"))?;
                    seen.iter().try_for_each(|line| writeln!(f, "  + {line}"))?;
                }
            }
        }
        Ok(())
    }
}

/// Plays it, and returns what differs: the first mismatch, or with `to_the_end` all of them. The
/// clients that it makes are closed afterwards.
pub fn play(
    server: &Server,
    transcript: &Transcript,
    protocol: u8,
    to_the_end: bool,
) -> Vec<Mismatch> {
    let control = server.connect();
    let mut stage =
        Stage { server, protocol, control, clients: BTreeMap::new(), names: Names::new() };
    let mut mismatches = Vec::new();
    for (index, step) in transcript.steps.iter().enumerate() {
        let expected = &step.expected_in(protocol).text;
        let seen = stage.act(step, expected);
        if matches(expected, &seen, &mut stage.names) {
            continue;
        }
        mismatches.push(Mismatch {
            place: format!("{}:{} (RESP{protocol})", transcript.name, step.line + 1),
            action: transcript.lines[step.line].clone(),
            expected: expected.clone(),
            step: index,
            seen,
        });
        if !to_the_end {
            return mismatches;
        }
    }
    let left = stage.left_over();
    if !left.is_empty() {
        mismatches.push(Mismatch {
            place: format!("{} (RESP{protocol})", transcript.name),
            action: "at the end".to_owned(),
            expected: Vec::new(),
            step: transcript.steps.len(),
            seen: left,
        });
    }
    mismatches
}

struct Stage<'a> {
    server: &'a Server,
    protocol: u8,
    control: Connection,
    clients: BTreeMap<String, Client>,
    names: Names,
}

struct Client {
    connection: Connection,
    id: i64,
    /// In a command whose reply has not come.
    blocked: bool,
}

impl Stage<'_> {
    /// Does what the step says and returns what was seen, as lines.
    fn act(&mut self, step: &Step, expected: &[String]) -> Vec<String> {
        let name = &step.client;
        if !self.clients.contains_key(name) {
            self.enter(name);
        }
        match &step.action {
            Action::Command(command) => self.command(name, command, expected),
            Action::Until(command) => self.until(name, command, expected),
            Action::Arrives => self.arrival(name),
            Action::WaitClosed => self.closing(name),
            Action::Close => self.leave(name, Connection::close),
            Action::Reset => self.leave(name, Connection::reset),
        }
    }

    fn enter(&mut self, name: &str) {
        let mut connection = self.server.connect_resp(self.protocol);
        let id = connection.client_id();
        self.names.insert(format!("id {name}"), id.into());
        self.clients.insert(name.to_owned(), Client { connection, id, blocked: false });
    }

    fn leave(&mut self, name: &str, how: fn(Connection)) -> Vec<String> {
        let Some(client) = self.clients.remove(name) else {
            return Vec::new();
        };
        how(client.connection);
        observe::wait_until_gone(&mut self.control, client.id);
        Vec::new()
    }

    fn command(&mut self, name: &str, command: &str, expected: &[String]) -> Vec<String> {
        let words = split(&fill_in(command, &self.names));
        let client = self.clients.get_mut(name).expect("it has entered");
        if client.blocked {
            return vec![format!("({name} is blocked and cannot send)")];
        }
        match words {
            Ok(words) => client.connection.send(words),
            Err(why) => return vec![format!("({why})")],
        }
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
                other => return lines(other),
            }
        }
    }

    fn until(&mut self, name: &str, command: &str, expected: &[String]) -> Vec<String> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let seen = self.command(name, command, expected);
            if matches(expected, &seen, &mut self.names.clone()) || Instant::now() > deadline {
                return seen;
            }
        }
    }

    fn arrival(&mut self, name: &str) -> Vec<String> {
        let client = self.clients.get_mut(name).expect("it has entered");
        let result = client.connection.receive(DEADLINE);
        client.blocked &= result.is_err();
        lines(result)
    }

    fn closing(&mut self, name: &str) -> Vec<String> {
        let Some(mut client) = self.clients.remove(name) else {
            return Vec::new();
        };
        match client.connection.receive(DEADLINE) {
            Err(ReceiveError::Closed) => Vec::new(),
            other => lines(other),
        }
    }

    /// What should not be there when the last line has been played.
    fn left_over(&mut self) -> Vec<String> {
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
                    lines(client.connection.receive(DEADLINE)).join("\n")
                ));
            } else if observe::is_blocked(&mut self.control, client.id) {
                left.push(format!("({name} is still blocked)"));
            }
        }
        left
    }
}

fn lines(result: Result<crate::Value, ReceiveError>) -> Vec<String> {
    match result {
        Ok(value) => value.to_string().lines().map(str::to_owned).collect(),
        Err(why) => vec![format!("({why})")],
    }
}
