//! Acquiring, keeping and releasing locks. The callers are in [`api`](crate::api).
//!
//! ```text
//!   acquire ──► acquire/claim     commands sent for an owner; undone if no guard keeps the lock
//!         └───► acquire/wait      LOCK.WAIT through the session at the server, until its outcome
//!   reenter                       a further hold of an owner that holds the lock
//!   bound                         binds leases to a session, and to another one when that is over
//!   observer                      observes the holder of a lock
//!   store                         releases a lock and stores a result
//!      │
//!      ├─► hold                   renewals that a guard requests, and its release
//!      ├─► undo                   cancels and releases for an abandoned acquire, in the background
//!      ├─► owner, contended       shared owners; locks that an earlier acquire found taken
//!      ▼
//!   context                       state that all parts of a client share
//!      │
//!      ├─► session                one per server: session/reader opens it, reads outcomes and reconnects;
//!      │                          session/sessions opens another one when it is over;
//!      │                          session/observed is the state of observed locks
//!      └─► lease                  the record of what an owner holds: lease/shares has the holds of its guards,
//!                                 lease/turn changes their number, lease/renewal plans renewals, lease/late limits
//!                                 what counts while renewals are unanswered, lease/belief limits bound leases
//!                                 to their session, lease/loss records a loss and wakes the guards,
//!                                 lease/watchdog is the task that sends renewals
//!   clock, limit, observe, settings         time, patience, logs and metrics
//! ```
//!
//! An arrow points to the part that is used. The session uses leases too. The invariants are in [`lease`] (I1
//! to I4), [`session`] (S1 to S5), [`bound`] (B1 to B3) and [`session::observed`] (O1, O2).
//!
//! | question | answer |
//! |---|---|
//! | where does an owner wait in the queue? | `acquire/wait.rs`; the outcome arrives in `session/reader.rs`. The server ends a wait whose time is over |
//! | how does a grant become a lease? | `acquire.rs` accepts it, `Claim::hold` makes the lease: at once, after a wait, and for an adopted lock. Re-entry adds to a lease that exists; binding changes one |
//! | when is the next renewal, and where is it sent? | `lease/renewal.rs` plans it, `lease/watchdog.rs` sends it. `hold.rs` sends those that a guard asks for, `Claim::confirm` one before there is a lease |
//! | where is a lock found lost? | `lease/loss.rs`. When its time is over: `Lease::expire`, by the watchdog or by any query. When a server reports it: the answers in `lease/renewal.rs`, `hold.rs`, `reenter.rs`, `bound.rs` and `store.rs`. An observer's report only makes a renewal due |
//! | what happens after a loss? | `Lease::end` wakes the guards |
//! | which task may change the number of holds? | the one with the `Turn` of the lease |
//! | what reconnects? | `session/reader.rs`, with the same session; when the session is over, the next wait, observation or binding opens another one in `session/sessions.rs`. `net::link` for commands |
//! | what happens when a runtime ends? | `net::runtimes` starts the watchdog, observations, the tasks of bound leases and background work again on another one; a session ends |
//! | what happens if an acquire is dropped? | the drop of `acquire/claim.rs`, or of the addition in `reenter.rs`; then `undo.rs` |

pub(crate) mod acquire;
pub(crate) mod bound;
pub(crate) mod clock;
pub(crate) mod contended;
pub(crate) mod context;
pub(crate) mod hold;
pub(crate) mod lease;
pub(crate) mod limit;
pub(crate) mod observer;
pub(crate) mod owner;
pub(crate) mod reenter;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod store;
pub(crate) mod telemetry;
pub(crate) mod undo;
