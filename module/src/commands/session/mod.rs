//! The commands of sessions.

mod close;
mod list;
mod next;
mod open;

pub(super) use close::SessionClose;
pub(super) use list::SessionList;
pub(super) use next::SessionNext;
pub(super) use open::SessionOpen;
