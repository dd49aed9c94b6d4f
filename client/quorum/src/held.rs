//! The parts of a quorum's lock at its servers, and whether they are a majority.
//!
//! Each part is a separate guard, and is lost separately. The client of its server renews it, unless the
//! lease is fixed. Parts that are not lost are counted:
//!
//! ```text
//!   server 1  ├──────────────────────────┤ until
//!   server 2  ├───────────────────────────────┤
//!   server 3  ├─────────────────────┤
//!   server 4  lost
//!   server 5  could not be reached
//! ```
//!
//! The lock ends when the leases that have not ended are no longer a majority: here, where a
//! majority is three, when the lease of server 3 ends.
//!
//! - **Q1** At every moment from the grant until the loss a majority of parts was held without a gap. A
//!   part that is acquired later, or again, counts only if the others are a majority without it. Then there
//!   was no other majority in between.
//! - **Q2** A lost lock stays lost.

use crate::member::Term;
use crate::sync::lock;
use futures_util::future::select_all;
use kvlock::{Guard, Loss, LossWatch, Token};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

pub(crate) struct Held {
    pub(crate) key: Arc<[u8]>,
    pub(crate) token: Token,
    pub(crate) term: Term,
    majority: usize,
    parts: Mutex<Parts>,
    changed: Notify,
}

struct Parts {
    phase: Phase,
    /// Guards by server.
    guards: Vec<Option<Guard>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    Lost(Loss),
    Released,
}

impl Parts {
    fn alive(&self) -> impl Iterator<Item = &Guard> {
        self.guards.iter().flatten().filter(|guard| !guard.is_lost())
    }
}

impl Held {
    pub(crate) fn new(
        key: Arc<[u8]>,
        token: Token,
        term: Term,
        majority: usize,
        guards: Vec<Option<Guard>>,
    ) -> Self {
        let parts = Mutex::new(Parts { phase: Phase::Held, guards });
        Self { key, token, term, majority, parts, changed: Notify::new() }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.why_lost().is_some()
    }

    /// Returns why the lock was lost, if it was. If fewer parts than a majority are held, marks the lock as
    /// lost, with the reason of a lost part. Then it releases the other parts, which would only block other
    /// clients.
    pub(crate) fn why_lost(&self) -> Option<Loss> {
        let mut parts = lock(&self.parts);
        if parts.phase == Phase::Held && parts.alive().count() < self.majority {
            let why = parts.guards.iter().flatten().find_map(|guard| guard.why_lost());
            // At first a majority of parts was held, so one of them is lost and has a reason.
            let why = why.unwrap_or(Loss::Expired);
            parts.phase = Phase::Lost(why);
            let guards = std::mem::take(&mut parts.guards);
            drop(parts);
            drop(guards);
            self.changed.notify_waiters();
            tracing::warn!(key = %self.key.escape_ascii(), token = %self.token, %why, "no majority holds it any more");
            return Some(why);
        }
        match parts.phase {
            Phase::Lost(why) => Some(why),
            Phase::Held | Phase::Released => None,
        }
    }

    /// Returns whether the lock is neither lost nor released.
    pub(crate) fn is_alive(&self) -> bool {
        !self.is_lost() && lock(&self.parts).phase == Phase::Held
    }

    /// Waits until the lock is lost, and returns the reason.
    pub(crate) async fn lost(&self) -> Loss {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(why) = self.why_lost() {
                return why;
            }
            // Watches, not guards: a pending `lost()` must not keep the guards of a lost lock alive.
            let parts: Vec<LossWatch> =
                lock(&self.parts).alive().map(|part| part.watch()).collect();
            if parts.is_empty() {
                changed.await;
                continue;
            }
            let ended = parts.iter().map(|part| Box::pin(part.ended()));
            tokio::select! {
                _ = select_all(ended) => {}
                () = changed => {}
            }
        }
    }

    /// Returns the time for which a majority of the leases lasts.
    pub(crate) fn left(&self) -> Duration {
        if self.is_lost() {
            return Duration::ZERO;
        }
        let mut left: Vec<Duration> =
            lock(&self.parts).alive().map(|guard| guard.lease_left()).collect();
        left.sort_unstable_by(|a, b| b.cmp(a));
        left.get(self.majority - 1).copied().unwrap_or_default()
    }

    /// Returns the number of servers on which the lock is held.
    pub(crate) fn count(&self) -> usize {
        lock(&self.parts).alive().count()
    }

    /// Returns the servers on which the lock is not held.
    pub(crate) fn missing(&self) -> Vec<usize> {
        let parts = lock(&self.parts);
        let missing = parts.guards.iter().enumerate().filter(|(_, guard)| {
            let held = guard.as_ref().is_some_and(|guard| !guard.is_lost());
            !held
        });
        missing.map(|(server, _)| server).collect()
    }

    /// Adds a part if that is safe, else releases it. (Q1)
    pub(crate) fn join(&self, server: usize, guard: Guard) {
        if !self.is_alive() {
            return;
        }
        let before = {
            let mut parts = lock(&self.parts);
            // The lock may have been released or lost since the question was asked.
            if parts.phase != Phase::Held || parts.alive().count() < self.majority {
                Some(guard)
            } else {
                match parts.guards.get_mut(server) {
                    Some(part) if part.as_ref().is_none_or(|part| part.is_lost()) => {
                        part.replace(guard)
                    }
                    _ => Some(guard),
                }
            }
        };
        // Dropped after the mutex is unlocked, because the drop of a guard starts its release.
        drop(before);
        self.changed.notify_waiters();
    }

    /// Removes and returns all parts, for their release, and the reason if the lock was lost already.
    pub(crate) fn take(&self) -> (Option<Loss>, Vec<Guard>) {
        let lost = self.why_lost();
        let mut parts = lock(&self.parts);
        if parts.phase == Phase::Held {
            parts.phase = Phase::Released;
        }
        let guards = std::mem::take(&mut parts.guards);
        (lost, guards.into_iter().flatten().collect())
    }
}
