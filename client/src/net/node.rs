//! One server, and the connections to it.

use crate::net::address::{At, shown};
use crate::net::connector::{Connector, Dialer};
use crate::net::link::Link;
use crate::net::live::{Live, PrimaryEpoch};
use crate::wire::error::Error;
use redis::ConnectionAddr;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A server that keeps locks: all of them, or in a cluster the locks of some slots.
#[derive(Debug)]
pub(crate) struct Node {
    dialer: Arc<Dialer>,
    commands: Link,
    /// Connection for renewals, if they do not share `commands`.
    renewals: Option<Link>,
    /// `true` after an error which is a sign that the slot map may be stale.
    troubled: AtomicBool,
    /// Largest number of replicas of the node that this client has seen.
    most_replicas: AtomicU32,
}

impl Node {
    pub(crate) fn new(connector: Connector, own_renewals: bool) -> Self {
        let dialer = Arc::new(Dialer::new(connector));
        Self {
            commands: Link::new(dialer.clone()),
            renewals: own_renewals.then(|| Link::new(dialer.clone())),
            dialer,
            troubled: AtomicBool::new(false),
            most_replicas: AtomicU32::new(0),
        }
    }

    /// Returns the connection for commands that do not block.
    pub(crate) fn commands(&self) -> &Link {
        &self.commands
    }

    /// Returns the connection for renewals.
    pub(crate) fn renewals(&self) -> &Link {
        self.renewals.as_ref().unwrap_or(&self.commands)
    }

    /// Opens a connection that only one session uses.
    pub(crate) async fn dial(&self) -> Result<Live, Error> {
        self.dialer.dial().await
    }

    /// Returns when another server has become the primary. Never returns without Sentinels.
    pub(crate) async fn switched(&self) {
        self.dialer.connector.switched().await;
    }

    /// Ends the epoch of a cluster node. Calls in flight at the node fail.
    pub(crate) fn depose(&self) {
        if let Connector::Node(_, primary_epoch) = &self.dialer.connector {
            PrimaryEpoch::end(primary_epoch);
        }
    }

    /// Returns whether this is a cluster node that has lost all slots.
    pub(crate) fn is_deposed(&self) -> bool {
        match &self.dialer.connector {
            Connector::Node(_, primary_epoch) => primary_epoch.is_over(),
            Connector::Standalone(_) | Connector::Sentinels(_) => false,
        }
    }

    /// Returns host and port of a cluster node; otherwise `None`.
    pub(crate) fn at(&self) -> Option<At> {
        match &self.dialer.connector {
            Connector::Node(server, _) => server.at(),
            Connector::Standalone(_) | Connector::Sentinels(_) => None,
        }
    }

    pub(crate) fn set_troubled(&self, troubled: bool) {
        self.troubled.store(troubled, Ordering::Relaxed);
    }

    /// Raises [`Self::most_replicas`] to this number of replicas, if it is larger.
    pub(crate) fn record_replicas(&self, replicas: u32) {
        self.most_replicas.fetch_max(replicas, Ordering::Relaxed);
    }

    pub(crate) fn most_replicas(&self) -> u32 {
        self.most_replicas.load(Ordering::Relaxed)
    }

    pub(crate) fn is_troubled(&self) -> bool {
        self.troubled.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at() {
            Some((host, port)) => f.write_str(&shown(&ConnectionAddr::Tcp(host, port))),
            None => f.write_str("the server"),
        }
    }
}
