//! What has become of waits through a session, until its client says that it knows.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use crate::account::{Account, Charged, Kept, WAIT_BYTES};
use crate::forget::Free as _;
use crate::grant::GrantId;
use crate::key::LockKey;
use crate::observers::{Gone, News};
use crate::planted::Bug;
use crate::queue::WaiterId;
use crate::token::Token;
use crate::types::MonoMillis;

/// What has become of one place in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was waited for.
    pub key: LockKey,
    /// For whom.
    pub owner: Rc<[u8]>,
    /// How it ended.
    pub ending: Ending,
}

/// How a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The owner has it.
    Granted(Granted),
    /// The latch is open.
    Open,
    /// The result exists for which it waited instead of the lock.
    Ready,
    /// Its time was over.
    TimedOut,
    /// Somebody withdrew it.
    Cancelled,
    /// A later wait of its owner, through somebody else, has its place.
    Replaced,
    /// It cannot be served here, or not now.
    Dismissed(Dismissal),
    /// The lock that is observed stands otherwise.
    Changed(Changed),
}

impl Ending {
    /// What is news of an observed lock, if it is that.
    fn changed(&self) -> Option<&Changed> {
        if let Self::Changed(changed) = self { Some(changed) } else { None }
    }
}

/// What an observer hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub(crate) observer: WaiterId,
    /// How the lock stands now.
    pub news: Rc<News>,
    /// How the latest holder went since what the observer has acknowledged.
    pub why: Option<Gone>,
}

/// A grant that a session hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Which grant.
    pub id: GrantId,
    /// Its token; of a semaphore it says nothing.
    pub token: Token,
    /// How many holds or permits the owner has by it.
    pub holds: u64,
    /// How many permits of a semaphore it was.
    pub permits: u64,
    /// When it was given.
    pub at: MonoMillis,
}

/// Why a waiter is sent away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dismissal {
    /// The module is being drained.
    Draining,
    /// The slot of the key is moving.
    Moving,
    /// The semaphore has fewer permits than that.
    TooMany,
    /// The semaphore is not set any more.
    Unset,
    /// The server takes no writes, and this is what it says of that.
    Server(Rc<[u8]>),
}

/// A grant that was never sent to its client, and is to be taken back.
#[derive(Debug, PartialEq, Eq)]
pub struct Untold {
    /// What was granted.
    pub key: LockKey,
    /// To whom.
    pub owner: Rc<[u8]>,
    /// The grant.
    pub id: GrantId,
    /// Its token; of a semaphore it says nothing.
    pub token: Token,
    /// How many permits of a semaphore it was.
    pub permits: u64,
}

/// The outcomes of one session, numbered from 1 without a gap.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// The account of the session's user.
    account: Account,
    kept: BTreeMap<u64, Charged<Outcome>>,
    /// The change that is kept for each observer.
    changes: BTreeMap<WaiterId, u64>,
    /// The number of the latest.
    last: u64,
    /// The latest that was sent in a reply: the client may rely on it.
    pub(crate) sent: u64,
    /// The latest that the client has acknowledged; it and those before are as good as gone.
    acked: u64,
}

impl Outcome {
    /// Estimated memory, in bytes.
    fn bytes(&self) -> usize {
        let names = self.key.name.len().saturating_add(self.owner.len());
        let says = self.ending.changed().map_or(0, |changed| changed.news.bytes());
        WAIT_BYTES.saturating_add(names).saturating_add(says)
    }
}

impl Outbox {
    /// An empty one, whose outcomes are counted for this user.
    pub(crate) fn of(account: Account) -> Self {
        Self { account, ..Self::default() }
    }

    pub(crate) fn push(&mut self, outcome: Outcome) {
        self.last = self.last.saturating_add(1);
        let charge = self.account.charge(Kept::Waits, outcome.bytes());
        self.kept.insert(self.last, Charged::new(outcome, charge));
    }

    fn is_kept_no_more(&mut self, number: u64, outcome: &Outcome) {
        if let Some(Changed { observer, .. }) = outcome.ending.changed()
            && self.changes.get(observer) == Some(&number)
        {
            self.changes.remove(observer);
        }
    }

    /// The change that is kept for an observer.
    pub(crate) fn change_of(&self, observer: WaiterId) -> Option<&News> {
        let outcome = self.kept.get(self.changes.get(&observer)?)?;
        outcome.ending.changed().map(|changed| &*changed.news)
    }

    /// Drops the change that is kept for an observer. Says whether there was one.
    pub(crate) fn forget_change(&mut self, observer: WaiterId) -> bool {
        let Some(number) = self.changes.remove(&observer) else { return false };
        self.kept.remove(&number).is_some()
    }

    /// Keeps a change. One before that was not sent yet gives it its place, so that it waits no longer
    /// for its turn; one that was sent goes, since its number is taken for heard. So there is one at
    /// most, and how a holder went is said until it is acknowledged.
    pub(crate) fn push_change(&mut self, key: LockKey, owner: Rc<[u8]>, mut changed: Changed) {
        let observer = changed.observer;
        let before = self.changes.get(&observer).copied();
        if let Some(number) = before.filter(|number| *number > self.acked)
            && let Some(outcome) = self.kept.get_mut(&number)
            && let Ending::Changed(before) = &mut outcome.ending
        {
            changed.why = changed.why.or(before.why);
            if number > self.sent {
                if !Bug::OldNews.is_planted() {
                    *before = changed;
                }
                return;
            }
        }
        if !Bug::ChangesPileUp.is_planted() {
            self.forget_change(observer);
        }
        self.push(Outcome { key, owner, ending: Ending::Changed(changed) });
        self.changes.insert(observer, self.last);
    }

    /// Frees an entry. Returns false if there was none.
    pub(crate) fn free_one(&mut self) -> bool {
        self.kept.free_one() || self.changes.free_one()
    }

    /// How many are kept.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// The number of the latest.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn acknowledge(&mut self, ack: u64) {
        self.acked = self.acked.max(ack);
    }

    /// Drops some of those that are acknowledged; says how many.
    pub(crate) fn prune(&mut self, most: usize) -> usize {
        let before = self.kept.len();
        for _ in 0..most {
            let Some(entry) = self.kept.first_entry().filter(|first| *first.key() <= self.acked)
            else {
                break;
            };
            let (number, outcome) = entry.remove_entry();
            self.is_kept_no_more(number, &outcome);
        }
        before.saturating_sub(self.kept.len())
    }

    /// Says whether there are more to be dropped.
    pub(crate) fn has_acknowledged(&self) -> bool {
        self.kept.first_key_value().is_some_and(|(first, _)| *first <= self.acked)
    }

    /// Those after a number, oldest first.
    pub(crate) fn after(&self, number: u64) -> impl Iterator<Item = (u64, &Outcome)> {
        let range = (Bound::Excluded(number.max(self.acked)), Bound::Unbounded);
        self.kept.range(range).map(|(number, outcome)| (*number, &**outcome))
    }

    /// Takes out the oldest outcome; with its grant if that was never sent.
    pub(crate) fn take_first(&mut self) -> Option<Option<Untold>> {
        let (number, outcome) = self.kept.pop_first()?;
        self.is_kept_no_more(number, &outcome);
        let told = number <= self.sent && !Bug::WrittenTakenBack.is_planted();
        Some(match outcome.into_inner() {
            Outcome { key, owner, ending: Ending::Granted(granted) } if !told => {
                let Granted { id, token, permits, .. } = granted;
                Some(Untold { key, owner, id, token, permits })
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
