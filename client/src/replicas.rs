//! Renewals, and how many replicas must have them before they count.
//!
//! `WAIT` counts the replicas that have received everything that the same connection has written,
//! and holds up whatever follows it there. So where it is wanted, renewals have a connection of
//! their own, and there is one `WAIT` for all that are sent together. A grant is confirmed by a
//! renewal: what has received that has received the grant before it.

use crate::error::Error;
use crate::link::Live;
use crate::reply;
use crate::router::{HOPS, Route, Router};
use redis::{Cmd, Pipeline, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;

/// How many replicas must have a grant or a renewal, and how long that may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replicas {
    pub(crate) at_least: u32,
    pub(crate) timeout: Duration,
}

/// The way of renewals to the servers.
#[derive(Debug)]
pub(crate) struct Renewals {
    pub(crate) router: Arc<Router>,
    pub(crate) replicas: Option<Replicas>,
}

/// Where a renewal goes, over a connection that is there.
#[derive(Debug)]
pub(crate) struct Way {
    route: Route,
    live: Arc<Live>,
}

impl Renewals {
    /// Where one about this key is to go.
    pub(crate) async fn way(&self, key: &[u8]) -> Result<Way, Error> {
        self.connect(self.router.route(key).await?).await
    }

    async fn connect(&self, route: Route) -> Result<Way, Error> {
        match route.node.renewals().live().await {
            Ok(live) => Ok(Way { route, live }),
            Err(trouble) => {
                self.router.learn(&route.node, &trouble);
                Err(trouble)
            }
        }
    }

    /// Sends renewals over that connection for them, and waits for the answers that long, and for
    /// the replicas not longer. With too few of them none of the renewals counts.
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
        let confirmed = answers.pop().unwrap_or(Value::Nil);
        // Nothing was renewed: there is nothing for replicas to confirm.
        if answers.iter().all(|answer| matches!(answer, Value::ServerError(_) | Value::Okay)) {
            return Ok(answers);
        }
        let confirmed = confirmed.extract_error()?;
        let confirmed: u32 = redis::from_redis_value(confirmed).map_err(RedisError::from)?;
        if confirmed < at_least {
            return Err(Error::NotReplicated { confirmed, wanted: at_least });
        }
        Ok(answers)
    }

    /// Sends one renewal, and follows the lock if it is elsewhere: the lease that runs now, `None`
    /// if the lock is not held.
    pub(crate) async fn send_one(
        &self,
        mut way: Way,
        renewal: &Cmd,
        patience: Duration,
    ) -> Result<Option<Duration>, Error> {
        let mut hops = 0;
        loop {
            let answer = self.send_that_way(&way, renewal, patience).await;
            let Err(trouble) = answer else { return answer };
            match self.router.learn(&way.route.node, &trouble) {
                Some(next) if hops < HOPS => way = self.connect(next).await?,
                _ => return Err(trouble),
            }
            hops += 1;
        }
    }

    async fn send_that_way(
        &self,
        way: &Way,
        renewal: &Cmd,
        patience: Duration,
    ) -> Result<Option<Duration>, Error> {
        let mut renewals = Pipeline::with_capacity(3);
        if way.route.asking {
            renewals.cmd("ASKING");
        }
        renewals.add_command(renewal.clone());
        let answers = self.send(&way.live, renewals, patience).await;
        if matches!(answers, Err(Error::Timeout)) {
            way.live.condemn();
        }
        let answer = answers?.pop().unwrap_or(Value::Okay).extract_error()?;
        Ok(reply::lease(answer).map_err(RedisError::from)?)
    }

    /// Sends one that a node has sent on there.
    pub(crate) async fn send_on(
        &self,
        route: Route,
        renewal: &Cmd,
        patience: Duration,
    ) -> Result<Option<Duration>, Error> {
        self.send_one(self.connect(route).await?, renewal, patience).await
    }
}
