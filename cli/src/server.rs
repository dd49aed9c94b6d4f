//! The address of the server, and clients of it.

use crate::arguments;
use crate::failure::Failure;
use kvlock::{Address, Builder, Client};

/// A server, or a cluster or a primary behind Sentinels, by its address.
pub(crate) struct Server {
    address: Address,
    /// The address without the password, for messages.
    pub(crate) name: String,
}

impl Server {
    pub(crate) fn at(address: &arguments::Address) -> Result<Self, Failure> {
        // An address that cannot be read may still contain a password, so no part of it is shown.
        let address = Address::try_from(address.url.as_str()).map_err(|_| {
            Failure::usage(
                "the URL is none of redis://[user:password@]host[:port][/db], rediss://…, \
                 unix:///path, redis-sentinel://[user:password@]host[:port],…[/db]\
                 ?sentinelServiceName=name or redis-cluster://[user:password@]host[:port],…"
                    .to_owned(),
            )
        })?;
        let name = address.to_string();
        Ok(Self { address, name })
    }

    /// Connects, and checks that the server knows locks.
    pub(crate) async fn connect(&self, settings: Builder) -> Result<Client, Failure> {
        let connected = settings.connect(self.address.clone()).await;
        connected.map_err(|error| Failure::of(&self.name, &error))
    }

    /// A client that connects when it is used.
    pub(crate) fn connect_lazy(&self, settings: Builder) -> Result<Client, Failure> {
        let client = settings.connect_lazy(self.address.clone());
        client.map_err(|error| Failure::of(&self.name, &error))
    }
}
