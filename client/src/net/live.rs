//! An open connection, and the epoch in which its server is the primary.

use crate::net::connection::Connection;
use crate::net::pace::Pace;
use crate::wire::error::Error;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// The period in which one server is the primary, or in which a node of a cluster has slots. After
/// its end, connections to that server must not be used: requests on them may never be answered.
#[derive(Debug, Default)]
pub(crate) struct PrimaryEpoch {
    over: AtomicBool,
    ended: Notify,
}

impl PrimaryEpoch {
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.ended.notify_waiters();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub(crate) async fn over(&self) {
        let mut ended = pin!(self.ended.notified());
        ended.as_mut().enable();
        if !self.is_over() {
            ended.await;
        }
    }
}

/// An open connection, and whether it can still be used.
pub(crate) struct Live {
    /// Number that no other connection of this process has.
    pub(crate) number: u64,
    connection: Connection,
    broken: AtomicBool,
    /// `true` if a renewal was not answered in time, until a later command is answered. Another connection is
    /// then preferred.
    doubted: AtomicBool,
    /// Epoch of the server. `None` if no other server can take over its role.
    primary_epoch: Option<Arc<PrimaryEpoch>>,
    /// `true` if the server is a node of a cluster. A command may then need `ASKING` before it.
    clustered: bool,
    pace: Arc<Pace>,
    /// `true` after the first executed command other than a [`probe`](Self::probe). That command reset the
    /// backoff. If this connection breaks, another one may then be opened at once.
    proven: AtomicBool,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("broken", &self.broken).finish_non_exhaustive()
    }
}

impl Live {
    pub(crate) fn new(
        connection: Connection,
        primary_epoch: Option<Arc<PrimaryEpoch>>,
        clustered: bool,
        pace: Arc<Pace>,
    ) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let [broken, doubted, proven] = [false; 3].map(AtomicBool::new);
        Self { number, connection, broken, doubted, primary_epoch, clustered, pace, proven }
    }

    /// See [`Connection::drive`].
    pub(crate) fn drive(&self) {
        self.connection.drive();
    }

    /// See [`Connection::drive_while`].
    pub(crate) async fn drive_while<T>(&self, what: impl Future<Output = T>) -> T {
        self.connection.drive_while(what).await
    }

    /// Sends a command, after `ASKING` if `asking`, and waits up to `patience` for its answer.
    ///
    /// If this future is dropped before it is done, the command may or may not have been sent. Later
    /// commands on the same connection are executed after it.
    pub(crate) async fn call(
        &self,
        cmd: &Cmd,
        asking: bool,
        patience: Duration,
    ) -> Result<Value, Error> {
        match timeout(patience, self.call_unlimited(cmd, asking)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Timeout),
        }
    }

    /// Sends a command, as [`call`](Self::call) does. After a timeout, no new commands are sent over this
    /// connection.
    pub(crate) async fn ask(
        &self,
        cmd: &Cmd,
        asking: bool,
        patience: Duration,
    ) -> Result<Value, Error> {
        let answer = self.call(cmd, asking, patience).await;
        if matches!(answer, Err(Error::Timeout)) {
            self.condemn();
        }
        answer
    }

    /// Sends a command that has to be executed after an earlier one on this connection. In a cluster, sends
    /// `ASKING` before it, so that a node that still imports the slot of its key executes it too.
    pub(crate) async fn call_after(&self, cmd: &Cmd, patience: Duration) -> Result<Value, Error> {
        self.call(cmd, self.clustered, patience).await
    }

    /// Sends a command, as [`call`](Self::call) does, but without a time limit. For waits, which the server
    /// ends, and for callers that have a limit of their own.
    pub(crate) async fn call_unlimited(&self, cmd: &Cmd, asking: bool) -> Result<Value, Error> {
        let answer = self.send(cmd, asking).await?;
        self.prove();
        Ok(answer)
    }

    /// Sends a command whose answer does not reset the backoff. Used to open a session, or to read one
    /// without waiting.
    pub(crate) async fn probe(&self, cmd: &Cmd, patience: Duration) -> Result<Value, Error> {
        timeout(patience, self.send(cmd, false)).await.unwrap_or(Err(Error::Timeout))
    }

    async fn send(&self, cmd: &Cmd, asking: bool) -> Result<Value, Error> {
        let answer = self.until_deposed(async {
            if !asking {
                return self.connection.send(cmd).await;
            }
            let mut both = Pipeline::with_capacity(2);
            both.cmd("ASKING").add_command(cmd.clone());
            self.connection.send_all(&both).await.map(last)
        });
        let answer = answer.await;
        let answer = self.seen(answer)?;
        self.look_for_demotion(std::slice::from_ref(&answer));
        answer.extract_error().map_err(Error::from)
    }

    fn prove(&self) {
        self.doubted.store(false, Ordering::Relaxed);
        if !self.proven.swap(true, Ordering::Relaxed) {
            self.pace.succeeded();
        }
    }

    /// Sends many commands together, and returns their answers, which include errors of the server.
    pub(crate) async fn call_all(
        &self,
        commands: &Pipeline,
        patience: Duration,
    ) -> Result<Vec<Value>, Error> {
        let answers =
            timeout(patience, self.until_deposed(self.connection.send_all(commands))).await;
        let answers = self.seen(answers.map_err(|_| Error::Timeout)?)?;
        self.look_for_demotion(&answers);
        if answers.iter().any(|answer| !matches!(answer, Value::ServerError(_))) {
            self.prove();
        }
        Ok(answers)
    }

    /// Marks the connection as broken: no new command is sent over it.
    pub(crate) fn condemn(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Records that a renewal was not answered in time. The second time in a row, marks the connection as
    /// broken.
    pub(crate) fn doubt(&self) {
        if self.doubted.swap(true, Ordering::Relaxed) {
            self.condemn();
        }
    }

    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::Relaxed)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
            || self.connection.is_closed()
            || self.primary_epoch.as_ref().is_some_and(|r| r.is_over())
    }

    /// Returns the answer, or an error if the server is deposed before the answer arrives.
    async fn until_deposed<T>(
        &self,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> RedisResult<T> {
        let Some(primary_epoch) = &self.primary_epoch else { return answer.await };
        tokio::select! {
            biased;
            answer = answer => answer,
            () = primary_epoch.over() => {
                Err(RedisError::from((ErrorKind::Io, "another server is the primary now")))
            }
        }
    }

    /// Marks the connection as broken if the server has become a replica. A new connection may lead to
    /// another server, since the address is looked up again.
    fn look_for_demotion(&self, answers: &[Value]) {
        let demoted = |answer: &Value| matches!(answer, Value::ServerError(error) if error.code() == "READONLY");
        if answers.iter().any(demoted) {
            self.condemn();
        }
    }

    fn seen<T>(&self, outcome: RedisResult<T>) -> Result<T, Error> {
        outcome.map_err(|error| {
            self.condemn();
            Error::from(error)
        })
    }
}

fn last(mut answers: Vec<Value>) -> Value {
    answers.pop().unwrap_or(Value::Nil)
}
