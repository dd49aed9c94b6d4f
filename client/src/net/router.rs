//! Routes a command by its key.
//!
//! The router follows the redirects `MOVED` and `ASK` at once, a limited number of times. A redirect means
//! that the command had no effect, so any command can be sent to the other node. All other errors are
//! returned to the sender, above all the loss of an answer: only the sender knows the effect of a repetition.

use crate::net::address::{Address, Place};
use crate::net::cluster::Cluster;
use crate::net::connector::Connector;
use crate::net::deadline::{after, left};
use crate::net::live::Live;
use crate::net::node::Node;
use crate::net::runtimes::Runtimes;
use crate::net::transport::Transport;
use crate::wire::error::Error;
use redis::{Cmd, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Largest number of redirects of a command. If there are more, the nodes of the cluster do not agree yet.
const HOPS: usize = 5;

/// Finds the node of a key, and sends commands there.
#[derive(Debug)]
pub(crate) struct Router {
    to: To,
    /// Time after which an answer is no longer expected.
    reply_timeout: Duration,
}

#[derive(Debug)]
enum To {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

/// Destination of a command.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) node: Arc<Node>,
    /// `true` if the node imports the key's slot: it serves the command only after `ASKING`.
    pub(crate) asking: bool,
    /// Number of redirects so far.
    hops: usize,
}

impl Route {
    fn to(node: Arc<Node>) -> Self {
        Self { node, asking: false, hops: 0 }
    }
}

impl Router {
    pub(crate) fn new(
        address: Address,
        reply_timeout: Duration,
        transport: &Transport,
        own_renewals: bool,
        runtimes: &Arc<Runtimes>,
    ) -> Result<Self, Error> {
        let to = match address.0 {
            Place::Cluster(seeds) => {
                let cluster = Cluster::new(seeds, reply_timeout, transport, own_renewals)?;
                To::Cluster(Arc::new(cluster))
            }
            place @ (Place::Server(_) | Place::Sentinels { .. }) => {
                let connector = Connector::new(place, reply_timeout, transport, runtimes)?;
                To::One(Arc::new(Node::new(connector, own_renewals)))
            }
        };
        Ok(Self { to, reply_timeout })
    }

    /// Returns the destination of a command for this key. Takes at most the reply timeout.
    pub(crate) async fn route(&self, key: &[u8]) -> Result<Route, Error> {
        match &self.to {
            To::One(node) => Ok(Route::to(node.clone())),
            To::Cluster(cluster) => {
                let found = timeout(self.reply_timeout, cluster.find(key)).await;
                found.map_err(|_| Error::Timeout)?.map(Route::to)
            }
        }
    }

    /// Returns the node of the key in the current slot map. Asks no server.
    pub(crate) fn believed(&self, key: &[u8]) -> Option<Arc<Node>> {
        match &self.to {
            To::One(node) => Some(node.clone()),
            To::Cluster(cluster) => cluster.owner_of(key),
        }
    }

    /// Returns the slot of the key, 0 outside of a cluster.
    pub(crate) fn slot(&self, key: &[u8]) -> u16 {
        match &self.to {
            To::One(_) => 0,
            To::Cluster(cluster) => cluster.slot(key),
        }
    }

    /// Starts a refresh of the slot map in the background, unless one is running. Does nothing outside a
    /// cluster.
    pub(crate) fn seek(&self) {
        if let To::Cluster(cluster) = &self.to {
            cluster.look_soon();
        }
    }

    /// Returns all nodes that serve slots, or the only node. Takes at most the reply timeout.
    pub(crate) async fn nodes(&self) -> Result<Vec<Arc<Node>>, Error> {
        match &self.to {
            To::One(node) => Ok(vec![node.clone()]),
            To::Cluster(cluster) => {
                timeout(self.reply_timeout, cluster.owners()).await.unwrap_or(Err(Error::Timeout))
            }
        }
    }

    /// Returns the only node, or an error if the address is of a cluster.
    pub(crate) fn only(&self) -> Result<&Arc<Node>, Error> {
        match &self.to {
            To::One(node) => Ok(node),
            To::Cluster(_) => Err(Error::Config(
                "this needs a single server, and the address is of a cluster".to_owned(),
            )),
        }
    }

    /// Starts a refresh of the slot map if the error of a node is a sign that the map may be stale. If the
    /// error is a redirect, returns the new destination. Outside a cluster it does nothing.
    pub(crate) fn learn(&self, node: &Arc<Node>, trouble: &Error) -> Option<Route> {
        let To::Cluster(cluster) = &self.to else { return None };
        let Error::Server(error) = trouble else {
            if trouble.leaves_outcome_unknown() && !matches!(trouble, Error::Protocol(_)) {
                cluster.troubled(node);
            }
            return None;
        };
        let doubt = ["CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING", "UNBLOCKED"];
        if error.code().is_some_and(|code| doubt.contains(&code)) {
            cluster.troubled(node);
        }
        let (there, asking) = cluster.redirected(node, error)?;
        Some(Route { asking, ..Route::to(there) })
    }

    /// Sends a non-blocking command to the node of its key, and returns the answer. Each node has `patience`
    /// for its answer; with connecting and redirects, the call takes at most the reply timeout.
    pub(crate) async fn call(
        &self,
        key: &[u8],
        cmd: &Cmd,
        patience: Duration,
    ) -> Result<Value, Error> {
        self.call_via(key, cmd, patience, |_| {}).await
    }

    /// Sends a command, as [`call`](Self::call) does. Before each attempt, calls `via` with the connection of
    /// the attempt. Only the last attempt can have had an effect.
    pub(crate) async fn call_via(
        &self,
        key: &[u8],
        cmd: &Cmd,
        patience: Duration,
        mut via: impl FnMut(&Arc<Live>),
    ) -> Result<Value, Error> {
        let end = self.overdue();
        let mut route = self.route(key).await?;
        loop {
            match self.call_at(&route, cmd, patience, end, &mut via).await {
                Err(trouble) if self.follow_redirect(&mut route, &trouble) => {}
                answer => return answer.map_err(|trouble| self.explained(trouble)),
            }
        }
    }

    /// Handles an error, as [`learn`](Self::learn) does. If the error is a redirect and the limit of
    /// redirects is not reached, replaces the route and returns `true`.
    pub(crate) fn follow_redirect(&self, route: &mut Route, trouble: &Error) -> bool {
        let next = self.learn(&route.node, trouble).filter(|_| route.hops < HOPS);
        let hops = route.hops + 1;
        next.map(|next| *route = Route { hops, ..next }).is_some()
    }

    /// Returns the error, or one that says what to do if it is a `MOVED` and the address is not of a cluster.
    fn explained(&self, trouble: Error) -> Error {
        if matches!(self.to, To::One(_)) && trouble.code() == Some("MOVED") {
            return Error::Config(
                "the server is a node of a cluster, whose address begins with redis-cluster:// \
                 or rediss-cluster://"
                    .to_owned(),
            );
        }
        trouble
    }

    async fn call_at(
        &self,
        route: &Route,
        cmd: &Cmd,
        patience: Duration,
        end: Instant,
        via: &mut impl FnMut(&Arc<Live>),
    ) -> Result<Value, Error> {
        let live = route.node.commands().live_by(end).await?;
        via(&live);
        let had = patience.min(left(end));
        let answer = live.call(cmd, route.asking, had).await;
        // A shorter patience says little about the connection.
        let enough = patience >= self.reply_timeout && had >= patience / 2;
        if matches!(answer, Err(Error::Timeout)) && enough {
            live.condemn();
        }
        answer
    }

    /// Returns the deadline for the answer to a call that begins at this moment.
    pub(crate) fn overdue(&self) -> Instant {
        after(self.reply_timeout)
    }

    /// Awaits `what`, and refreshes the slot map at intervals until then, so that calls at a deposed node
    /// end.
    pub(crate) async fn looking<T>(&self, what: impl Future<Output = T>) -> T {
        let To::Cluster(cluster) = &self.to else { return what.await };
        tokio::select! {
            biased;
            done = what => done,
            never = cluster.keep_looking() => match never {},
        }
    }

    /// Returns when another server has taken over, so that locks may be lost.
    pub(crate) async fn switched(&self) {
        match &self.to {
            To::One(node) => node.switched().await,
            To::Cluster(cluster) => cluster.switched().await,
        }
    }
}
