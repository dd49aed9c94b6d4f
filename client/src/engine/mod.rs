//! How a lock is acquired, kept, and given back.
//!
//! ```text
//! acquire ─┬─► acquire/claim      what was sent for an owner, and must be undone if no caller keeps it
//!            └─► acquire/wait       LOCK.WAIT through the session of the server, until its outcome
//!   reenter, hold ─► undo           a further hold; renewals and releases by a guard; what is released again later
//! bound, observer, owner, store   binding to a session; holders of locks; shared owners; results
//!        │
//!        ▼
//!   context                         what all parts of a client share
//!        │
//!        ├─► session ─► session/reader      a session per server: opens it, reads outcomes, connects again, ends it
//!        └─► lease/watchdog ─► lease        the record of what is held: until when, which renewal is next, why it
//!                                           is lost; the task that sends renewals
//!   clock, limit, observe, settings         time, patience, logs and metrics
//! ```
//!
//! Arrows say what uses what; nothing uses what is above it. The invariants are in [`lease`] (I1 to I4), [`session`]
//! (S1 to S5), [`observer`] (O1, O2) and [`acquire::claim`].
//!
//! | question | answer |
//! |---|---|
//! | where does a lock wait in the queue? | `acquire/wait.rs`; its outcome comes through `session/reader.rs` |
//! | when is the next renewal, and where is it sent? | `lease/renewal.rs` plans it, `lease/watchdog.rs` sends it |
//! | where is a lock found lost? | `lease.rs` (`lose`, `expire`), told to the guard by its `Notify` |
//! | what reconnects? | `session/reader.rs` for a session; `net::link` for commands |
//! | what happens if an acquire is dropped? | the drop of `acquire/claim.rs`, then `undo.rs` |

pub(crate) mod acquire;
pub(crate) mod bound;
pub(crate) mod clock;
pub(crate) mod contended;
pub(crate) mod context;
pub(crate) mod hold;
pub(crate) mod lease;
pub(crate) mod limit;
pub(crate) mod observe;
pub(crate) mod observer;
pub(crate) mod owner;
pub(crate) mod reenter;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod store;
pub(crate) mod undo;
