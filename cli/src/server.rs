//! The address of the server, and connections to it.

use crate::arguments;
use crate::failure::Failure;
use kvlock::{Address, Builder, Client};

/// Address of a server, of a cluster, or of a primary behind Sentinels.
pub(crate) struct Server {
    address: Address,
    /// The address without the password, for messages.
    pub(crate) name: String,
}

impl Server {
    pub(crate) fn at(address: &arguments::Address) -> Result<Self, Failure> {
        // An invalid address may still contain a password, so no part of it is shown.
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

    /// Connects, and checks that the module is loaded in the server.
    pub(crate) async fn connect(&self, settings: Builder) -> Result<Client, Failure> {
        let connected = settings.connect(self.address.clone()).await;
        connected.map_err(|error| Failure::of(&self.name, &error))
    }

    /// Returns a client that connects when it is first used.
    pub(crate) fn connect_lazy(&self, settings: Builder) -> Result<Client, Failure> {
        let client = settings.connect_lazy(self.address.clone());
        client.map_err(|error| Failure::of(&self.name, &error))
    }
}
