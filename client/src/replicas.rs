//! Renewals, and how many replicas must have them before they count.
//!
//! `WAIT` counts the replicas that have received everything that the same connection has written,
//! and holds up whatever follows it there. So where it is wanted, renewals have a connection of
//! their own, and there is one `WAIT` for all that are sent together. A grant is confirmed by a
//! renewal: what has received that has received the grant before it.
//!
//! Where all replicas are wanted the primary is asked each time how many it has, right before the
//! `WAIT`. The most that were ever seen are wanted from then on: one that is gone may come back, and
//! be promoted.

use crate::error::Error;
use crate::link::{Link, Live};
use crate::reply;
use redis::{Cmd, Pipeline, RedisError, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How many replicas must have a grant or a renewal, and how long that may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replicas {
    pub(crate) at_least: u32,
    pub(crate) timeout: Duration,
    /// As many as the primary has, if these are more.
    pub(crate) all: bool,
}

/// The way of renewals to the server.
#[derive(Debug)]
pub(crate) struct Renewals {
    pub(crate) link: Arc<Link>,
    replicas: Option<Replicas>,
    /// The most replicas that a primary was seen to have.
    most_seen: AtomicU32,
}

impl Renewals {
    pub(crate) fn new(link: Arc<Link>, replicas: Option<Replicas>) -> Self {
        Self { link, replicas, most_seen: AtomicU32::new(0) }
    }

    /// Sends renewals over that connection of the link, and waits for the answers that long, and
    /// for the replicas not longer. With too few of them none of the renewals counts.
    pub(crate) async fn send(
        &self,
        live: &Live,
        mut renewals: Pipeline,
        patience: Duration,
    ) -> Result<Vec<Value>, Error> {
        let Some(Replicas { at_least, timeout, all }) = self.replicas else {
            return live.call_all(&renewals, patience).await;
        };
        // A timeout of zero would be none at all.
        let timeout = timeout.min(patience / 2).max(Duration::from_millis(1));
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let mut wanted = at_least;
        if all {
            wanted = wanted.max(self.most_seen.load(Ordering::Relaxed));
            renewals.cmd("ROLE");
        }
        renewals.cmd("WAIT").arg(wanted).arg(timeout_ms);
        let mut answers = live.call_all(&renewals, patience).await?;
        let mut confirmed = match reached(answers.pop()) {
            Ok(confirmed) => confirmed,
            Err(trouble) => return Err(if_deposed(live, answers, trouble, wanted)),
        };
        if all {
            let there = replicas_of(answers.pop())?;
            self.most_seen.fetch_max(there, Ordering::Relaxed);
            if there > wanted {
                // Those that have come meanwhile are wanted, too.
                wanted = there;
                let mut wait = Pipeline::with_capacity(1);
                wait.cmd("WAIT").arg(wanted).arg(timeout_ms);
                confirmed = reached(live.call_all(&wait, patience).await?.pop())
                    .map_err(|trouble| if_deposed(live, Vec::new(), trouble, wanted))?;
            }
        }
        if confirmed < wanted {
            return Err(Error::NotReplicated { confirmed, wanted });
        }
        Ok(answers)
    }

    /// Sends one renewal: the lease that runs now, `None` if the lock is not held.
    pub(crate) async fn send_one(
        &self,
        live: &Live,
        renewal: Cmd,
        patience: Duration,
    ) -> Result<Option<Duration>, Error> {
        let mut renewals = Pipeline::with_capacity(2);
        renewals.add_command(renewal);
        let answers = self.send(live, renewals, patience).await;
        if matches!(answers, Err(Error::Timeout)) {
            live.condemn();
        }
        let answer = answers?.into_iter().next().unwrap_or(Value::Okay).extract_error()?;
        Ok(reply::lease(answer).map_err(RedisError::from)?)
    }
}

/// What `WAIT` answers.
fn reached(answer: Option<Value>) -> Result<u32, Error> {
    let answer = answer.unwrap_or(Value::Nil).extract_error()?;
    Ok(redis::from_redis_value(answer).map_err(RedisError::from)?)
}

/// What it means that `WAIT` is refused. A server that is a replica by now refuses with words of its
/// own: then the renewals say that they came too late, or were still taken and have reached nobody.
fn if_deposed(live: &Live, answers: Vec<Value>, refused: Error, wanted: u32) -> Error {
    let renewals = answers.into_iter().filter_map(|answer| answer.extract_error().err());
    let read_only = renewals.map(Error::from).find(|error| error.code() == Some("READONLY"));
    match (read_only, refused) {
        (Some(read_only), _) => read_only,
        (None, Error::Server(error)) if error.code() == Some("ERR") => {
            live.condemn();
            Error::NotReplicated { confirmed: 0, wanted }
        }
        (None, refused) => refused,
    }
}

/// How many replicas `ROLE` tells of: those that follow a primary; a replica has none.
fn replicas_of(answer: Option<Value>) -> Result<u32, Error> {
    let Value::Array(role) = answer.unwrap_or(Value::Nil).extract_error()? else {
        return Err(Error::Protocol("ROLE is no list".to_owned()));
    };
    match role.get(2) {
        Some(Value::Array(replicas)) => Ok(u32::try_from(replicas.len()).unwrap_or(u32::MAX)),
        Some(_) | None => Ok(0),
    }
}
