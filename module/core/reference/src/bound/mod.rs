//! Locks bound to sessions. After a session has ended, its bound locks are released, but never
//! while the client may still rely on them. The session's grants that were never sent are taken back.
//! The end of a session releases no other lock.

mod naive;
mod ops;
mod world;

pub use self::world::World;
