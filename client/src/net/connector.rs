//! Where connections come from: the seam at which topologies plug in. All that is above sees one
//! server that keeps the locks, whichever that is at the moment.

use crate::net::address::Place;
use crate::net::connection::Connection;
use crate::net::live::{Live, PrimaryEpoch};
use crate::net::pace::Pace;
use crate::net::sentinel::Sentinels;
use crate::net::server::Server;
use crate::net::transport::Transport;
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
    pub(crate) fn new(
        place: Place,
        patience: Duration,
        transport: &Transport,
    ) -> Result<Self, Error> {
        Ok(match place {
            Place::Server(info) => {
                Self::Standalone(Box::new(Server::new(info, patience, transport)?))
            }
            Place::Sentinels { sentinels, name, server } => Self::Sentinels(Arc::new(
                Sentinels::new(&sentinels, name, server, patience, transport)?,
            )),
            // Each of its nodes has one.
            Place::Cluster(_) => {
                return Err(Error::Config("a cluster is many servers".to_owned()));
            }
        })
    }

    /// Opens a connection, logged in and ready. It has no response timeout: callers have their own.
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

    /// The error of a server to which there is no connection in time.
    pub(crate) fn too_slow(&self) -> Error {
        match self {
            Self::Standalone(server) | Self::Node(server, _) => server.too_slow(),
            Self::Sentinels(_) => Error::Timeout,
        }
    }

    /// Returns when another server has become the primary; never, where nothing tells.
    pub(crate) async fn switched(&self) {
        match self {
            Self::Standalone(_) | Self::Node(..) => std::future::pending().await,
            Self::Sentinels(sentinels) => sentinels.switched().await,
        }
    }
}

/// Opens connections to one node: one attempt after the other, however many tasks need one.
#[derive(Debug)]
pub(crate) struct Dialer {
    pub(crate) connector: Connector,
    pace: Arc<Pace>,
}

impl Dialer {
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector, pace: Arc::default() }
    }

    /// Opens a connection. After an attempt of which nothing came this waits before the next one, unless
    /// another server becomes the primary.
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
