//! A client: its connection to the primary, and the record of its calls.

use super::Scene;
use harness::history::{CallId, Outcome, Request};
use harness::resp::ReceiveError;
use harness::{Connection, Value, cmd};
use std::time::Duration;

/// Longest wait for any reply. Some waits are without limit, but every lock is released or expires.
pub(super) const ANSWER: Duration = Duration::from_secs(40);

/// Errors that are expected here, and report that the command had no effect.
pub(super) const EXPECTED: [&str; 13] = [
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

pub(super) struct Client<'a> {
    pub(super) scene: &'a Scene<'a>,
    /// The database to select.
    pub(super) db: u32,
    /// The connection, and its selected database.
    connection: Option<(Connection, u32)>,
}

/// End of a call, as its client sees it.
#[derive(Debug, PartialEq)]
pub(super) enum Ending {
    /// The request took full effect.
    Done,
    /// The request had no effect: the reply was nil or `MISMATCH`, or the wait was cancelled or timed out.
    Refused,
    /// The request had no effect: the server replied with an error, or ended the connection or the session of
    /// a waiter.
    Failed,
    /// The effect is unknown, mostly because the connection broke.
    Unknown,
}

impl<'a> Client<'a> {
    pub(super) fn new(scene: &'a Scene<'a>) -> Self {
        Self { scene, db: 0, connection: None }
    }

    /// The connection, in the right database; a new one if the last one broke. Panics if there is no
    /// primary.
    pub(super) fn connection(&mut self) -> &mut Connection {
        let scene = self.scene;
        let (connection, db) = self.connection.get_or_insert_with(|| {
            (scene.connect().expect("no server is the primary any more"), 0)
        });
        if *db != self.db {
            // If the connection breaks during this command, the next call notices.
            let _selected = connection.ask(cmd!["SELECT", self.db]);
            *db = self.db;
        }
        connection
    }

    /// Breaks the connection off.
    pub(super) fn reset(&mut self) {
        if let Some((connection, _)) = self.connection.take() {
            connection.reset();
        }
    }

    /// Sends a command that is not recorded in the history. Returns nil if the connection breaks.
    pub(super) fn ask(&mut self, command: Vec<Vec<u8>>) -> Value {
        let answer = self.connection().ask(command);
        if answer.is_err() {
            self.connection = None;
        }
        answer.unwrap_or(Value::Nil)
    }

    /// Sends a call; [`Self::finish`] receives its answer.
    pub(super) fn begin(
        &mut self,
        key: &str,
        owner: &str,
        request: Request,
        command: &[Vec<u8>],
    ) -> CallId {
        // Connect first: the time for that is not part of the call.
        self.connection();
        let call = self.scene.recorder.sent(key, owner, request);
        self.connection().send(command);
        call
    }

    /// Receives the reply of a call and records it. `lost` is the outcome to record if the server closes the
    /// connection instead.
    pub(super) fn finish(&mut self, call: CallId, request: &Request, lost: Outcome) -> Ending {
        match self.receive() {
            Ok(reply) => self.ended(call, self.outcome(request, &reply)),
            Err(ReceiveError::Closed) => self.ended(call, lost),
            // The call stays open, and the checker reports it.
            Err(_) => Ending::Unknown,
        }
    }

    /// Runs these commands in one transaction. Returns the replies. If the server refuses the transaction,
    /// returns only its error.
    pub(super) fn transact(
        &mut self,
        commands: &[Vec<Vec<u8>>],
    ) -> Result<Vec<Value>, ReceiveError> {
        let all = [&[cmd!["MULTI"]], commands, &[cmd!["EXEC"]]].concat();
        all.iter().for_each(|command| self.connection().send(command));
        let mut last = Value::Nil;
        for _ in &all {
            last = self.receive()?;
        }
        Ok(if let Value::Array(replies) = last { replies } else { vec![last] })
    }

    /// Receives the reply to a wait through a session; `None` if it is queued.
    pub(super) fn finish_or_queue(&mut self, call: CallId, request: &Request) -> Option<Ending> {
        match self.receive() {
            Ok(Value::Array(reply)) if reply[0] == Value::bulk("queued") => {
                self.scene.recorder.queued(call);
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

    /// Records the outcome of a call that has just ended.
    pub(super) fn ended(&self, call: CallId, outcome: Outcome) -> Ending {
        self.scene.recorder.answered(call, outcome);
        match outcome {
            Outcome::Granted { .. }
            | Outcome::Released { .. }
            | Outcome::Holds { .. }
            | Outcome::Done => Ending::Done,
            Outcome::Refused | Outcome::Withdrawn => Ending::Refused,
            Outcome::Failed => Ending::Failed,
            Outcome::Unknown => Ending::Unknown,
        }
    }

    /// Sends a call, and receives its reply.
    pub(super) fn call(
        &mut self,
        key: &str,
        owner: &str,
        request: &Request,
        command: &[Vec<u8>],
    ) -> Ending {
        let call = self.begin(key, owner, request.clone(), command);
        self.finish(call, request, Outcome::Unknown)
    }

    /// The outcome in a reply. Records unexpected errors.
    pub(super) fn outcome(&self, request: &Request, reply: &Value) -> Outcome {
        let outcome = Outcome::of(request, reply);
        match reply {
            Value::Error { code, .. } if outcome == Outcome::Failed => {
                if code == "READONLY" || code == "UNBLOCKED" {
                    self.scene.log.add("told that the primary is another", 1);
                } else if !EXPECTED.contains(&code.as_str()) {
                    self.scene.log.surprise(format!("{request:?}: {reply}"));
                }
            }
            _ => {}
        }
        outcome
    }

    /// Drops the connection, so that the next command connects to the current primary.
    pub(super) fn reconnect(&mut self) {
        self.connection = None;
    }
}
