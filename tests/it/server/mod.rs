//! What befalls the server meanwhile: roles, restarts, clocks, pauses, other modules.

mod asleep;
mod clocks;
pub(crate) mod failovers;
mod guard;
mod loading;
pub(crate) mod modules;
mod pauses;
mod quarantine;
mod roles;
mod unloading;
