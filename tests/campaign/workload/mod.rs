//! What tasks do to the servers, one file for each sort, and the ways by which they reach locks: a
//! server, Sentinels or a cluster by one client, or several servers by a quorum.

mod locks;

pub(crate) use locks::LOCKS;

use crate::round::Round;
use harness::random::Random;
use kvlock::{Client, Error, Guard, Quorum, QuorumGuard};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A task until the end of its round.
pub(crate) type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A sort of tasks.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) name: &'static str,
    /// The task with that number; it counts its turns in [`Round::turns`].
    pub(crate) run: fn(Arc<Round>, Way, usize, Random) -> Run,
}

/// By which locks are acquired.
#[derive(Clone)]
pub(crate) enum Way {
    One(Client),
    Several(Quorum),
}

/// A lock that is held.
pub(crate) enum Held {
    One(Guard),
    Several(QuorumGuard),
}

/// For how long a lock is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) lease: Duration,
    /// The watchdog renews it.
    pub(crate) watched: bool,
}

impl Way {
    /// Waits for that long at most; without a time it does not wait.
    pub(crate) async fn acquire(
        &self,
        key: &str,
        term: Term,
        within: Option<Duration>,
    ) -> Result<Option<Held>, Error> {
        // Nothing is not to wait.
        let within = within.unwrap_or_default();
        match self {
            Self::One(client) => {
                let lock = client.lock(key);
                let lock = match term.watched {
                    true => lock.lease(term.lease),
                    false => lock.fixed_lease(term.lease),
                };
                Ok(lock.acquire_within(within).await?.map(Held::One))
            }
            Self::Several(quorum) => {
                let lock = quorum.lock(key);
                let lock = match term.watched {
                    true => lock.lease(term.lease),
                    false => lock.fixed_lease(term.lease),
                };
                Ok(lock.acquire_within(within).await?.map(Held::Several))
            }
        }
    }

    /// Waits until all is done that was left to be done in the background.
    pub(crate) async fn settled(&self) {
        match self {
            Self::One(client) => client.settled().await,
            Self::Several(quorum) => quorum.settled().await,
        }
    }
}

impl Held {
    pub(crate) fn token(&self) -> u64 {
        match self {
            Self::One(guard) => guard.token().value(),
            Self::Several(guard) => guard.token().value(),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::One(guard) => guard.is_lost(),
            Self::Several(guard) => guard.is_lost(),
        }
    }

    pub(crate) fn lease_left(&self) -> Duration {
        match self {
            Self::One(guard) => guard.lease_left(),
            Self::Several(guard) => guard.lease_left(),
        }
    }

    pub(crate) async fn lost(&self) {
        match self {
            Self::One(guard) => {
                guard.lost().await;
            }
            Self::Several(guard) => guard.lost().await,
        }
    }

    pub(crate) async fn release(self) -> Result<(), Error> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Several(guard) => guard.release().await,
        }
    }
}
