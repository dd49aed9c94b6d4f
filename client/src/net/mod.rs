//! Where the servers are, and connections to them.

pub(crate) mod address;
pub(crate) mod cluster;
pub(crate) mod connection;
pub(crate) mod connector;
pub(crate) mod link;
pub(crate) mod live;
pub(crate) mod node;
pub(crate) mod replicas;
pub(crate) mod router;
pub(crate) mod sentinel;
pub(crate) mod server;
pub(crate) mod slots;
