//! The decision logic of kvlock: what a command does to a lock and to those who wait for it.
//!
//! Nothing in here talks to a server, reads a clock or draws a random number. The caller says what
//! the keyspace holds ([`Observed`]), what time it is ([`Now`]) and what is asked; the answer is a
//! value that says what to write, whom to answer and when to look again.
//!
//! ```text
//!                    what the key says ── Observed ──┐
//!                    what time it is ──── Now ───────┤
//!                    what is asked ────── Acquire, … ┤
//!                                                    ▼
//!   ┌───────────────────────────────── Table ─────────────────────────────────┐
//!   │ queues   (db 0, "orders:42")  →  bob ⇄ carol ⇄ dave    (head is next)   │
//!   │ agenda   12:00:03.120 look at "orders:42"   +5 s carol's wait ends      │
//!   │ tokens   last 1795202270794123                                          │
//!   └──────────────────────────────────────────────────────────────────────────┘
//!                                                    │
//!                    reply to the caller ────────────┤
//!                    Change: what to write, and ─────┘
//!                    the waiter that is handed the lock
//! ```
//!
//! # The keyspace is the truth
//!
//! The table remembers who waits, never who holds. Anybody may delete, overwrite or expire the
//! key, a server may restart and a replica may be promoted: who holds is read from the key each
//! time, and nothing in here can disagree with it.
//!
//! # Invariants
//!
//! They hold after every call and are checked by [`Table::check`]; tests quote them by number.
//!
//! - **I1** A waiter stands in exactly one queue, and a queue that exists has at least one waiter.
//! - **I2** An owner has at most one place in a queue.
//! - **I3** The head of a queue is its longest waiter: order of arrival is order of service.
//! - **I4** A waiter leaves exactly once, and its client value leaves with it.
//! - **I5** Every timed wait is on the agenda at its end, every queue at most once, and nothing else.
//! - **I6** Each new grant has a larger token than every grant before it.
//! - **I7** The number of waiters never exceeds the limits, in total or per key.
//! - **I8** A lock that can be had is never given to a newcomer while somebody waits for it.
//! - **I9** A lock is given to be held alone only if nobody shares it, and to be shared only if
//!   nobody holds it alone.
//! - **I10** A shared period has one token: larger than each before it, smaller than each after.
//! - **I11** Whoever waits for a latch when it opens is released, whatever its key is by then.
//! - **I12** Permits are granted only out of those that are free.
//! - **I13** During a quarantine only who holds something already is granted it again.
//! - **I14** A waiter of a session is on that session's list, until its session is gone, and nobody
//!   else is: so each place has one outcome.
//! - **I15** Nobody is granted anything through a session that is away or gone, and whoever is passed
//!   over keeps its place.
//! - **I16** Each outcome of a session is kept until it is acknowledged or, of an observed lock, a newer one
//!   has come; and those that are acknowledged were sent before.
//! - **I17** Every session is on the agenda once: at the end of its reader's time, or at its own.
//! - **I18** A lock that is left free for Redisson is on the list of these moments, and the turns of a limited
//!   number of locks are remembered.
//! - **I19** What an owner has of a key is bound to one session at most; that is on the session's list,
//!   or on that of what is to be released when it is gone, and will be looked at.
//! - **I20** An observer hears of nothing older than what it knows, at most one change is kept for it, and
//!   unless observers are being told just now, each knows the newest.
#![forbid(unsafe_code)]
// What overflows in here would be a wrong token or a wrong count.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod account;
mod agenda;
pub mod arguments;
mod bound;
mod fair;
mod flight;
mod floor;
mod forget;
mod grant;
mod histogram;
mod key;
mod latch;
mod lock;
mod mode;
mod observed;
mod observers;
mod outbox;
mod outcome;
mod parse;
mod permits;
mod planted;
mod presence;
mod profile;
mod quarantine;
mod queue;
mod reading;
mod ready;
mod report;
mod searches;
mod semaphore;
mod session;
mod sessions;
mod share;
mod sweep;
mod table;
mod token;
mod turn;
mod types;
mod value;
mod waiting;
mod work;

pub use account::{Account, Charge, Kept};
pub use bound::Bound;
pub use floor::{Floor, Reign};
pub use grant::{GrantId, RUN_MAX};
pub use histogram::Histogram;
pub use key::{KeyRef, Kind, LockKey};
pub use latch::{COUNTED, CountDownReply, Latch, LatchAt, LatchChange, SetReply};
pub use lock::{
    Acquire, AcquireReply, RELEASE_MESSAGE, RESERVED_FIELDS, Release, ReleaseReply, RenewReply,
    TOKEN_FIELD,
};
pub use mode::{MODE_FIELD, Mode, Share, Sharing, Want};
pub use observed::{Holding, Observed};
pub use observers::{Gone, News, NotObserved, Standing};
pub use outbox::{Changed, Dismissal, Ending, Granted, Outcome, Untold};
pub use outcome::{Cause, Change, Counters, Full, HandOff, KeySummary, Limits, Sharers, WaitReply};
pub use parse::{OWNER_BYTES_MAX, PROBED_FIELD, is_owner, strict_decimal};
pub use planted::Bug;
pub use profile::Cost;
pub use queue::{WaiterId, WaiterView};
pub use reading::{AckAhead, LaterReader, Reading};
pub use ready::{Group, Keys, Results};
pub use searches::{Found, Go, Searches, Wanted};
pub use semaphore::{Permits, PermitsChange, Semaphore, SemaphoreAt, Served, TakeReply};
pub use session::{NotOpened, SessionId, SessionName, SessionView, Via};
pub use table::{Situation, Table};
pub use token::{RAISE_AHEAD_US, TOKEN_STORED_MAX, Token, TokenSource, TokenText};
pub use turn::MOMENT;
pub use types::{HOLDS_MAX, Millis, MonoMillis, Now, UnixMillis};
pub use value::{VALUE_BYTES_MAX, VALUE_FIELD, Value, stored_value, value_of};
pub use waiting::{At, Caller, Join, WaitedFor};
pub use work::Work;
