//! Semaphores: the table and the model must have the same permits out and the same queue.

mod asking;
mod ops;
mod serving;
mod world;

pub use self::world::World;
