//! One server at one address, and the connections to it.

use crate::net::address::At;
use crate::net::connection::Connection;
use crate::net::transport::Transport;
use crate::wire::error::Error;
use redis::aio::PubSub;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{Client, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, RedisError};
use std::fmt;
use std::time::Duration;
use tokio::time::timeout;

/// Address and login of a server, and the settings of connections to it.
pub(crate) struct Server {
    /// Address and login, without the database.
    client: Client,
    database: i64,
    patience: Duration,
    transport: Transport,
}

impl Server {
    pub(crate) fn new(
        info: ConnectionInfo,
        patience: Duration,
        transport: &Transport,
    ) -> Result<Self, Error> {
        #[cfg(feature = "tls-rustls")]
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. })
            && rustls::crypto::CryptoProvider::get_default().is_none()
        {
            // This fails if another task has installed a provider in between. Then that one is used.
            let _installed = rustls::crypto::ring::default_provider().install_default();
        }
        let tcp = info.tcp_settings().clone();
        let mut login = info.redis_settings().clone();
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            // Only with this protocol does redis-rs tell that a stream has ended: see `Connection::open`.
            login = login.set_protocol(ProtocolVersion::RESP3);
        }
        let database = login.db();
        let info = info.set_tcp_settings(with_defaults(tcp)).set_redis_settings(login.set_db(0));
        Ok(Self { client: Client::open(info)?, database, patience, transport: transport.clone() })
    }

    /// Returns host and port, or `None` for a Unix socket.
    pub(crate) fn at(&self) -> Option<At> {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), *port))
            }
            ConnectionAddr::Unix(_) | _ => None,
        }
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Error> {
        let connecting = async {
            let connection = Connection::open(&self.client, &self.transport).await?;
            self.select(&connection).await?;
            Ok(connection)
        };
        timeout(self.patience, connecting).await.map_err(|_| self.too_slow())?
    }

    /// Selects the database. redis-rs can do it with the login, but its error has no code, so a server that is
    /// busy for a moment could not be told from one without this database.
    async fn select(&self, connection: &Connection) -> Result<(), Error> {
        if self.database == 0 {
            return Ok(());
        }
        let select = redis::cmd("SELECT").arg(self.database).to_owned();
        let answer = connection.drive_while(connection.send(&select)).await?;
        match answer.extract_error().map_err(Error::from) {
            Err(Error::Server(error)) if error.code() == Some("ERR") => {
                let (database, said) = (self.database, error.detail().unwrap_or_default());
                Err(Error::Config(format!("the server refuses the database {database}: {said}")))
            }
            other => other.map(drop),
        }
    }

    /// Opens a connection for published messages.
    pub(crate) async fn listen(&self) -> Result<PubSub, Error> {
        let connecting = async {
            let info = self.client.get_connection_info();
            match self.transport.open(info).await? {
                Some(stream) => PubSub::new(info.redis_settings(), stream).await,
                None => self.client.get_async_pubsub().await,
            }
        };
        Ok(timeout(self.patience, connecting).await.map_err(|_| self.too_slow())??)
    }

    /// Returns the error for a connection that could not be opened in time. With TLS it gives a likely
    /// reason.
    pub(crate) fn too_slow(&self) -> Error {
        if !matches!(self.client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. }) {
            return Error::Timeout;
        }
        let detail = "none in time: a port without TLS does not answer".to_owned();
        Error::Connection(RedisError::from((ErrorKind::Io, "no TLS connection", detail)))
    }
}

impl fmt::Debug for Server {
    /// Writes the address without the login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.client.get_connection_info().addr();
        f.debug_struct("Server").field("at", at).finish_non_exhaustive()
    }
}

/// Sets `TCP_NODELAY`, and keepalive probes unless the caller has set some. Without probes, the loss of a
/// server may be noticed only when something is sent.
fn with_defaults(tcp: TcpSettings) -> TcpSettings {
    let tcp = tcp.set_nodelay(true);
    if tcp.keepalive().is_some() {
        return tcp;
    }
    let probes = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(4);
    tcp.set_keepalive(probes)
}
