//! Placeholders for Sentinels and clusters in a build without these features: types without values.

use crate::net::connection::Connection;
use crate::net::live::PrimaryEpoch;
use crate::net::node::Node;
use crate::net::runtimes::Runtimes;
use crate::net::transport::Transport;
use crate::wire::error::Error;
use redis::{ConnectionInfo, RedisError};
use std::convert::Infallible;
use std::future::Ready;
use std::sync::Arc;
use std::time::Duration;

macro_rules! absent {
    ($($of:ident { $($method:ident($($argument:ty),*) -> $answer:ty;)* })*) => { $(
        #[derive(Debug)]
        pub(crate) enum $of {}

        impl $of { $(
            pub(crate) fn $method(&self, $(_: $argument),*) -> $answer {
                match *self {}
            }
        )* }
    )* };
}

absent! {
    Sentinels {
        dial() -> Ready<Result<(Connection, Arc<PrimaryEpoch>), Error>>;
        switched() -> Ready<()>;
    }
    Cluster {
        slot(&[u8]) -> u16;
        find(&[u8]) -> Ready<Result<Arc<Node>, Error>>;
        owner_of(&[u8]) -> Option<Arc<Node>>;
        owners() -> Ready<Result<Vec<Arc<Node>>, Error>>;
        redirected(&Node, &RedisError) -> Option<(Arc<Node>, bool)>;
        troubled(&Node) -> ();
        look_soon() -> ();
        keep_looking() -> Ready<Infallible>;
        switched() -> Ready<()>;
    }
}

impl Sentinels {
    pub(crate) fn new(
        _: &[ConnectionInfo],
        _: String,
        _: ConnectionInfo,
        _: Duration,
        _: &Transport,
        _: &Arc<Runtimes>,
    ) -> Result<Self, Error> {
        Err(without("sentinel"))
    }
}

impl Cluster {
    pub(crate) fn new(
        _: Vec<ConnectionInfo>,
        _: Duration,
        _: &Transport,
        _: bool,
    ) -> Result<Self, Error> {
        Err(without("cluster"))
    }
}

fn without(feature: &str) -> Error {
    Error::Config(format!("kvlock was built without its feature `{feature}`"))
}

#[cfg(test)]
mod tests {
    use crate::{Client, Error};

    #[tokio::test]
    async fn an_address_that_needs_a_disabled_feature_is_refused() {
        let sentinels = "redis-sentinel://h/?sentinelServiceName=m";
        let addresses = [
            ("redis-cluster://h", cfg!(feature = "cluster")),
            (sentinels, cfg!(feature = "sentinel")),
        ];
        for (address, built) in addresses.into_iter().filter(|(_, built)| !built) {
            let refused = Client::connect(address).await;
            assert!(matches!(refused, Err(Error::Config(_))), "{address}, {built}: {refused:?}");
        }
    }
}
