//! Semaphores. The table and the model must have the same held permits and the same queue.

mod asking;
mod ops;
mod serving;
mod world;

pub use self::world::World;
