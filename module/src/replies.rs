//! Replies that several parts of the module send.

use std::ffi::CString;

use kvlock_core::arguments::Refusal;
use kvlock_core::{AcquireReply, Dismissal, Full, ReleaseReply, RenewReply, arguments};

use crate::redis::Reply;

/// The reply to an acquire or a wait whose ready-key (`UNLESS`) exists, unless the owner holds the lock.
pub(crate) const READY: Reply = Reply::Word("ready");

pub(crate) const SYNTAX: Reply = Reply::error(c"ERR syntax error");

pub(crate) const NOT_A_LOCK: Reply =
    Reply::error(c"WRONGTYPE Operation against a key holding the wrong kind of value");

pub(crate) const MISMATCH: Reply =
    Reply::error(c"MISMATCH HOLDS does not fit what the owner holds");

pub(crate) const TOO_MANY_HOLDS: Reply = Reply::error(c"ERR too many holds");

/// The error for a lock or permits that cannot be granted now, usually because the key's slot is migrating to
/// or from this server, or has migrated away. Also sent to waiters for most other reasons for which the
/// server refuses a write: see `wake::refused`.
pub(crate) const MOVING: Reply = Reply::error(c"TRYAGAIN the slot is moving: ask again");

pub(crate) const UPGRADE: Reply =
    Reply::error(c"UPGRADE this owner shares the lock: it must release its share before it acquires the lock alone");

pub(crate) const SHARED: Reply =
    Reply::error(c"ERR invalid TOKEN: this owner shares the lock, with others who have that token");

pub(crate) const UNSET: Reply =
    Reply::error(c"UNSET there is no semaphore at this key: create it with SEM.SET");

pub(crate) const TOO_MANY_PERMITS: Reply =
    Reply::error(c"TOOMANY the semaphore does not have so many permits");

pub(crate) const QUEUE_FULL: Reply = Reply::error(
    c"QUEUEFULL kvlock.max-waiters, max-waiters-per-key or max-blocked is reached, try again later",
);

pub(crate) const USER_SHARE_FULL: Reply = Reply::error(
    c"QUEUEFULL this user has used up its share of the limit (kvlock.user-share), try again later",
);

/// Reply while the module is drained, for example to a waiter or to a client that opens a session.
pub(crate) const DRAINING: Reply =
    Reply::error(c"TRYAGAIN the module is draining (kvlock.drain): try again later");

/// The error for a command that another module calls while this module is running: for example, during an
/// event that a write of this module causes.
pub(crate) const BUSY: Reply =
    Reply::error(c"TRYAGAIN called from within a command: ask again later");

pub(crate) const READ_ONLY: Reply =
    Reply::error(c"READONLY You can't write against a read only replica.");

/// The error for an unknown session: for example, it has ended, was opened before the server started, or
/// belongs to another user.
pub(crate) const NO_SESSION: Reply = Reply::error(
    c"NOSESSION this user has no such session here: open one and send the command again",
);

pub(crate) const NO_USER: Reply =
    Reply::error(c"ERR this caller has no user to whom a session could belong");

/// The error for a caller that may block, but whose connection the server refuses to block.
pub(crate) const SUBSCRIBED: Reply = Reply::error(
    c"ERR this server cannot block a connection that is subscribed to a channel: wait on another one",
);

pub(crate) const UNBOUND: Reply = Reply::error(c"ERR BOUND needs a SESSION");

pub(crate) const TOO_MANY_BOUND: Reply =
    Reply::error(c"QUEUEFULL kvlock.max-bound is reached, try again later");

pub(crate) const TOO_MANY_SESSIONS: Reply =
    Reply::error(c"QUEUEFULL kvlock.max-sessions is reached, try again later");

pub(crate) const ACK_AHEAD: Reply =
    Reply::error(c"ERR invalid ack: must not be ahead of what was sent");

/// Reply to a reader when a later call reads the same session.
pub(crate) const READ_ELSEWHERE: Reply =
    Reply::error(c"UNBLOCKED a later SESSION.NEXT reads this session");

/// The error for a ready-key (`STORE` or `UNLESS`) that is one of the command's locks or a token floor.
pub(crate) const READY_KEY: Reply = Reply::error(
    c"ERR invalid ready-key: must be another key than the lock, and must not begin with kvlock:floor",
);

pub(crate) fn error(text: String) -> Reply {
    CString::new(text).map_or(SYNTAX, |text| Reply::Error(text.into()))
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        error(refusal.to_string())
    }
}

/// Returns the error for a limit that is reached. `server` is the error for a limit of the whole server.
pub(crate) fn full(full: Full, server: Reply) -> Reply {
    match full {
        Full::Server => server,
        Full::User => USER_SHARE_FULL,
    }
}

/// Returns the reply to a waiter that is dismissed.
pub(crate) fn sent_away(why: &Dismissal) -> Reply {
    match why {
        Dismissal::Draining => DRAINING,
        Dismissal::Moving => MOVING,
        Dismissal::TooMany => TOO_MANY_PERMITS,
        Dismissal::Unset => UNSET,
        Dismissal::Misfit(reply) => acquired(*reply),
        Dismissal::Server(text) => {
            CString::new(text.to_vec()).map_or(MOVING, |text| Reply::Error(text.into()))
        }
    }
}

/// Returns whether the acquire succeeded. After an error, the owner may still have earlier holds.
pub(crate) fn is_granted(reply: AcquireReply) -> bool {
    matches!(reply, AcquireReply::Granted { .. })
}

pub(crate) fn acquired(outcome: AcquireReply) -> Reply {
    match outcome {
        AcquireReply::Granted { token, holds } => Reply::Pair(token.value(), holds),
        AcquireReply::Refused => Reply::Nil,
        AcquireReply::Mismatch => MISMATCH,
        AcquireReply::TooManyHolds => TOO_MANY_HOLDS,
        AcquireReply::Upgrade => UPGRADE,
        AcquireReply::NotALock => NOT_A_LOCK,
        AcquireReply::TryAgain => MOVING,
    }
}

pub(crate) fn released(outcome: ReleaseReply) -> Reply {
    match outcome {
        ReleaseReply::Left(holds) => Reply::Number(holds),
        ReleaseReply::NotHeld => Reply::Nil,
        ReleaseReply::Mismatch => MISMATCH,
        ReleaseReply::NotALock => NOT_A_LOCK,
    }
}

/// Returns the reply for the outcome of the renewal of a lock. With a `VALUE` (`says`), the reply is an error
/// if the owner shares the lock.
pub(crate) fn renewed_with_value(
    outcome: RenewReply,
    value: Option<&[u8]>,
) -> Result<Reply, Reply> {
    if outcome == RenewReply::Shared && value.is_some() {
        return Err(error(arguments::NO_VALUE.to_owned()));
    }
    Ok(renewed(outcome))
}

pub(crate) fn renewed(outcome: RenewReply) -> Reply {
    match outcome {
        RenewReply::Lease(lease) => Reply::Number(lease.0),
        RenewReply::NotHeld => Reply::Nil,
        RenewReply::Shared => SHARED,
        RenewReply::TooFarAhead(most) => too_far_ahead(most),
        RenewReply::NotALock => NOT_A_LOCK,
        RenewReply::TryAgain => MOVING,
    }
}

/// Returns the error for a requested token that is larger than `most`, the largest that a holder may set.
fn too_far_ahead(most: u64) -> Reply {
    error(format!(
        "ERR invalid TOKEN: ahead of this server's clock by more than a day, over {most}"
    ))
}
