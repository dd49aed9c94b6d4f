//! Why what was held is lost.

use std::fmt;

/// Why a lock or permits are [lost](crate::Guard::lost).
///
/// That a lock is lost never depends on anybody saying so: at the latest it is when its time is
/// over. So of a server that cannot be reached nobody hears more than [`Expired`](Self::Expired),
/// whatever has happened there.
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
    /// Its time is over: a fixed lease, renewals that did not get through, or those of the heartbeat
    /// of what is [bound](crate::Lock::bound).
    Expired,
    /// Its time is over, since too few replicas have confirmed the last renewals; see
    /// [`Builder::min_replicas`](crate::Builder::min_replicas).
    NotReplicated,
    /// Somebody took it away with `LOCK.FORCERELEASE`.
    Forced,
    /// The key was deleted, flushed, or written over.
    Deleted,
    /// Another owner holds it.
    Taken,
    /// The server does not know of it any more: it was taken away, or forgotten in a restart or
    /// failover, and nobody has seen which.
    Gone,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease has ended",
            Self::NotReplicated => "its lease has ended, since too few replicas have confirmed it",
            Self::Forced => "its release was forced",
            Self::Deleted => "its key was deleted or written over",
            Self::Taken => "another owner has it",
            Self::Gone => "the server does not know of it any more",
        })
    }
}
