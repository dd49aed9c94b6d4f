//! One server at one address, and how to connect to it.

use crate::net::address::At;
use crate::net::connection::Connection;
use crate::wire::error::Error;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo};
use std::fmt;
use std::time::Duration;
use tokio::time::timeout;

/// Commands that may queue up on a connection before its callers have to wait.
const BUFFERED: usize = 1024;

/// A server, and how to log in to it.
pub(crate) struct Server {
    client: Client,
    patience: Duration,
}

impl Server {
    pub(crate) fn new(info: ConnectionInfo, patience: Duration) -> Result<Self, Error> {
        #[cfg(feature = "tls-rustls")]
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. })
            && rustls::crypto::CryptoProvider::get_default().is_none()
        {
            // Another task may be faster, and then it is there as well.
            let _installed = rustls::crypto::ring::default_provider().install_default();
        }
        let tcp = info.tcp_settings().clone();
        let info = info.set_tcp_settings(with_defaults(tcp));
        Ok(Self { client: Client::open(info)?, patience })
    }

    /// Its host and port, unless it is at a Unix socket.
    pub(crate) fn at(&self) -> Option<At> {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), *port))
            }
            ConnectionAddr::Unix(_) | _ => None,
        }
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Error> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(BUFFERED);
        let connecting = timeout(self.patience, Connection::open(&self.client, config));
        Ok(connecting.await.map_err(|_| Error::Timeout)??)
    }

    /// A connection for messages.
    pub(crate) async fn listen(&self) -> Result<redis::aio::PubSub, Error> {
        let connecting = self.client.get_async_pubsub();
        Ok(timeout(self.patience, connecting).await.map_err(|_| Error::Timeout)??)
    }
}

impl fmt::Debug for Server {
    /// Without the login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.client.get_connection_info().addr();
        f.debug_struct("Server").field("at", at).finish_non_exhaustive()
    }
}

/// The same kind of address at another place.
pub(crate) fn address(kind: &ConnectionAddr, (host, port): At) -> ConnectionAddr {
    if let ConnectionAddr::TcpTls { insecure, tls_params, .. } = kind.clone() {
        ConnectionAddr::TcpTls { host, port, insecure, tls_params }
    } else {
        ConnectionAddr::Tcp(host, port)
    }
}

/// Probes, since a wait may be silent for days and its server gone meanwhile. What the caller has set
/// stays.
fn with_defaults(tcp: TcpSettings) -> TcpSettings {
    if tcp.keepalive().is_some() {
        return tcp;
    }
    let probes = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(4);
    tcp.set_keepalive(probes)
}
