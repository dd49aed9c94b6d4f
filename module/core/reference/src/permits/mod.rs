//! Semaphores: both have the same permits out and the same people in line.

mod asking;
mod ops;
mod serving;
mod world;

pub use self::world::World;
