//! A connection to a node that many tasks share: for commands, or for renewals.
//!
//! This layer never repeats a command: only the sender knows the effect of a repetition.

use crate::net::connector::Dialer;
use crate::net::deadline::{after, left};
use crate::net::live::Live;
use crate::sync::{Mutex, lock};
use crate::wire::error::Error;
use redis::{Cmd, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// A connection that many tasks share. If it breaks, one attempt to connect is made for all tasks that need
/// it. The attempt is completed even if all these tasks are cancelled.
#[derive(Debug)]
pub(crate) struct Link {
    dialer: Arc<Dialer>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Dial>,
    /// A doubted connection (see [`Live::doubt`]), kept until its replacement has logged in.
    spare: Option<Arc<Live>>,
}

impl State {
    /// Returns the current connection, if it is not doubted. A doubted one becomes the spare. The spare is
    /// returned if an answer has ended the doubt.
    fn live(&mut self) -> Option<Arc<Live>> {
        match self.last.as_ref().and_then(Dial::live) {
            Some(live) if live.is_doubted() => self.spare = Some(live),
            Some(live) => {
                self.spare = None;
                return Some(live);
            }
            None => {}
        }
        self.spare().filter(|spare| !spare.is_doubted())
    }

    fn spare(&self) -> Option<Arc<Live>> {
        self.spare.clone().filter(|spare| !spare.is_broken())
    }
}

/// An attempt to connect, and its outcome. It runs on the runtime of the task that began it.
#[derive(Clone, Debug)]
struct Dial {
    outcome: watch::Receiver<Option<Result<Arc<Live>, Error>>>,
}

impl Dial {
    fn begin(dialer: Arc<Dialer>) -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|_| runtime_is_gone())?;
        let (done, outcome) = watch::channel(None);
        runtime.spawn(async move {
            let live = dialer.dial().await;
            tracing::debug!(connected = live.is_ok(), "dialled");
            done.send_replace(Some(live.map(|live| {
                live.drive();
                Arc::new(live)
            })));
        });
        Ok(Self { outcome })
    }

    fn live(&self) -> Option<Arc<Live>> {
        let outcome = self.outcome.borrow();
        outcome.as_ref()?.as_ref().ok().filter(|live| !live.is_broken()).cloned()
    }

    fn is_under_way(&self) -> bool {
        // An error means that the task has ended together with its runtime.
        self.outcome.borrow().is_none() && self.outcome.has_changed().is_ok()
    }

    /// Waits for the outcome. Returns `None` if the runtime of the attempt has ended.
    async fn done(mut self) -> Option<Result<Arc<Live>, Error>> {
        self.outcome.wait_for(Option::is_some).await.ok()?.clone()
    }
}

impl Link {
    pub(crate) fn new(dialer: Arc<Dialer>) -> Self {
        Self { dialer, state: Mutex::default() }
    }

    /// Returns the current connection, or opens one. A doubted connection is used only if no new one can be
    /// opened.
    pub(crate) async fn live(&self) -> Result<Arc<Live>, Error> {
        // The first attempt may belong to another task, whose runtime may end during the call. The runtime of
        // this task cannot end.
        for _ in 0..2 {
            let dial = {
                let mut state = lock(&self.state);
                if let Some(live) = state.live() {
                    return Ok(live);
                }
                match &state.last {
                    Some(dial) if dial.is_under_way() => dial.clone(),
                    Some(_) | None => state.last.insert(Dial::begin(self.dialer.clone())?).clone(),
                }
            };
            if let Some(outcome) = dial.done().await {
                let mut state = lock(&self.state);
                return match outcome {
                    Ok(live) => {
                        state.spare = None;
                        Ok(live)
                    }
                    Err(refused) => state.spare().ok_or(refused),
                };
            }
        }
        Err(runtime_is_gone())
    }

    /// Returns a connection, as [`live`](Self::live) does, but an error if `end` passes first.
    pub(crate) async fn live_by(&self, end: Instant) -> Result<Arc<Live>, Error> {
        timeout_at(end, self.live()).await.map_err(|_| self.dialer.connector.too_slow())?
    }

    /// Sends a command over the current connection or a new one, and returns its answer.
    pub(crate) async fn call(&self, cmd: &Cmd, patience: Duration) -> Result<Value, Error> {
        let end = after(patience);
        self.live_by(end).await?.ask(cmd, false, left(end)).await
    }
}

pub(crate) fn runtime_is_gone() -> Error {
    Error::Connection(RedisError::from(std::io::Error::other("the runtime is shutting down")))
}
