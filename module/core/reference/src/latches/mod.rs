//! Latches. After the same operations, the core and the model must release the same waiters.

mod ops;
pub mod world;

pub use self::world::World;
