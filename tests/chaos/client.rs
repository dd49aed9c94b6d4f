//! A client: its connection to the primary, and what it takes down of its calls.

use crate::Round;
use crate::pair::GUEST;
use harness::history::{CallId, Outcome, Request};
use harness::resp::ReceiveError;
use harness::{Connection, Value, cmd};
use std::time::Duration;

/// How long any answer may take. Some waits are without limit, but every lock is released.
pub(crate) const ANSWER: Duration = Duration::from_secs(40);

/// Errors that say that nothing was done, and are to be expected here.
pub(crate) const EXPECTED: [&str; 13] = [
    "UNBLOCKED",
    "TRYAGAIN",
    "QUEUEFULL",
    "READONLY",
    "NOREPLICAS",
    "OOM",
    "WRONGTYPE",
    "LOADING",
    "MASTERDOWN",
    "EXECABORT",
    "UNSET",
    "NOSESSION",
    "MISCONF",
];

pub(crate) struct Client<'a> {
    pub(crate) round: &'a Round,
    /// The database that it is to be in.
    pub(crate) db: u32,
    /// With the database that it is in.
    connection: Option<(Connection, u32)>,
}

/// How a call ended for the one who made it.
#[derive(Debug, PartialEq)]
pub(crate) enum Ending {
    /// With this number: a token, or holds.
    Done(u64),
    /// It does not have the lock.
    Refused,
    /// The server would not do it now.
    Failed,
    /// The connection is gone, and nobody knows.
    Unknown,
}

impl<'a> Client<'a> {
    pub(crate) fn new(round: &'a Round) -> Self {
        Self { round, db: 0, connection: None }
    }

    /// The connection, in the right database; a new one if the last is gone. Panics if there is no
    /// primary.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        let round = self.round;
        let (connection, db) = self.connection.get_or_insert_with(|| {
            let mut connection = round.pair.connect().expect("no server is the primary any more");
            // If the connection breaks over this, the next call finds out.
            let _guest = crate::pair::ask(&mut connection, cmd!["AUTH", GUEST, "x"]);
            (connection, 0)
        });
        if *db != self.db {
            // If the connection breaks over this, the next call finds out.
            let _selected = crate::pair::ask(connection, cmd!["SELECT", self.db]);
            *db = self.db;
        }
        connection
    }

    /// Breaks the connection off.
    pub(crate) fn reset(&mut self) {
        if let Some((connection, _)) = self.connection.take() {
            connection.reset();
        }
    }

    /// Asks, without a line in the history; nil when the connection breaks.
    pub(crate) fn ask(&mut self, command: Vec<Vec<u8>>) -> Value {
        let answer = crate::pair::ask(self.connection(), command);
        if answer.is_err() {
            self.connection = None;
        }
        answer.unwrap_or(Value::Nil)
    }

    /// Sends a call; [`Self::finish`] receives its answer.
    pub(crate) fn begin(
        &mut self,
        key: &str,
        owner: &str,
        request: Request,
        command: &[Vec<u8>],
    ) -> CallId {
        // First: to connect takes its time, and is no part of the call.
        self.connection();
        let call = self.round.recorder.sent(key, owner, request);
        self.connection().send(command);
        call
    }

    /// Receives the answer of a call and takes it down. `lost` is what it means if the server
    /// closes the connection instead.
    pub(crate) fn finish(&mut self, call: CallId, request: &Request, lost: Outcome) -> Ending {
        self.finish_as(call, request, lost, |reply| reply)
    }

    /// The same where the answer to the call is only a part of what is received.
    pub(crate) fn finish_as(
        &mut self,
        call: CallId,
        request: &Request,
        lost: Outcome,
        part: impl FnOnce(Value) -> Value,
    ) -> Ending {
        match self.receive() {
            Ok(reply) => self.ended(call, self.outcome(request, &part(reply))),
            Err(ReceiveError::Closed) => self.ended(call, lost),
            // It stays open, and the checker finds it.
            Err(_) => Ending::Unknown,
        }
    }

    /// Receives the answer to a wait through a session; nothing if it is in line.
    pub(crate) fn finish_or_queue(&mut self, call: CallId, request: &Request) -> Option<Ending> {
        match self.receive() {
            Ok(Value::Array(reply)) if reply[0] == Value::bulk("queued") => {
                self.round.recorder.queued(call);
                None
            }
            Ok(reply) => Some(self.ended(call, self.outcome(request, &reply))),
            Err(ReceiveError::Closed) => Some(self.ended(call, Outcome::Unknown)),
            Err(_) => Some(Ending::Unknown),
        }
    }

    fn receive(&mut self) -> Result<Value, ReceiveError> {
        let answer = self.connection().receive(ANSWER);
        match &answer {
            Ok(_) => {}
            Err(ReceiveError::Malformed(why)) => panic!("{why}"),
            Err(ReceiveError::Closed | ReceiveError::Timeout) => self.connection = None,
        }
        answer
    }

    /// Takes down how a call has ended just now.
    pub(crate) fn ended(&self, call: CallId, outcome: Outcome) -> Ending {
        self.round.recorder.answered(call, outcome);
        match outcome {
            Outcome::Granted { token, .. } => Ending::Done(token),
            Outcome::Released { left } => Ending::Done(left),
            Outcome::Holds { permits } => Ending::Done(permits),
            Outcome::Done => Ending::Done(0),
            Outcome::Refused | Outcome::Withdrawn => Ending::Refused,
            Outcome::Failed => Ending::Failed,
            Outcome::Unknown => Ending::Unknown,
        }
    }

    /// A call from beginning to end.
    pub(crate) fn call(
        &mut self,
        key: &str,
        owner: &str,
        request: &Request,
        command: &[Vec<u8>],
    ) -> Ending {
        let call = self.begin(key, owner, request.clone(), command);
        self.finish(call, request, Outcome::Unknown)
    }

    fn outcome(&self, request: &Request, reply: &Value) -> Outcome {
        let number = |reply: &Value| reply.integer().cast_unsigned();
        match (request, reply) {
            // HOLDS with a number above what the owner has: it has lost the lock.
            (_, Value::Error { code, .. }) if code == "MISMATCH" => Outcome::Refused,
            (_, Value::Error { code, .. }) => {
                if code == "READONLY" || code == "UNBLOCKED" {
                    self.round.tally.add("told that the primary is another", 1);
                } else if !EXPECTED.contains(&code.as_str()) {
                    self.round.tally.surprise(format!("{request:?}: {reply}"));
                }
                Outcome::Failed
            }
            (_, Value::Nil) => Outcome::Refused,
            (Request::Acquire { .. } | Request::Share { .. }, Value::Array(_)) => {
                Outcome::Granted { token: number(&reply[0]), holds: number(&reply[1]) }
            }
            (Request::Permits { .. }, Value::Integer(_)) => {
                Outcome::Holds { permits: number(reply) }
            }
            (
                Request::Release
                | Request::ReleaseShare
                | Request::ReleasePermits
                | Request::CountDown,
                Value::Integer(_),
            ) => Outcome::Released { left: number(reply) },
            (
                Request::Renew { .. }
                | Request::Break
                | Request::SetLatch { .. }
                | Request::AwaitLatch { .. },
                Value::Integer(_),
            ) => Outcome::Done,
            _ => {
                self.round.tally.surprise(format!("{request:?}: {reply}"));
                Outcome::Failed
            }
        }
    }

    /// Goes to the primary again: after the server said that it is not one any more.
    pub(crate) fn reconnect(&mut self) {
        self.connection = None;
    }
}
