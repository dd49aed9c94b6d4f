//! Requests and replies, as values of redis-rs. This layer has no connection.

pub(crate) mod command;
pub(crate) mod error;
pub(crate) mod info;
pub(crate) mod loss;
pub(crate) mod observed;
pub(crate) mod outcome;
pub(crate) mod reply;
pub(crate) mod request;
mod value;
