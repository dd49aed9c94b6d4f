//! The commands of count-down latches.

mod count_down;
mod info;
mod set;
mod wait;

pub(super) use count_down::LatchCountDown;
pub(super) use info::LatchInfo;
pub(super) use set::LatchSet;
pub(super) use wait::LatchWait;
