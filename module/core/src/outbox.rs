//! The outcomes of a session's waits, kept until the client acknowledges them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use crate::account::{Account, Charged, Quota, WAIT_BYTES};
use crate::free::{Free, free_one_of};
use crate::ids::{GrantId, WaiterId};
use crate::key::LockKey;
use crate::lock::AcquireReply;
use crate::news::{LossReason, VersionedState};
use crate::token::Token;
use crate::types::MonoMillis;

/// Outcome of one wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Key that was waited for.
    pub key: LockKey,
    /// Owner that waited.
    pub owner: Rc<[u8]>,
    /// Result of the wait.
    pub ending: Ending,
}

/// Result of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The owner was granted the lock, the permits or the set of locks.
    Granted(Granted),
    /// The latch is open.
    Open,
    /// The waiter's ready-key exists, so the waiter needs no lock.
    Ready,
    /// The timeout passed.
    TimedOut,
    /// The wait was cancelled.
    Cancelled,
    /// A later wait of the same owner replaced this one, or the owner acquired the lock or permits
    /// while this wait was passed over.
    Replaced,
    /// The waiter was removed: the server cannot serve it at all, or not now.
    Dismissed(Dismissal),
    /// The state of an observed lock has changed.
    Changed(Changed),
}

impl Ending {
    /// The change of an observed lock, if the result is such a change.
    fn changed(&self) -> Option<&Changed> {
        if let Self::Changed(changed) = self { Some(changed) } else { None }
    }
}

/// A change of an observed lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub(crate) observer: WaiterId,
    /// State of the lock now.
    pub news: Rc<VersionedState>,
    /// Reason for the latest loss of the lock. `None` if no holder has lost the lock since the
    /// observer last acknowledged a change or asked for the state.
    pub why: Option<LossReason>,
}

/// A grant to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The grant.
    pub id: GrantId,
    /// The token of the grant; [`Token::NONE`] for a semaphore.
    pub token: Token,
    /// Number of holds or permits that the owner has after the grant. For a set of locks: holds of
    /// the first lock.
    pub holds: u64,
    /// Number of permits granted by a semaphore; 0 for a lock.
    pub permits: u64,
    /// Time of the grant.
    pub at: MonoMillis,
}

/// Reason for which a waiter is removed without being served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dismissal {
    /// The module is being drained.
    Draining,
    /// The slot of the key is moving.
    Moving,
    /// The owner would hold more permits than the semaphore has.
    TooMany,
    /// The semaphore no longer exists.
    Unset,
    /// What the owner holds has changed, so that its request for permits or for a set of locks no
    /// longer fits. Contains the reply that the request would get now.
    Misfit(AcquireReply),
    /// The server takes no writes; contains its error message.
    Server(Rc<[u8]>),
}

/// A grant to a waiter, with what is needed to take it back if it is never sent to its client.
#[derive(Debug, PartialEq, Eq)]
pub struct UnsentGrant {
    /// The lock, or the semaphore whose permits were granted.
    pub key: LockKey,
    /// The owner that the grant is for.
    pub owner: Rc<[u8]>,
    /// The grant.
    pub id: GrantId,
    /// The token of the grant; [`Token::NONE`] for a semaphore.
    pub token: Token,
    /// Number of permits granted by a semaphore; 0 for a lock.
    pub permits: u64,
}

/// The outcomes of one session, numbered from 1. A change that is dropped leaves a gap in the
/// numbers.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// The account of the session's user.
    account: Account,
    kept: BTreeMap<u64, Charged<Outcome>>,
    /// For each observer with a change that is kept: the number of that change.
    changes: BTreeMap<WaiterId, u64>,
    /// Number of the latest outcome.
    last: u64,
    /// Number of the latest outcome that was sent in a reply. The client may have read all outcomes
    /// up to it.
    pub(crate) sent: u64,
    /// Number of the latest outcome that the client has acknowledged. This outcome and all earlier
    /// ones are dropped, some at a time.
    acked: u64,
}

impl Outcome {
    /// Estimated memory, in bytes.
    fn bytes(&self) -> usize {
        let names = self.key.name.len().saturating_add(self.owner.len());
        let news = self.ending.changed().map_or(0, |changed| changed.news.bytes());
        WAIT_BYTES.saturating_add(names).saturating_add(news)
    }
}

impl Free for Outbox {
    fn free_one(&mut self) -> bool {
        free_one_of(&mut [&mut self.kept, &mut self.changes])
    }
}

impl Outbox {
    /// An empty outbox. Its outcomes are charged to this account.
    pub(crate) fn of(account: Account) -> Self {
        Self { account, ..Self::default() }
    }

    pub(crate) fn push(&mut self, outcome: Outcome) {
        self.last = self.last.saturating_add(1);
        let charge = self.account.charge(Quota::Waits, outcome.bytes());
        self.kept.insert(self.last, Charged::new(outcome, charge));
    }

    fn note_dropped(&mut self, number: u64, outcome: &Outcome) {
        if let Some(Changed { observer, .. }) = outcome.ending.changed()
            && self.changes.get(observer) == Some(&number)
        {
            self.changes.remove(observer);
        }
    }

    /// The change that is kept for an observer.
    pub(crate) fn change_of(&self, observer: WaiterId) -> Option<&VersionedState> {
        let outcome = self.kept.get(self.changes.get(&observer)?)?;
        outcome.ending.changed().map(|changed| &*changed.news)
    }

    /// Drops the change that is kept for an observer. Returns whether there was one.
    pub(crate) fn forget_change(&mut self, observer: WaiterId) -> bool {
        let Some(number) = self.changes.remove(&observer) else { return false };
        self.kept.remove(&number).is_some()
    }

    /// Adds a change and drops the earlier change of the same observer. If the earlier change was
    /// not sent yet, the new change takes its number. Otherwise the new change gets a new number,
    /// because the client may have read the earlier one. The reason for a loss is kept until the
    /// client acknowledges a change that reports it.
    pub(crate) fn push_change(&mut self, key: LockKey, owner: Rc<[u8]>, mut changed: Changed) {
        let observer = changed.observer;
        let before = self.changes.get(&observer).copied();
        if let Some(number) = before.filter(|number| *number > self.acked)
            && let Some(outcome) = self.kept.get_mut(&number)
            && let Ending::Changed(before) = &mut outcome.ending
        {
            changed.why = changed.why.or(before.why);
            if number > self.sent {
                *before = changed;
                return;
            }
        }
        self.forget_change(observer);
        self.push(Outcome { key, owner, ending: Ending::Changed(changed) });
        self.changes.insert(observer, self.last);
    }

    /// Number of outcomes kept.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Number of the latest outcome.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn acknowledge(&mut self, ack: u64) {
        self.acked = self.acked.max(ack);
    }

    /// Drops up to `most` acknowledged outcomes. Returns their number.
    pub(crate) fn prune(&mut self, most: usize) -> usize {
        let before = self.kept.len();
        for _ in 0..most {
            let Some(entry) = self.kept.first_entry().filter(|first| *first.key() <= self.acked)
            else {
                break;
            };
            let (number, outcome) = entry.remove_entry();
            self.note_dropped(number, &outcome);
        }
        before.saturating_sub(self.kept.len())
    }

    /// Returns whether there are acknowledged outcomes left to drop.
    pub(crate) fn has_acknowledged(&self) -> bool {
        self.kept.first_key_value().is_some_and(|(first, _)| *first <= self.acked)
    }

    /// Returns the outcomes with a larger number that are not acknowledged, oldest first.
    pub(crate) fn after(&self, number: u64) -> impl Iterator<Item = (u64, &Outcome)> {
        let range = (Bound::Excluded(number.max(self.acked)), Bound::Unbounded);
        self.kept.range(range).map(|(number, outcome)| (*number, &**outcome))
    }

    /// Removes the oldest outcome. If the outcome is a grant and was never sent, returns the grant.
    pub(crate) fn take_first(&mut self) -> Option<Option<UnsentGrant>> {
        let (number, outcome) = self.kept.pop_first()?;
        self.note_dropped(number, &outcome);
        let told = number <= self.sent;
        Some(match outcome.into_inner() {
            Outcome { key, owner, ending: Ending::Granted(granted) } if !told => {
                let Granted { id, token, permits, .. } = granted;
                Some(UnsentGrant { key, owner, id, token, permits })
            }
            _ => None,
        })
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let changes = self.kept.iter().filter_map(|(number, outcome)| {
            outcome.ending.changed().map(|changed| (changed.observer, *number))
        });
        let changes: Vec<_> = changes.collect();
        let is_known = |(observer, number)| self.changes.get(&observer) == Some(&number);
        if changes.len() != self.changes.len() || !changes.iter().copied().all(is_known) {
            return Err(format!("I20: {changes:?} are kept, {:?} known", self.changes));
        }
        if self.acked > self.sent || self.sent > self.last {
            return Err(format!(
                "I16: {} acknowledged, {} sent, {} posted",
                self.acked, self.sent, self.last
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
