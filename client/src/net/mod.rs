//! Topologies, servers, and the connections to them.
#![cfg_attr(
    not(all(feature = "cluster", feature = "sentinel")),
    allow(dead_code, reason = "of what only the missing ones use")
)]

#[cfg(not(all(feature = "cluster", feature = "sentinel")))]
pub(crate) mod absent;
pub(crate) mod address;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
pub(crate) mod connection;
pub(crate) mod connector;
pub(crate) mod deadline;
pub(crate) mod link;
pub(crate) mod live;
pub(crate) mod node;
pub(crate) mod pace;
pub(crate) mod race;
pub(crate) mod replicas;
pub(crate) mod router;
pub(crate) mod runtimes;
#[cfg(feature = "sentinel")]
pub(crate) mod sentinel;
pub(crate) mod server;
#[cfg(feature = "simulation")]
pub(crate) mod simulated;
#[cfg(feature = "cluster")]
pub(crate) mod slots;
pub(crate) mod transport;

#[cfg(not(feature = "cluster"))]
pub(crate) use absent as cluster;
#[cfg(not(feature = "sentinel"))]
pub(crate) use absent as sentinel;
