//! Where connections come from: the seam at which topologies plug in. All that is above sees one
//! server that keeps the locks, whichever that is at the moment.

use crate::net::address::Place;
use crate::net::live::{Live, PrimaryEpoch};
use crate::net::sentinel::Sentinels;
use crate::net::server::Server;
use crate::wire::error::Error;
use redis::{ErrorKind, RedisError};
use std::sync::Arc;
use std::time::Duration;

/// Where connections come from.
#[derive(Debug)]
pub(crate) enum Connector {
    /// One server at one address.
    Standalone(Box<Server>),
    /// The primary that these know.
    Sentinels(Arc<Sentinels>),
    /// A node of a cluster, for as long as it has slots.
    Node(Box<Server>, Arc<PrimaryEpoch>),
}

impl Connector {
    pub(crate) fn new(place: Place, patience: Duration) -> Result<Self, Error> {
        Ok(match place {
            Place::Server(info) => Self::Standalone(Box::new(Server::new(info, patience)?)),
            Place::Sentinels { sentinels, name, server } => {
                Self::Sentinels(Arc::new(Sentinels::new(&sentinels, name, server, patience)?))
            }
            // Each of its nodes has one.
            Place::Cluster(_) => {
                return Err(Error::Config("a cluster is many servers".to_owned()));
            }
        })
    }

    /// A new connection, logged in and ready. It has no response timeout: callers have their own.
    pub(crate) async fn dial(&self) -> Result<Live, Error> {
        match self {
            Self::Standalone(server) => Ok(Live::new(server.connect().await?, None)),
            Self::Sentinels(sentinels) => sentinels.dial().await,
            Self::Node(server, primary_epoch) => tokio::select! {
                biased;
                () = primary_epoch.over() => Err(Error::Connection(RedisError::from((
                    ErrorKind::Io,
                    "the node has no slots any more",
                )))),
                connection = server.connect() => Ok(Live::of_node(connection?, primary_epoch.clone())),
            },
        }
    }

    /// Returns when another server has become the primary; never, where nobody would tell.
    pub(crate) async fn switched(&self) {
        match self {
            Self::Standalone(_) | Self::Node(..) => std::future::pending().await,
            Self::Sentinels(sentinels) => sentinels.switched().await,
        }
    }
}
