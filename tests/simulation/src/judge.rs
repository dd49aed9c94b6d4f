//! The rules that a run must not break.

use crate::wire::{ClientId, Key, Owner, ServerId};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// A rule that a run can break. S2, S3, S5 and L2 are promises of `docs/guarantees.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// S2: two owners that do not share a lock believed at the same moment that they hold it, or an owner
    /// believed in a quorum's grant after a later grant.
    Belief,
    /// S3: a token was not larger than the tokens that the same or an earlier primary issued for the lock, or
    /// the token changed during a hold.
    Tokens,
    /// S5: a waiter was lost, had two places, or was answered twice.
    Waiters,
    /// L2: a later waiter was served first.
    Order,
    /// An owner's number of holds, or its token, differs from what the owner assumes.
    Holds,
    /// The resource accepted a write of an earlier grant after a write of a later grant.
    Stale,
    /// The module wrote in an event handler, or while writes were paused.
    Forbidden,
    /// A session received an outcome twice or never, was granted a lock after its reader had disconnected, or
    /// received a grant that was then revoked. A session, or a lock bound to it, existed for too long.
    Sessions,
    /// The lock table is inconsistent: see `Table::check`.
    Table,
    /// An owner held, or waited for, only a part of its set of locks, or held a lock while it waited.
    Sets,
    /// A client stored a result without holding the lock, or was answered `ready` without a result or while
    /// it held a lock.
    Results,
    /// A lease was lost, although all its renewals could have been answered in time.
    Lost,
    /// After all faults ended, a waiter was not served, or state was left behind. Or the crate reported an
    /// unexpected error.
    Left,
}

/// The first violation in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The broken rule.
    pub rule: Rule,
    /// Number of the step.
    pub step: u64,
    /// Description for the reader.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in step {}: {}", self.rule, self.step, self.text)
    }
}

macro_rules! counts {
    ($($name:ident)*) => {
        /// Counts of events, so that tests can require that these events have happened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each is a number of what it is called")]
        pub struct Counts {
            $(pub $name: u64,)*
        }

        impl Counts {
            /// Adds the counts of another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    steps faults promotions crashes granted handed_off taken_back believed reentered renewed lost writes
    writes_refused quorums cancelled outcomes bound bound_released overlapping stalls
    sets_wanted sets_granted sets_waited stored
    told_ready
}

/// A user that may believe that it holds a lock.
pub(crate) trait Believer {
    fn believes(&self) -> bool;
}

pub(crate) struct Belief {
    pub(crate) client: ClientId,
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) shared: bool,
    pub(crate) token: u64,
    pub(crate) holder: Rc<dyn Believer>,
}

/// Range of the tokens of a lock that one server issued after one start or promotion.
#[derive(Clone, Copy, Debug)]
struct Band {
    generation: u64,
    least: u64,
    most: u64,
}

#[derive(Default)]
pub(crate) struct Judge {
    pub(crate) first: Option<Violation>,
    pub(crate) counts: Counts,
    pub(crate) beliefs: Vec<Belief>,
    pub(crate) promises_belief: bool,
    pub(crate) promises_tokens: bool,
    pub(crate) promises_leases: bool,
    pub(crate) fence: bool,
    /// Ranges of issued tokens, by line of servers and key. Servers that replace each other are one line. Each
    /// server of a quorum is a line of its own.
    bands: BTreeMap<(ServerId, Key), Vec<Band>>,
    /// The token of the latest grant of a quorum, for each lock.
    held: BTreeMap<Key, u64>,
    /// The last write that each lock's resource has accepted.
    written: BTreeMap<Key, (u64, Owner)>,
}

impl Judge {
    pub(crate) fn add_belief(&mut self, belief: Belief) {
        self.counts.believed += 1;
        self.beliefs.push(belief);
    }

    /// Records that an owner gives up its lock, and whether the owner still believes that it holds the lock.
    pub(crate) fn gives_up(&mut self, owner: Owner, believes: bool) {
        self.counts.lost += u64::from(!believes);
        if !believes && self.promises_leases {
            self.fail(Rule::Lost, format!("{owner:?} has lost its lock"));
        }
        self.beliefs.retain(|it| it.owner != owner);
    }

    pub(crate) fn fail(&mut self, rule: Rule, text: String) {
        let step = self.counts.steps;
        self.first.get_or_insert(Violation { rule, step, text });
    }

    /// Records a token and the generation of the primary that issued it, and checks the order of the tokens.
    pub(crate) fn issued(&mut self, line: ServerId, generation: u64, key: Key, token: u64) {
        let bands = self.bands.entry((line, key)).or_default();
        let wrong = bands.iter().any(|band| {
            let not_above = band.generation <= generation && token <= band.most;
            not_above || (band.generation > generation && token >= band.least)
        });
        match bands.iter_mut().find(|band| band.generation == generation) {
            Some(band) => band.most = band.most.max(token),
            None => bands.push(Band { generation, least: token, most: token }),
        }
        if wrong && self.promises_tokens {
            let text = format!("token {token} of lock {key} under primary {generation}: {bands:?}");
            self.fail(Rule::Tokens, text);
        }
    }

    pub(crate) fn largest_token(&self) -> u64 {
        self.bands.values().flatten().map(|band| band.most).max().unwrap_or(0)
    }

    /// Records that a majority of servers has granted a lock.
    pub(crate) fn held_by_quorum(&mut self, key: Key, token: u64) {
        self.counts.quorums += 1;
        let before = self.held.insert(key, token).unwrap_or(0);
        if token <= before && self.promises_tokens {
            self.fail(Rule::Tokens, format!("a quorum's token {token} of {key} after {before}"));
        }
    }

    /// Checks a write that arrives at the resource. Returns whether the resource accepts it.
    pub(crate) fn lands(&mut self, key: Key, owner: Owner, token: u64) -> bool {
        self.counts.writes += 1;
        let before = self.written.get(&key);
        let is_stale = |(most, by): &&(u64, Owner)| token < *most || token == *most && owner != *by;
        if let Some(before) = before.filter(is_stale) {
            if self.fence {
                self.counts.writes_refused += 1;
                return false;
            }
            let text = format!("{owner:?} with {token} wrote to {key} after {before:?}");
            self.fail(Rule::Stale, text);
        }
        self.written.insert(key, (token, owner));
        true
    }

    /// Checks that no two owners believe that they hold the same lock, except sharers.
    pub(crate) fn look_at_beliefs(&mut self) {
        if !self.promises_belief {
            return;
        }
        self.look_at_old_tokens();
        let found = self.beliefs.iter().enumerate().find_map(|(at, one)| {
            let others = self.beliefs.iter().skip(at + 1);
            let mut same = others.filter(|other| {
                other.key == one.key && other.owner != one.owner && !(other.shared && one.shared)
            });
            let other = same.find(|other| one.holder.believes() && other.holder.believes())?;
            Some(format!(
                "clients {} as {:?} with {} and {} as {:?} with {} believe to hold {}",
                one.client, one.owner, one.token, other.client, other.owner, other.token, one.key
            ))
        });
        if let Some(text) = found {
            self.fail(Rule::Belief, text);
        }
    }

    /// Checks that no owner believes in a lock whose latest grant by a quorum has a larger token.
    pub(crate) fn look_at_old_tokens(&mut self) {
        let old = self.beliefs.iter().find(|belief| {
            let latest = self.held.get(&belief.key).copied().unwrap_or(0);
            belief.token < latest && belief.holder.believes()
        });
        let text = old.map(|old| {
            let Belief { client, key, token, .. } = old;
            format!("client {client} believes to hold {key} with {token} after {:?}", self.held)
        });
        if let Some(text) = text.filter(|_| self.promises_tokens) {
            self.fail(Rule::Belief, text);
        }
    }
}
