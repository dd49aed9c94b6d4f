//! Why what was held is lost.

use std::fmt;

/// Why a lock or permits are [lost](crate::Guard::lost).
///
/// Nothing has to be reported for a lock to be lost: its lease ends. So if the server cannot be reached
/// the reason is [`Expired`](Self::Expired), whatever has happened there.
///
/// How the holder that others observe has ended is a [`Departure`](crate::Departure).
///
/// ```no_run
/// # async fn example(guard: kvlock::Guard) {
/// match guard.lost().await {
///     kvlock::Loss::Forced => println!("an operator wanted it so"),
///     why => println!("{why}"),
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// Its lease has ended: a fixed lease, or the renewals failed, or the heartbeat of a
    /// [bound](crate::Lock::bound) lock failed.
    Expired,
    /// Its lease has ended, since too few replicas have confirmed the last renewals; see
    /// [`Builder::min_replicas`](crate::Builder::min_replicas).
    NotReplicated,
    /// It was taken away with `LOCK.FORCERELEASE`.
    Forced,
    /// The key was deleted, flushed, or written over.
    Deleted,
    /// Another owner holds it.
    Taken,
    /// The server does not know this grant any more, for a reason that was not seen: it was taken away,
    /// or lost in a restart or failover.
    Forgotten,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease has ended",
            Self::NotReplicated => "its lease has ended, since too few replicas have confirmed it",
            Self::Forced => "its release was forced",
            Self::Deleted => "its key was deleted or written over",
            Self::Taken => "another owner holds it",
            Self::Forgotten => "the server does not know of it any more",
        })
    }
}
