//! The decision logic of kvlock: what a command does to a lock and to the waiters for it.
//!
//! This crate never talks to a server and never reads a clock, and no reply or change depends on a
//! random number. The caller passes the content of the key ([`Observed`]), the time ([`Now`]) and
//! the request. An operation returns values: the reply, the change to write and the client to
//! answer. The table plans when to look at the key again.
//!
//! ```text
//!                    content of the key ─ Observed ──┐
//!                    time ──────────────── Now ──────┤
//!                    request ───────────── Acquire, …┤
//!                                                    ▼
//!   ┌───────────────────────────────── Table ─────────────────────────────────┐
//!   │ queues   (db 0, "orders:42")  →  bob ⇄ carol ⇄ dave    (head is next)   │
//!   │ agenda   12:00:03.120 look at "orders:42"   +5 s carol's wait ends      │
//!   │ tokens   last 1795202270794123                                          │
//!   └──────────────────────────────────────────────────────────────────────────┘
//!                                                    │
//!                    reply to the caller ────────────┤
//!                    Change: what to write, and ─────┘
//!                    the waiter that gets the lock
//! ```
//!
//! # Modules
//!
//! A module imports only modules of its own layer and of the layers below, with one exception:
//! `semaphore` imports the type of a dismissal from `outbox`. There are no import cycles:
//!
//! ```text
//! operations  work · report                                       due work, and reports
//!             acquire · renew · share · bound · permits           locks and semaphores
//!             set · set_wait · set_end · set_places · circle      sets of locks, deadlocks
//!             waiting · grant · ready · turn · count_down         waits and grants
//!             session_life · reading · presence · observers       sessions
//!             role · sweep                                        changes of the server or of all keys
//! table       table                                               all remembered state
//! stores      queue · places · sets · waiter · ready_keys         waiters, in line
//!             session · sessions · outbox · bindings · watches    sessions and their data
//!             agenda · fair · flight · turns · quarantine         planned work, unfinished grants
//!             account · profile · histogram                       counts
//!             floor · searches                                    used by the caller, not by the table
//!             free · discarded                                    memory that is freed in small steps
//! values      lock · observed · mode · value · semaphore · latch  the content of a key
//!             situation · results · change · outcome · news       requests, replies and changes
//!             arguments                                           arguments of commands
//!             types · ids · key · token · fields · parse
//! ```
//!
//! Each file of the top layer has an `impl Table`. These implementations call each other's methods,
//! which needs no import.
//!
//! # The keyspace is the truth
//!
//! The table remembers the waiters. It never decides from memory which owner holds a lock: any client
//! may delete, overwrite or expire the key, a server may restart, and a replica may be promoted. So
//! each operation takes the holder from the content of the key, and the table cannot disagree with
//! the key.
//!
//! # Invariants
//!
//! They hold after every call. [`Table::check`] checks those that concern the table alone. Tests
//! quote them by number.
//!
//! - **I1** A waiter is in exactly one queue, and each queue has at least one waiter. A waiter for
//!   a set of locks counts once for each of its places (I21).
//! - **I2** An owner has at most one place in a queue.
//! - **I3** The head of a line is the waiter in it that arrived first, and is served first. Waiters
//!   that are passed over (I15) are not in the line.
//! - **I4** A waiter leaves exactly once, and the value that identifies its client leaves with it.
//! - **I5** For waits and queues, the agenda has these entries and no others: each wait with a
//!   timeout, at its end, and each queue at most once.
//! - **I6** Each new grant of a lock has a larger token than all earlier grants of that lock. Only
//!   sharers have the same token (I10). All free locks that a set takes belong to one grant and get
//!   one token.
//! - **I7** No waiter is accepted beyond the limits: in total, for each key and for each user.
//! - **I8** While a waiter is in the line for a lock, no newcomer is granted that lock, even if the
//!   lock is free or shared.
//! - **I9** An exclusive grant requires that the lock has no holder; a shared grant, that it has no
//!   exclusive holder.
//! - **I10** All sharers of one shared period have the same token, even if a set joins the period.
//!   This token is larger than each earlier token of the lock and smaller than each later one.
//! - **I11** All clients that wait for a latch when it opens are released, even if its key has
//!   changed since.
//! - **I12** Only free permits are granted.
//! - **I13** During a quarantine, no lock and no permits are granted. An owner may re-enter a lock
//!   that it holds, and an owner that repeats a request keeps the permits it has.
//! - **I14** Until a session ends, it lists exactly its own waiters. Each of its waits has one
//!   outcome; only an observer may have several.
//! - **I15** No waiter of a session that is away or has ended is granted anything. The waiters of a
//!   session that is away are passed over: they keep their places, but are not in the line. Waiters
//!   for a latch and observers are never passed over.
//! - **I16** A session keeps each outcome until it is acknowledged. Only outcomes that were sent can
//!   be acknowledged. A change of an observed lock may be dropped earlier: if a newer change replaces
//!   it, if the session asks for the state again, or if it stops observing.
//! - **I17** Every session is on the agenda once: at the time when its blocked reader's timeout
//!   passes or, without a blocked reader, at the time when the session ends.
//! - **I18** Each lock that is left free for Redisson's waiters is on a list, with the time at
//!   which this ends. Turns of Redisson are remembered for a limited number of locks. See `turn.rs`.
//! - **I19** What an owner holds of one key is bound to at most one session. The binding is listed
//!   by the session, among the pending or refused releases of ended sessions, or among the bindings
//!   to drop.
//! - **I21** A waiter for a set has one place in the queue of each of its keys, all taken in one
//!   call. The places leave together. The waiter is granted none of the locks before it is granted
//!   all of them.
//! - **I22** A waiter for a set is recorded at one of its places: the place where the last attempt
//!   to grant the set was held up. The next attempt follows at the latest when that lock is looked
//!   at and it may be the waiter's turn there.
//! - **I20** An observer never gets a state older than the one it knows. At most one change is kept
//!   for it. Unless a round of reports is in progress, each observer knows the newest state.
#![forbid(unsafe_code)]
// An overflow in this crate would give a wrong token or a wrong count.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod account;
mod acquire;
mod agenda;
pub mod arguments;
mod bindings;
mod bound;
mod change;
mod circle;
mod count_down;
mod discarded;
mod fair;
mod fields;
mod flight;
mod floor;
mod free;
mod grant;
mod histogram;
mod ids;
mod key;
mod latch;
mod lock;
mod mode;
mod news;
mod observed;
mod observers;
mod outbox;
mod outcome;
mod parse;
mod permits;
mod places;
mod presence;
mod profile;
mod quarantine;
mod queue;
mod reading;
mod ready;
mod ready_keys;
mod renew;
mod report;
mod results;
mod role;
mod searches;
mod semaphore;
mod session;
mod session_life;
mod sessions;
mod set;
mod set_end;
mod set_places;
mod set_wait;
mod sets;
mod share;
mod situation;
mod sweep;
mod table;
mod token;
mod turn;
mod turns;
mod types;
mod value;
mod waiter;
mod waiting;
mod watches;
mod work;

pub use account::{Account, Charge, Quota};
pub use bound::DueBinding;
pub use change::{Change, HandOff, Sharers};
pub use circle::{SHARERS, STEPS};
pub use fields::{MODE_FIELD, PROBED_FIELD, RESERVED_FIELDS, TOKEN_FIELD, VALUE_FIELD};
pub use floor::{Floor, PrimarySince};
pub use grant::RUN_MAX;
pub use histogram::Histogram;
pub use ids::{GrantId, SessionId, SessionName, WaiterId};
pub use key::{KeyRef, Kind, LockKey};
pub use latch::{COUNTED, CountDownReply, Latch, LatchAt, LatchChange, SetReply};
pub use lock::{Acquire, AcquireReply, RELEASE_MESSAGE, Release, ReleaseReply, RenewReply};
pub use mode::{Mode, Share, Sharing, Want};
pub use news::{HolderState, LossReason, VersionedState};
pub use observed::{Holding, Observed};
pub use observers::NotObserved;
pub use outbox::{Changed, Dismissal, Ending, Granted, Outcome, UnsentGrant};
pub use outcome::{Cause, Counters, Full, KeySummary, Limits, Link, WaitReply};
pub use parse::{OWNER_BYTES_MAX, is_owner, strict_decimal};
pub use profile::Cost;
pub use reading::{AckAhead, LaterReader, Reading};
pub use ready::Group;
pub use results::{HeldBy, Keys, Results};
pub use searches::{Found, SearchPart, Searches, Wanted};
pub use semaphore::{Permits, PermitsChange, Semaphore, SemaphoreAt, Served, TakeReply};
pub use session::{NotOpened, SessionView};
pub use set::Member;
pub use set_end::mismatches;
pub use set_places::SetKey;
pub use set_wait::{GrantedSet, ServedSet};
pub use situation::{At, Situation, WaitedFor};
pub use table::Table;
pub use token::{RAISE_AHEAD_US, TOKEN_STORED_MAX, Token, TokenSource, TokenText};
pub use turns::MOMENT;
pub use types::{HOLDS_MAX, Millis, MonoMillis, Now, UnixMillis};
pub use value::{VALUE_BYTES_MAX, Value, stored_value, value_of};
pub use waiter::{Caller, Join, Via, WaiterView};
pub use work::Work;
