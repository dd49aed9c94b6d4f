//! What is bound to sessions: it is released when its session is gone, never before the client's belief can
//! have ended, and nothing else is ever released by it.

mod naive;
mod ops;
mod world;

pub use self::world::World;
