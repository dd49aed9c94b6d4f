//! The public interface of the crate.

pub(crate) mod builder;
pub(crate) mod client;
pub(crate) mod downgrade;
pub(crate) mod election;
pub(crate) mod guard;
pub(crate) mod held;
pub(crate) mod latch;
pub(crate) mod leadership;
pub(crate) mod lock;
pub(crate) mod multi;
pub(crate) mod observer;
pub(crate) mod once;
pub(crate) mod semaphore;
pub(crate) mod watch;
