//! Latches: whatever happens to one, both release the same people.

mod ops;
pub mod world;

pub use self::world::World;
