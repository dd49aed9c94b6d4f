//! What befalls the server meanwhile: its role, a restart, its clock.

mod clocks;
mod quarantine;
mod roles;
