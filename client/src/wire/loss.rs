//! The reason for the loss of a lock, or for the end of a leadership.

use crate::wire::value::Read;
use redis::{ParsingError, Value};
use std::fmt;

/// Reason for which a holder no longer holds its lock or permits. A holder gets it with a
/// [loss](crate::Held::lost), an observer for the [last holder](crate::Observer::last_loss).
///
/// A holder and its observers get the same reason if the server reports it to both. If several holders lose the
/// lock before a report arrives, its reason is that of the latest loss. If the server cannot be reached, the
/// holder's own clock decides, whatever has happened on the server: the reason is [`Expired`](Self::Expired) or
/// [`SessionEnded`](Self::SessionEnded).
///
/// ```no_run
/// # async fn example(guard: kvlock::Guard) {
/// match guard.lost().await {
///     kvlock::Loss::Forced => println!("an operator released it"),
///     why => println!("{why}"),
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The holder released it, or the leader resigned. Seen by observers; by a holder only if another client
    /// releases the lock with the same owner.
    Released,
    /// The lease ended: it was fixed, or the renewals failed. Seen by the holder and by observers.
    Expired,
    /// The lease ended, since too few replicas acknowledged the last renewals; see
    /// [`Builder::min_replicas`](crate::Builder::min_replicas). Seen by the holder; observers see
    /// [`Expired`](Self::Expired).
    NotReplicated,
    /// The lock was [bound](crate::Lock::bound) to a session, and the session ended or its heartbeats failed.
    /// Seen by the holder and by observers.
    SessionEnded,
    /// The server took the grant back, since the client disconnected before it received the grant. Seen by
    /// observers.
    TakenBack,
    /// The lock was taken away with `LOCK.FORCERELEASE`. Seen by the holder, if the lock is
    /// [observed](crate::Lock::observed), and by observers.
    Forced,
    /// The key was deleted or overwritten. Seen by the holder, if the lock is observed or the key now holds
    /// something else, and by observers.
    Deleted,
    /// The database was flushed. Seen by the holder, if the lock is observed, and by observers.
    Flushed,
    /// Another owner holds the lock. Seen by the former holder; observers see the new holder.
    Taken,
    /// The server no longer has this grant, and the reason is not known. A holder sees it if its
    /// lock is not observed, or was lost in a restart or failover. An observer sees it if a newer server
    /// reports a reason that this version does not know.
    Forgotten,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Released => "it was released",
            Self::Expired => "its lease has ended",
            Self::NotReplicated => "its lease has ended, since too few replicas have confirmed it",
            Self::SessionEnded => "the session that it was bound to has ended",
            Self::TakenBack => "its client disconnected before it received the grant",
            Self::Forced => "its release was forced",
            Self::Deleted => "its key was deleted or written over",
            Self::Flushed => "its database was flushed",
            Self::Taken => "another owner holds it",
            Self::Forgotten => "the server does not know of it any more",
        })
    }
}

impl Read for Loss {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        Ok(match &*Vec::<u8>::read(value, what)? {
            b"released" => Self::Released,
            b"expired" => Self::Expired,
            b"forced" => Self::Forced,
            b"deleted" => Self::Deleted,
            b"flushed" => Self::Flushed,
            b"taken-back" => Self::TakenBack,
            b"gone" => Self::SessionEnded,
            _ => Self::Forgotten,
        })
    }
}
