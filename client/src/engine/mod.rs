//! How a lock is acquired, kept, and let go.

pub(crate) mod acquire;
pub(crate) mod belief;
pub(crate) mod bound;
pub(crate) mod claim;
pub(crate) mod clock;
pub(crate) mod contended;
pub(crate) mod context;
pub(crate) mod held_lock;
pub(crate) mod hold;
pub(crate) mod late;
pub(crate) mod lease;
pub(crate) mod limit;
pub(crate) mod observe;
pub(crate) mod observer;
pub(crate) mod owner;
pub(crate) mod reenter;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod store;
pub(crate) mod wait;
pub(crate) mod watchdog;
