//! Streams to servers, and the application's settings for them.

use crate::net::race::first_ok;
#[cfg(feature = "simulation")]
use crate::net::simulated;
use redis::io::AsyncDNSResolver;
use redis::io::tcp::{TcpSettings, socket2::SockRef};
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisFuture, RedisResult};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

/// Number of calls that can be queued on a connection before further callers have to wait. A pipeline is one
/// call.
const BUFFERED: usize = 1024;

type Addresses<'a> = Box<dyn Iterator<Item = SocketAddr> + Send + 'a>;

/// A stream that carries the protocol of Redis.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens streams, with a resolver of host names and the connection settings of redis-rs.
#[derive(Clone)]
pub(crate) struct Transport {
    resolver: Resolver,
    config: AsyncConnectionConfig,
}

impl Default for Transport {
    fn default() -> Self {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(BUFFERED);
        Self { resolver: Resolver(Arc::new(System)), config }
    }
}

impl Transport {
    pub(crate) fn set_dns_resolver(&mut self, resolver: impl AsyncDNSResolver) {
        self.resolver = Resolver(Arc::new(resolver));
        self.config = self.config.clone().set_dns_resolver(self.resolver.clone());
    }

    #[cfg(feature = "token-based-authentication")]
    pub(crate) fn set_credentials_provider(
        &mut self,
        provider: impl redis::StreamingCredentialsProvider + 'static,
    ) {
        self.config = self.config.clone().set_credentials_provider(provider);
    }

    /// Returns a copy without the credentials provider: Sentinels have a login of their own.
    pub(crate) fn for_sentinels(&self) -> Self {
        let resolver = self.resolver.clone();
        let config = Self::default().config.set_dns_resolver(resolver.clone());
        Self { resolver, config }
    }

    /// Returns the settings of a connection. They have no time limits, since callers have their own.
    pub(crate) fn config(&self) -> AsyncConnectionConfig {
        self.config.clone()
    }

    /// Opens a stream without TLS. Returns `None` for an address with TLS, which redis-rs opens.
    pub(crate) async fn open(&self, info: &ConnectionInfo) -> RedisResult<Option<Box<dyn Stream>>> {
        match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                #[cfg(feature = "simulation")]
                if let Some(stream) = simulated::dial(host) {
                    return Ok(Some(Box::new(stream?)));
                }
                Ok(Some(Box::new(self.open_tcp(host, *port, info.tcp_settings()).await?)))
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Ok(Some(Box::new(UnixStream::connect(path).await?))),
            _ => Ok(None),
        }
    }

    /// Connects to the addresses of the host, staggered, and returns the first stream that is established.
    async fn open_tcp(
        &self,
        host: &str,
        port: u16,
        settings: &TcpSettings,
    ) -> RedisResult<TcpStream> {
        let addresses = self.resolver.0.resolve(host, port).await?;
        let stream = first_ok(addresses.map(TcpStream::connect)).await;
        let unknown = || Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
        let stream = stream.unwrap_or_else(unknown)?;
        set(&stream, settings)?;
        Ok(stream)
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Sets `TCP_NODELAY` and the options that the caller has set. Without `TCP_NODELAY`, a command may wait for
/// the acknowledgement of the previous one.
fn set(stream: &TcpStream, settings: &TcpSettings) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(())
}

/// A resolver that several connections share.
#[derive(Clone)]
struct Resolver(Arc<dyn AsyncDNSResolver>);

impl AsyncDNSResolver for Resolver {
    fn resolve<'a, 'b: 'a>(&'a self, host: &'b str, port: u16) -> RedisFuture<'a, Addresses<'a>> {
        self.0.resolve(host, port)
    }
}

/// The resolver of the system.
struct System;

impl AsyncDNSResolver for System {
    fn resolve<'a, 'b: 'a>(&'a self, host: &'b str, port: u16) -> RedisFuture<'a, Addresses<'a>> {
        Box::pin(async move {
            let addresses: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
            Ok(Box::new(addresses.into_iter()) as Addresses<'a>)
        })
    }
}
