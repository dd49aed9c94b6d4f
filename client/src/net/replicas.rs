//! Renewals, and their acknowledgement by replicas.
//!
//! `WAIT` counts the replicas that have received all earlier writes of the same connection. It also delays
//! all later commands on that connection. If replicas are required, renewals therefore have a connection of
//! their own, and a batch of renewals shares a `WAIT`. A grant is confirmed by a renewal: a replica that has
//! received the renewal has received the grant too.
//!
//! If all replicas are required, `ROLE` asks the primary for their number right before this `WAIT`. The
//! largest number seen remains required: a lost replica may return and be promoted. The largest number is
//! recorded for each node, since the nodes of a cluster have replicas of their own.
//!
//! A replica that reconnects before the primary drops its old connection is listed twice in `ROLE`, and
//! `WAIT` may count it twice. Until the old entry disappears, one more acknowledgement is required.

use crate::net::live::Live;
use crate::net::node::Node;
use crate::net::router::{Route, Router};
use crate::wire::error::Error;
use crate::wire::reply;
use redis::{Cmd, Pipeline, Value};
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

/// If a renewal gets no answer for at least this long, its connection is replaced, provided that the server
/// accepts a new one. A renewal of a short lease gives up earlier, which says little about the connection.
pub(crate) const HANGS: Duration = Duration::from_millis(100);

/// Number of replicas that must acknowledge a grant or a renewal, and the time that they have for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replicas {
    pub(crate) at_least: u32,
    pub(crate) timeout: Duration,
    /// `true` if all replicas of the primary are required, even if they are more than `at_least`.
    pub(crate) all: bool,
}

/// Error of a renewal.
#[derive(Debug)]
pub(crate) struct NotRenewed {
    pub(crate) error: Error,
    /// `false` if the server has not executed the renewal, and will not. An error without an unknown outcome may be
    /// that of the `WAIT` after a renewal that was executed.
    pub(crate) may_be_executed: bool,
}

impl From<Error> for NotRenewed {
    fn from(error: Error) -> Self {
        let may_be_executed = error.leaves_outcome_unknown();
        Self { error, may_be_executed }
    }
}

/// Sends renewals to the servers, and waits for the replicas if they are required.
#[derive(Debug)]
pub(crate) struct Renewals {
    pub(crate) router: Arc<Router>,
    replicas: Option<Replicas>,
}

/// Route of a renewal, and an open connection for it.
#[derive(Debug)]
pub(crate) struct RenewalRoute {
    route: Route,
    live: Arc<Live>,
}

impl Renewals {
    pub(crate) fn new(router: Arc<Router>, replicas: Option<Replicas>) -> Self {
        Self { router, replicas }
    }

    /// Returns the route of a renewal for this key.
    pub(crate) async fn route_of(&self, key: &[u8]) -> Result<RenewalRoute, Error> {
        self.connect(self.router.route(key).await?).await
    }

    async fn connect(&self, route: Route) -> Result<RenewalRoute, Error> {
        match route.node.renewals().live_by(self.router.overdue()).await {
            Ok(live) => Ok(RenewalRoute { route, live }),
            Err(trouble) => {
                self.router.learn(&route.node, &trouble);
                Err(trouble)
            }
        }
    }

    /// Sends renewals to the node over this connection, and returns the answer to each. If replicas are
    /// required, waits for them with one or two `WAIT`, each for at most half of `patience`. If too few
    /// acknowledge, every renewal that the server has answered with a lease fails. The answer that a lock is
    /// not held needs no replicas.
    pub(crate) async fn send(
        &self,
        node: &Node,
        live: &Live,
        mut renewals: Pipeline,
        patience: Duration,
    ) -> Result<Vec<Result<Value, NotRenewed>>, Error> {
        let Some(Replicas { at_least, timeout, all }) = self.replicas else {
            return Ok(each(live.call_all(&renewals, patience).await?));
        };
        // With a timeout of 0, `WAIT` would wait without limit.
        let timeout = timeout.min(patience / 2).max(Duration::from_millis(1));
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let mut wanted = at_least;
        if all {
            wanted = wanted.max(node.most_replicas());
            renewals.cmd("ROLE");
        }
        renewals.cmd("WAIT").arg(wanted).arg(timeout_ms);
        let mut answers = live.call_all(&renewals, patience).await?;
        let confirmed = answers.pop();
        let role = if all { answers.pop() } else { None };
        let is_lease = |answer: &Value| matches!(answer, Value::Int(_));
        let verdict = async {
            // If nothing was renewed, replicas have nothing to acknowledge.
            if !answers.iter().any(is_lease) {
                return Ok(());
            }
            let deposed = |trouble, wanted| if_deposed(live, trouble, wanted);
            let mut confirmed = reached(confirmed).map_err(|trouble| deposed(trouble, wanted))?;
            if all {
                let (replicas, connections) = replicas_of(role)?;
                node.record_replicas(replicas);
                if connections > wanted {
                    // Replicas that have connected since are wanted, too.
                    wanted = connections;
                    let mut wait = Pipeline::with_capacity(1);
                    wait.cmd("WAIT").arg(wanted).arg(timeout_ms);
                    confirmed = reached(live.call_all(&wait, patience).await?.pop())
                        .map_err(|trouble| deposed(trouble, wanted))?;
                }
            }
            if confirmed < wanted {
                Err(Error::NotReplicated { confirmed, wanted })
            } else {
                Ok(())
            }
        };
        let verdict: Result<(), Error> = verdict.await;
        let counted = answers.into_iter().map(|answer| match &verdict {
            Err(short) if is_lease(&answer) => {
                Err(NotRenewed { error: short.clone(), may_be_executed: true })
            }
            Ok(()) | Err(_) => checked(answer),
        });
        Ok(counted.collect())
    }

    /// Sends one renewal, and follows redirects. Returns the lease that runs from then on, or `None` if the
    /// lock is not held.
    ///
    /// Before each attempt, calls `sending` with the number of the connection, and `true` if the previous
    /// attempt was redirected. A redirected attempt had no effect.
    pub(crate) async fn send_one(
        &self,
        mut to: RenewalRoute,
        renewal: &Cmd,
        patience: Duration,
        mut sending: impl FnMut(u64, bool),
    ) -> Result<Option<Duration>, NotRenewed> {
        let mut sent_on = false;
        loop {
            sending(to.live.number, sent_on);
            match self.send_that_way(&to, renewal, patience).await {
                Err(failed) if self.router.follow_redirect(&mut to.route, &failed.error) => {
                    to = self.connect(to.route).await?;
                    sent_on = true;
                }
                answer => return answer,
            }
        }
    }

    async fn send_that_way(
        &self,
        to: &RenewalRoute,
        renewal: &Cmd,
        patience: Duration,
    ) -> Result<Option<Duration>, NotRenewed> {
        let mut renewals = Pipeline::with_capacity(3);
        if to.route.asking {
            renewals.cmd("ASKING");
        }
        renewals.add_command(renewal.clone());
        let answers = self.send(&to.route.node, &to.live, renewals, patience).await;
        if matches!(answers, Err(Error::Timeout)) && patience >= HANGS {
            to.live.doubt();
        }
        let answer = answers?.pop().unwrap_or(Ok(Value::Okay))?;
        Ok(reply::read(answer).map_err(Error::from)?)
    }

    /// Sends a renewal along the route that a redirect has given.
    pub(crate) async fn send_on(
        &self,
        route: Route,
        renewal: &Cmd,
        patience: Duration,
        sending: impl FnMut(u64, bool),
    ) -> Result<Option<Duration>, NotRenewed> {
        self.send_one(self.connect(route).await?, renewal, patience, sending).await
    }
}

fn each(answers: Vec<Value>) -> Vec<Result<Value, NotRenewed>> {
    answers.into_iter().map(checked).collect()
}

fn checked(answer: Value) -> Result<Value, NotRenewed> {
    Ok(answer.extract_error().map_err(Error::from)?)
}

/// Reads the answer to `WAIT`: the number of replicas that acknowledge.
fn reached(answer: Option<Value>) -> Result<u32, Error> {
    let answer = answer.unwrap_or(Value::Nil).extract_error()?;
    Ok(redis::from_redis_value(answer)?)
}

/// Interprets the error of a `WAIT` after a renewal. The code `ERR` means that the server became a replica
/// after the renewal. Then no replica counts as having received the renewal.
fn if_deposed(live: &Live, refused: Error, wanted: u32) -> Error {
    let of_a_replica = matches!(&refused, Error::Server(error) if error.code() == Some("ERR"));
    if !of_a_replica {
        return refused;
    }
    live.condemn();
    Error::NotReplicated { confirmed: 0, wanted }
}

/// Reads the answer to `ROLE`: number of replicas, and number of their connections. Replicas are counted by
/// address, by which Sentinels know them too. Both numbers are 0 if the server is a replica.
fn replicas_of(answer: Option<Value>) -> Result<(u32, u32), Error> {
    let Value::Array(role) = answer.unwrap_or(Value::Nil).extract_error()? else {
        return Err(Error::Protocol("ROLE is no list".to_owned()));
    };
    let Some(Value::Array(connections)) = role.get(2) else { return Ok((0, 0)) };
    let mut replicas: Vec<&[Value]> = Vec::with_capacity(connections.len());
    for connection in connections {
        let parts = if let Value::Array(parts) = connection { parts } else { from_ref(connection) };
        let address = parts.get(..2).unwrap_or(parts);
        if !replicas.contains(&address) {
            replicas.push(address);
        }
    }
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Ok((count(replicas.len()), count(connections.len())))
}
