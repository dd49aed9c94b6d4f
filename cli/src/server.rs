//! Which server, and how to reach it.

use crate::arguments;
use crate::failure::Failure;
use kvlock::{Address, Builder, Client};

/// A server by its address.
pub(crate) struct Server {
    address: Address,
    /// Where it is; without the password.
    pub(crate) name: String,
}

impl Server {
    pub(crate) fn at(address: &arguments::Address) -> Result<Self, Failure> {
        // Whatever is wrong with the address, it may contain a password: nothing of it is shown.
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

    /// A client of it. Asks the server whether it knows locks.
    pub(crate) async fn connect(&self, settings: Builder) -> Result<Client, Failure> {
        let connected = settings.connect(self.address.clone()).await;
        connected.map_err(|error| Failure::of(&self.name, &error))
    }
}
