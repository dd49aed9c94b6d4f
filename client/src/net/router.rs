//! Routes a command by its key.
//!
//! `MOVED` and `ASK` are followed here, at once and a limited number of times: they mean that the command had no
//! effect, so any command can be sent to the other node. All other errors, above all a lost answer, go to the
//! sender: only the sender knows the effect of a repetition.

use crate::net::address::{Address, Place};
use crate::net::cluster::Cluster;
use crate::net::connector::Connector;
use crate::net::link::{after, left};
use crate::net::live::Live;
use crate::net::node::Node;
use crate::net::transport::Transport;
use crate::wire::error::Error;
use redis::{Cmd, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

/// Largest number of redirects of a command. With more, the nodes of the cluster do not agree yet.
const HOPS: usize = 5;

/// Knows which server has a key.
#[derive(Debug)]
pub(crate) struct Router {
    to: To,
    /// An answer that takes this long will not come.
    reply_timeout: Duration,
}

#[derive(Debug)]
enum To {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

/// Where to go with a command.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) node: Arc<Node>,
    /// The node imports the key's slot, and serves commands after `ASKING`.
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
    ) -> Result<Self, Error> {
        let to = match address.0 {
            Place::Cluster(seeds) => {
                let cluster = Cluster::new(seeds, reply_timeout, transport, own_renewals)?;
                To::Cluster(Arc::new(cluster))
            }
            place @ (Place::Server(_) | Place::Sentinels { .. }) => {
                let connector = Connector::new(place, reply_timeout, transport)?;
                To::One(Arc::new(Node::new(connector, own_renewals)))
            }
        };
        Ok(Self { to, reply_timeout })
    }

    /// Where a command about this key is to go. That takes no longer than an answer may.
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

    /// Refreshes the slot map in the background, if it may be stale.
    pub(crate) fn seek(&self) {
        if let To::Cluster(cluster) = &self.to {
            cluster.look_soon();
        }
    }

    /// All servers that keep locks. That takes no longer than an answer may.
    pub(crate) async fn nodes(&self) -> Result<Vec<Arc<Node>>, Error> {
        match &self.to {
            To::One(node) => Ok(vec![node.clone()]),
            To::Cluster(cluster) => {
                timeout(self.reply_timeout, cluster.owners()).await.unwrap_or(Err(Error::Timeout))
            }
        }
    }

    /// The server, where it must be one.
    pub(crate) fn only(&self) -> Result<&Arc<Node>, Error> {
        match &self.to {
            To::One(node) => Ok(node),
            To::Cluster(_) => Err(Error::Config("a cluster is many servers".to_owned())),
        }
    }

    /// Learns from what went wrong at a node. If the command is to go elsewhere, where to.
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

    /// Sends a command about a key that does not block, and waits for its answer for that long; with
    /// the way there it takes no longer than the reply timeout.
    pub(crate) async fn call(
        &self,
        key: &[u8],
        cmd: &Cmd,
        patience: Duration,
    ) -> Result<Value, Error> {
        self.call_via(key, cmd, patience, |_| {}).await
    }

    /// The same, and says over which connection it is about to be sent: the last one said is the
    /// one that may have carried it out.
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
                Err(trouble) if self.goes_on(&mut route, &trouble) => {}
                answer => return answer.map_err(|trouble| self.explained(trouble)),
            }
        }
    }

    /// Learns from what went wrong there. If the server has sent us on, that is the route now.
    pub(crate) fn goes_on(&self, route: &mut Route, trouble: &Error) -> bool {
        let next = self.learn(&route.node, trouble).filter(|_| route.hops < HOPS);
        let hops = route.hops + 1;
        next.map(|next| *route = Route { hops, ..next }).is_some()
    }

    /// A node of a cluster that was taken for all there is.
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

    /// When what begins now will not be answered any more.
    pub(crate) fn overdue(&self) -> Instant {
        after(self.reply_timeout)
    }

    /// Awaits `what`, and refreshes the slot map at intervals until then. Calls in flight at a deposed node end.
    pub(crate) async fn looking<T>(&self, what: impl Future<Output = T>) -> T {
        let To::Cluster(cluster) = &self.to else { return what.await };
        tokio::select! {
            biased;
            done = what => done,
            never = cluster.keep_looking() => match never {},
        }
    }

    /// Returns when locks may have got lost because another server has taken over.
    pub(crate) async fn switched(&self) {
        match &self.to {
            To::One(node) => node.switched().await,
            To::Cluster(cluster) => cluster.switched().await,
        }
    }

    /// The runtime that some connection lives on.
    pub(crate) fn runtime(&self) -> Option<Handle> {
        match &self.to {
            To::One(node) => node.commands().runtime(),
            To::Cluster(cluster) => cluster.runtime(),
        }
    }
}
