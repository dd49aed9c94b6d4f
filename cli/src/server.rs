//! Which server, and how to reach it.

use crate::arguments::Address;
use crate::failure::Failure;
use kvlock::{Builder, Client, Error};
use redis::aio::MultiplexedConnection;
use std::time::Duration;

/// As long as the client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server by its address.
pub(crate) struct Server {
    redis: redis::Client,
    /// Host and port, or a path; without the password.
    pub(crate) name: String,
}

impl Server {
    pub(crate) fn at(address: &Address) -> Result<Self, Failure> {
        // Whatever is wrong with the address, it may contain a password: nothing of it is shown.
        let redis = redis::Client::open(address.url.as_str()).map_err(|_| {
            Failure::usage(
                "the URL is none of redis://[user:password@]host[:port][/db], rediss://… or \
                 unix:///path"
                    .to_owned(),
            )
        })?;
        let name = redis.get_connection_info().addr().to_string();
        Ok(Self { redis, name })
    }

    /// A client that acquires and keeps locks. Asks the server whether it knows them.
    pub(crate) async fn connect(&self, settings: Builder) -> Result<Client, Failure> {
        let info = self.redis.get_connection_info().clone();
        settings.connect(info).await.map_err(|error| self.trouble(&error))
    }

    /// A connection for commands of which the client has no form of its own.
    pub(crate) async fn open(&self) -> Result<MultiplexedConnection, Failure> {
        self.connect(Client::builder()).await?;
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(Some(PATIENCE))
            .set_connection_timeout(Some(PATIENCE));
        let opened = self.redis.get_multiplexed_async_connection_with_config(&config).await;
        opened.map_err(|error| self.trouble(&Error::from(error)))
    }

    fn trouble(&self, error: &Error) -> Failure {
        Failure::of(&self.name, error)
    }
}
