//! Locks bound to sessions. A bound lock is released when its session has ended, never before the client's
//! belief in it can have ended. No other lock is released by the end of a session.

mod naive;
mod ops;
mod world;

pub use self::world::World;
