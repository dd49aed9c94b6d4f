//! Connections, and where they come from.
//!
//! Nothing here repeats a command: whoever sent it decides, since only it knows what a repetition
//! does.

use crate::error::Error;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisResult, Value};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Commands that may queue up on a connection before its callers have to wait.
const BUFFERED: usize = 1024;

/// Where connections come from: the seam at which topologies plug in. All that is above sees one
/// server that keeps the lock, whichever that is at the moment.
#[derive(Debug)]
pub(crate) enum Connector {
    /// One server at one address.
    Standalone(Standalone),
}

impl Connector {
    pub(crate) fn standalone(client: &redis::Client, patience: Duration) -> Result<Self, Error> {
        let info = client.get_connection_info().clone();
        #[cfg(feature = "tls-rustls")]
        if matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. })
            && rustls::crypto::CryptoProvider::get_default().is_none()
        {
            // Another task may be faster, and then it is there as well.
            let _installed = rustls::crypto::ring::default_provider().install_default();
        }
        let tcp = info.tcp_settings().clone();
        let info = info.set_tcp_settings(with_defaults(tcp));
        Ok(Self::Standalone(Standalone { client: redis::Client::open(info)?, patience }))
    }

    /// A new connection, logged in and ready. It has no response timeout: callers have their own.
    pub(crate) async fn dial(&self) -> Result<Live, Error> {
        let Self::Standalone(server) = self;
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(Some(server.patience))
            .set_pipeline_buffer_size(BUFFERED);
        let connection =
            server.client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Live { connection, broken: AtomicBool::new(false), runtime: Handle::current() })
    }
}

pub(crate) struct Standalone {
    client: redis::Client,
    patience: Duration,
}

impl fmt::Debug for Standalone {
    /// Without the address: it may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standalone").finish_non_exhaustive()
    }
}

/// No delay, since requests are small; and probes, since a wait may be silent for days and its
/// server gone meanwhile. What the caller has set stays.
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

/// A connection that was there when last looked at.
pub(crate) struct Live {
    connection: MultiplexedConnection,
    broken: AtomicBool,
    /// The runtime that drives it; when that has ended, so has the connection.
    pub(crate) runtime: Handle,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("broken", &self.broken).finish_non_exhaustive()
    }
}

impl Live {
    /// Sends a command and waits for its answer for that long.
    ///
    /// Dropped before it is done, the command may or may not have been sent; what is sent on the
    /// same connection afterwards is carried out after it.
    pub(crate) async fn call(&self, cmd: &Cmd, patience: Duration) -> Result<Value, Error> {
        match timeout(patience, self.call_unlimited(cmd)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Timeout),
        }
    }

    /// [`call`](Self::call) without a limit: for waits, which the server ends.
    pub(crate) async fn call_unlimited(&self, cmd: &Cmd) -> Result<Value, Error> {
        let answer = self.connection.clone().send_packed_command(cmd).await;
        self.seen(answer)?.extract_error().map_err(Error::from)
    }

    /// Sends many commands at once; errors of the server are among the answers.
    pub(crate) async fn call_all(
        &self,
        commands: &Pipeline,
        patience: Duration,
    ) -> Result<Vec<Value>, Error> {
        let mut connection = self.connection.clone();
        let answers = connection.send_packed_commands(commands, 0, commands.len());
        match timeout(patience, answers).await {
            Ok(answers) => self.seen(answers),
            Err(_) => Err(Error::Timeout),
        }
    }

    /// Nobody is to send anything new over this connection.
    pub(crate) fn condemn(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    fn seen<T>(&self, outcome: RedisResult<T>) -> Result<T, Error> {
        outcome.map_err(|error| {
            self.condemn();
            Error::from(error)
        })
    }
}

/// The connection for commands that are answered at once. It is made again when it broke.
#[derive(Debug)]
pub(crate) struct Link {
    connector: Arc<Connector>,
    current: Mutex<Option<Arc<Live>>>,
    /// One at a time.
    dialling: tokio::sync::Mutex<()>,
}

impl Link {
    pub(crate) fn new(connector: Arc<Connector>) -> Self {
        Self { connector, current: Mutex::default(), dialling: tokio::sync::Mutex::default() }
    }

    /// The connection as it is, or a new one.
    pub(crate) async fn live(&self) -> Result<Arc<Live>, Error> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let _turn = self.dialling.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let live = Arc::new(self.connector.dial().await?);
        tracing::debug!("connected");
        *self.last() = Some(live.clone());
        Ok(live)
    }

    /// Sends over the connection as it is or a new one.
    pub(crate) async fn call(&self, cmd: &Cmd, patience: Duration) -> Result<Value, Error> {
        let live = self.live().await?;
        let answer = live.call(cmd, patience).await;
        if matches!(answer, Err(Error::Timeout)) {
            live.condemn();
        }
        answer
    }

    /// The runtime that the last connection lives on.
    pub(crate) fn runtime(&self) -> Option<Handle> {
        self.last().as_ref().map(|live| live.runtime.clone())
    }

    fn current(&self) -> Option<Arc<Live>> {
        self.last().as_ref().filter(|live| !live.is_broken()).cloned()
    }

    fn last(&self) -> MutexGuard<'_, Option<Arc<Live>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
