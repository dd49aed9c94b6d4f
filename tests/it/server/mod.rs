//! What befalls the server meanwhile: roles, restarts, clocks, pauses, other modules.

mod clocks;
pub(crate) mod failovers;
mod modules;
mod quarantine;
mod roles;
