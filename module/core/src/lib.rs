//! The decision logic of kvlock: what a command does to a lock and to the waiters for it.
//!
//! This crate never talks to a server, reads a clock or draws a random number. The caller passes
//! the content of the key ([`Observed`]), the time ([`Now`]) and the request. The result is a
//! value: what to write, which client to answer and when to look at the key again.
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
//! A module imports only modules of its own layer and of the layers below. There are no import cycles:
//!
//! ```text
//! operations  work · report                                       due work, and reports
//!             acquire · renew · share · bound · permits           locks and semaphores
//!             set · set_wait · set_end · set_places · circle      several locks in one step, deadlocks
//!             waiting · grant · ready · turn · count_down         waits and grants
//!             session_life · reading · presence · observers       sessions
//!             role · sweep                                        changes of the server or of all keys
//! table       table                                               all remembered state
//! stores      queue · places · sets · waiter · ready_keys         waiters, in line
//!             session · sessions · outbox · bindings · watches    sessions and their data
//!             agenda · fair · flight · turns · quarantine         planned work, unfinished grants
//!             account · profile · histogram                       counts
//!             floor · searches                                    used by the caller, next to the table
//!             free · discarded                                    memory that is freed in small steps
//! values      lock · observed · mode · value · semaphore · latch  the content of a key
//!             situation · results · change · outcome · news       requests, replies and changes
//!             arguments                                           arguments of commands
//!             types · ids · key · token · fields · parse
//! ```
//!
//! Each file of the top layer has an `impl Table`. These call each other's methods, which needs no
//! import.
//!
//! # The keyspace is the truth
//!
//! The table remembers the waiters, never the holder. Any client may delete, overwrite or expire
//! the key, a server may restart, and a replica may be promoted. So each operation reads the holder
//! from the key, and the table cannot disagree with it.
//!
//! # Invariants
//!
//! They hold after every call and are checked by [`Table::check`]. Tests quote them by number.
//!
//! - **I1** A waiter is in exactly one queue, and each queue has at least one waiter.
//! - **I2** An owner has at most one place in a queue.
//! - **I3** The head of a queue is its longest waiter: waiters are served in order of arrival.
//! - **I4** A waiter leaves exactly once, and its client value leaves with it.
//! - **I5** The agenda has every wait with a timeout at its end, every queue at most once, and no
//!   other entry.
//! - **I6** Each new grant has a larger token than every earlier grant. All free locks that a set
//!   takes belong to one grant and get one token.
//! - **I7** The number of waiters never exceeds the limits, in total or per key.
//! - **I8** A lock that is free, or that can be shared, is never given to a newcomer while another
//!   waiter is in the queue for it.
//! - **I9** An exclusive grant requires that the lock has no holder; a shared grant, that it has no
//!   exclusive holder.
//! - **I10** All sharers of one shared period have the same token, even if a set joins the period.
//!   It is larger than each earlier token and smaller than each later one.
//! - **I11** All clients that wait for a latch when it opens are released, even if its key has
//!   changed since.
//! - **I12** Only free permits are granted.
//! - **I13** During a quarantine, an owner is granted a lock or permits only if it already holds
//!   some of them.
//! - **I14** A session lists exactly its own waiters until it ends. So each place of a session has
//!   one outcome.
//! - **I15** Nothing is granted through a session that is away or has ended. A waiter that is
//!   passed over keeps its place.
//! - **I16** A session keeps each outcome until it is acknowledged or, for an observed lock, until
//!   a newer one replaces it. Only outcomes that were sent can be acknowledged.
//! - **I17** Every session is on the agenda once: at the end of its reader's timeout, or at its own
//!   end.
//! - **I18** Each lock that is left free for Redisson is on the list of open moments. Turns are
//!   remembered for a limited number of locks.
//! - **I19** What an owner holds of one key is bound to at most one session. The binding is on the
//!   session's list or, after the session has ended, on the list of pending releases.
//! - **I21** A waiter for a set has one place in the queue of each of its keys, all taken in one
//!   turn. They leave together. It holds none of the locks before it is granted all of them.
//! - **I22** A waiter for a set is recorded at one of its places: the place where the last attempt
//!   to grant the set was held up. The next attempt follows when that lock is looked at and it may
//!   be the waiter's turn there.
//! - **I20** An observer never gets a state older than the one it knows. At most one change is kept
//!   for it. Unless a round of reports is in progress, each observer knows the newest state.
#![forbid(unsafe_code)]
// An overflow in here would be a wrong token or a wrong count.
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

pub use account::{Account, Charge, Kept};
pub use bound::Bound;
pub use change::{Change, HandOff, Sharers};
pub use circle::{SHARERS, STEPS};
pub use fields::{MODE_FIELD, PROBED_FIELD, RESERVED_FIELDS, TOKEN_FIELD, VALUE_FIELD};
pub use floor::{Floor, Reign};
pub use grant::RUN_MAX;
pub use histogram::Histogram;
pub use ids::{GrantId, SessionId, SessionName, WaiterId};
pub use key::{KeyRef, Kind, LockKey};
pub use latch::{COUNTED, CountDownReply, Latch, LatchAt, LatchChange, SetReply};
pub use lock::{Acquire, AcquireReply, RELEASE_MESSAGE, Release, ReleaseReply, RenewReply};
pub use mode::{Mode, Share, Sharing, Want};
pub use news::{Gone, News, Standing};
pub use observed::{Holding, Observed};
pub use observers::NotObserved;
pub use outbox::{Changed, Dismissal, Ending, Granted, Outcome, Untold};
pub use outcome::{Cause, Counters, Full, KeySummary, Limits, Link, WaitReply};
pub use parse::{OWNER_BYTES_MAX, is_owner, strict_decimal};
pub use profile::Cost;
pub use reading::{AckAhead, LaterReader, Reading};
pub use ready::Group;
pub use results::{HeldBy, Keys, Results};
pub use searches::{Found, Go, Searches, Wanted};
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
