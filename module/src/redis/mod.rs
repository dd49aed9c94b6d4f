//! The fence: the only unsafe code of the project, and safe types over the module API.
//!
//! The code here does not depend on the rules of locks. The rest of the module consists of [`Command`]s and
//! of the callbacks in [`Module`](crate::module::Module), and never uses a pointer.
//!
//! # What is allowed where
//!
//! The server calls the module from many places, and each place has restrictions. They are rules of the
//! server: breaking one crashes it or corrupts its replication stream.
//!
//! | called from | may write | may block | may reply |
//! |---|---|---|---|
//! | a command | yes | unless [`Ctx::must_not_block`] | yes |
//! | a timer | if [`Ctx::may_write_unasked`], and no [`Ctx::refusal_to_write`] | no | by answering a [`Parked`] client |
//! | a key event, a server event | **no**: plan a timer | no | likewise |
//! | the end of a client's connection (`Module::client_gone`, `Module::answer_lost`) | **no**: plan a timer | no | likewise |
//!
//! - The module itself reports each key that it has changed to the server. By default, each key that was
//!   opened for writing would count as changed, which would break a `WATCH` without need.
//! - Opening an expired key for writing deletes it, which calls `Module::key_event` from inside.
//! - A blocked client must be unblocked exactly once: answering a [`Parked`] consumes it.
//! - All calls come from the server's main thread, except for a crash report. For a crash report, the module
//!   writes nothing.
#![expect(unsafe_code, reason = "this folder is the fence: the module API is C")]

mod api;
mod call;
mod command;
mod config;
mod ctx;
mod dump;
mod entry;
mod events;
mod guard;
mod info;
mod key;
mod load;
#[cfg(not(feature = "system-alloc"))]
mod memory;
mod message;
mod options;
#[cfg(feature = "provoke")]
mod overrun;
mod parked;
#[cfg(feature = "provoke")]
mod refusal;
mod reply;
mod scan;
mod spec;
mod text;
mod timer;

pub(crate) use ctx::{Ctx, not_replicated};
#[cfg(feature = "provoke")]
pub(crate) use entry::Entry;
#[cfg(feature = "provoke")]
pub(crate) use guard::provoke_at;
pub(crate) use guard::{caught_panics, log_line};
pub(crate) use info::InfoWriter;
pub(crate) use key::Key;
pub(crate) use load::Registry;
#[cfg(not(any(test, feature = "system-alloc")))]
pub(crate) use memory::ServerMemory;
pub(crate) use message::{KeyEvent, KeyKind, Reply, ServerEvent};
#[cfg(feature = "provoke")]
pub(crate) use overrun::read_past_the_end;
pub(crate) use parked::{Handle, Parked};
#[cfg(feature = "provoke")]
pub(crate) use refusal::refused_opens;
pub(crate) use scan::Cursor;
pub(crate) use spec::{ArgSpec, Command, CommandSpec, ConfigKind, ConfigSpec};
pub(crate) use text::{Arg, Text};
pub(crate) use timer::Timer;
