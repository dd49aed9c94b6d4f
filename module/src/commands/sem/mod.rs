//! The commands of semaphores.

mod acquire;
mod info;
mod release;
mod renew;
mod set;
mod wait;

pub(super) use acquire::SemAcquire;
pub(super) use info::SemInfo;
pub(super) use release::SemRelease;
pub(super) use renew::SemRenew;
pub(super) use set::SemSet;
pub(super) use wait::SemWait;
