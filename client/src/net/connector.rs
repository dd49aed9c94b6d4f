//! Connectors: one kind for each topology. To the layers above, a connector is one server. With Sentinels,
//! another server can take its place at any time.

use crate::net::address::Place;
use crate::net::connection::Connection;
use crate::net::live::{Live, PrimaryEpoch};
use crate::net::pace::Pace;
use crate::net::runtimes::Runtimes;
use crate::net::sentinel::Sentinels;
use crate::net::server::Server;
use crate::net::transport::Transport;
use crate::wire::error::Error;
use redis::{ErrorKind, RedisError};
use std::sync::Arc;
use std::time::Duration;

/// Opens connections to one server, or to the primary that Sentinels monitor.
#[derive(Debug)]
pub(crate) enum Connector {
    /// One server at one address.
    Standalone(Box<Server>),
    /// The primary that these Sentinels monitor.
    Sentinels(Arc<Sentinels>),
    /// A node of a cluster. Its epoch ends when it has lost all slots.
    Node(Box<Server>, Arc<PrimaryEpoch>),
}

impl Connector {
    pub(crate) fn new(
        place: Place,
        patience: Duration,
        transport: &Transport,
        runtimes: &Arc<Runtimes>,
    ) -> Result<Self, Error> {
        Ok(match place {
            Place::Server(info) => {
                Self::Standalone(Box::new(Server::new(info, patience, transport)?))
            }
            Place::Sentinels { sentinels, name, server } => Self::Sentinels(Arc::new(
                Sentinels::new(&sentinels, name, server, patience, transport, runtimes)?,
            )),
            // Each node of a cluster has a connector of its own.
            Place::Cluster(_) => {
                return Err(Error::Config(
                    "this needs a single server, and the address is of a cluster".to_owned(),
                ));
            }
        })
    }

    /// Opens a connection and logs in. The connection has no response timeout: callers have their own.
    async fn dial(&self) -> Result<(Connection, Option<Arc<PrimaryEpoch>>), Error> {
        match self {
            Self::Standalone(server) => Ok((server.connect().await?, None)),
            Self::Sentinels(sentinels) => {
                let (connection, primary_epoch) = sentinels.dial().await?;
                Ok((connection, Some(primary_epoch)))
            }
            Self::Node(server, primary_epoch) => tokio::select! {
                biased;
                () = primary_epoch.over() => Err(Error::Connection(RedisError::from((
                    ErrorKind::Io,
                    "the node has no slots any more",
                )))),
                connection = server.connect() => Ok((connection?, Some(primary_epoch.clone()))),
            },
        }
    }

    /// Returns the error for a connection that could not be opened in time.
    pub(crate) fn too_slow(&self) -> Error {
        match self {
            Self::Standalone(server) | Self::Node(server, _) => server.too_slow(),
            Self::Sentinels(_) => Error::Timeout,
        }
    }

    /// Returns when another server has become the primary. Never returns without Sentinels.
    pub(crate) async fn switched(&self) {
        match self {
            Self::Standalone(_) | Self::Node(..) => std::future::pending().await,
            Self::Sentinels(sentinels) => sentinels.switched().await,
        }
    }
}

/// Opens connections to one node. All tasks that need a connection share the backoff between attempts.
#[derive(Debug)]
pub(crate) struct Dialer {
    pub(crate) connector: Connector,
    pace: Arc<Pace>,
}

impl Dialer {
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector, pace: Arc::default() }
    }

    /// Opens a connection. Waits for the backoff first. The wait ends early if another server becomes the
    /// primary.
    pub(crate) async fn dial(&self) -> Result<Live, Error> {
        tokio::select! {
            biased;
            () = self.pace.turn() => {}
            () = self.connector.switched() => {}
        }
        let (connection, primary_epoch) = self.connector.dial().await?;
        let clustered = matches!(self.connector, Connector::Node(..));
        Ok(Live::new(connection, primary_epoch, clustered, self.pace.clone()))
    }
}
