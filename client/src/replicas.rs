//! Renewals, and how many replicas must have them before they count.
//!
//! `WAIT` counts the replicas that have received everything that the same connection has written,
//! and holds up whatever follows it there. So where it is wanted, renewals have a connection of
//! their own, and there is one `WAIT` for all that are sent together. A grant is confirmed by a
//! renewal: what has received that has received the grant before it.

use crate::error::Error;
use crate::link::{Link, Live};
use crate::reply;
use redis::{Cmd, Pipeline, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;

/// How many replicas must have a grant or a renewal, and how long that may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replicas {
    pub(crate) at_least: u32,
    pub(crate) timeout: Duration,
}

/// The way of renewals to the server.
#[derive(Debug)]
pub(crate) struct Renewals {
    pub(crate) link: Arc<Link>,
    pub(crate) replicas: Option<Replicas>,
}

impl Renewals {
    /// Sends renewals over that connection of the link, and waits for the answers that long, and
    /// for the replicas not longer. With too few of them none of the renewals counts.
    pub(crate) async fn send(
        &self,
        live: &Live,
        mut renewals: Pipeline,
        patience: Duration,
    ) -> Result<Vec<Value>, Error> {
        let Some(Replicas { at_least, timeout }) = self.replicas else {
            return live.call_all(&renewals, patience).await;
        };
        // A timeout of zero would be none at all.
        let timeout = timeout.min(patience / 2).max(Duration::from_millis(1));
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        renewals.cmd("WAIT").arg(at_least).arg(timeout_ms);
        let mut answers = live.call_all(&renewals, patience).await?;
        let confirmed = answers.pop().unwrap_or(Value::Nil).extract_error()?;
        let confirmed: u32 = redis::from_redis_value(confirmed).map_err(RedisError::from)?;
        if confirmed < at_least {
            return Err(Error::NotReplicated { confirmed, wanted: at_least });
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
