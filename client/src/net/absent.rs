//! What stands for Sentinels and clusters in a build without them: types that have no value.

use crate::net::live::Live;
use crate::net::node::Node;
use crate::wire::error::Error;
use redis::{ConnectionInfo, RedisError};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

#[derive(Debug)]
pub(crate) enum Sentinels {}

impl Sentinels {
    pub(crate) fn new(
        _: &[ConnectionInfo],
        _: String,
        _: ConnectionInfo,
        _: Duration,
    ) -> Result<Self, Error> {
        Err(without("sentinel"))
    }

    pub(crate) async fn dial(&self) -> Result<Live, Error> {
        match *self {}
    }

    pub(crate) async fn switched(&self) {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum Cluster {}

impl Cluster {
    pub(crate) fn new(_: Vec<ConnectionInfo>, _: Duration, _: bool) -> Result<Self, Error> {
        Err(without("cluster"))
    }

    pub(crate) async fn find(&self, _: &[u8]) -> Result<Arc<Node>, Error> {
        match *self {}
    }

    pub(crate) fn owner_of(&self, _: &[u8]) -> Option<Arc<Node>> {
        match *self {}
    }

    pub(crate) async fn owners(&self) -> Result<Vec<Arc<Node>>, Error> {
        match *self {}
    }

    pub(crate) fn redirected(&self, _: &Node, _: &RedisError) -> Option<(Arc<Node>, bool)> {
        match *self {}
    }

    pub(crate) fn troubled(&self, _: &Node) {
        match *self {}
    }

    pub(crate) fn look_soon(&self) {
        match *self {}
    }

    pub(crate) async fn keep_looking(&self) -> Infallible {
        match *self {}
    }

    pub(crate) async fn switched(&self) {
        match *self {}
    }

    pub(crate) fn runtime(&self) -> Option<Handle> {
        match *self {}
    }
}

fn without(feature: &str) -> Error {
    Error::Config(format!("kvlock was built without its feature `{feature}`"))
}

#[cfg(test)]
mod tests {
    use crate::{Client, Error};

    #[tokio::test]
    async fn an_address_of_what_is_not_built_is_refused() {
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
