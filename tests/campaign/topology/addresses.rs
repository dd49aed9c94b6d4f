//! A host with two addresses, of which the first one never answers.

use kvlock::redis::RedisFuture;
use kvlock::redis::io::AsyncDNSResolver;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Timeout of a connection: longer than connecting takes on one machine.
const CONNECT: Duration = Duration::from_millis(300);

/// Resolves every name to these addresses, for every port.
pub(super) struct Addresses(pub(super) [SocketAddr; 2]);

impl AsyncDNSResolver for Addresses {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _host: &'b str,
        _port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        let addresses = self.0;
        Box::pin(async move { Ok(Box::new(addresses.into_iter()) as Box<_>) })
    }
}

/// An address where connections are neither accepted nor refused.
pub(super) struct Dead {
    pub(super) address: SocketAddr,
    _listener: TcpListener,
    /// Connections that fill the queue of a listener that accepts none.
    _queued: Vec<TcpStream>,
}

impl Dead {
    pub(super) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let connect = || TcpStream::connect_timeout(&address, CONNECT).ok();
        let queued = std::iter::from_fn(connect).collect();
        Self { address, _listener: listener, _queued: queued }
    }
}
