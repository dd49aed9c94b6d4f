//! What a server stores: a few locks and the floor. As `module/src/keyspace.rs` reads it and
//! `module/src/writer.rs` writes it, without the bytes.

use crate::wire::{Key, Owner};
use kvlock_core::{Change, HandOff, Holding, Observed, Share, Sharing, Token, UnixMillis};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Held { owner: Owner, holds: u64, shared: u64, token: Token, until: UnixMillis },
    Shared { token: Token, until: UnixMillis, shares: BTreeMap<Owner, Share> },
}

impl Lock {
    pub(crate) fn until(&self) -> UnixMillis {
        match self {
            Self::Held { until, .. } | Self::Shared { until, .. } => *until,
        }
    }

    pub(crate) fn token(&self) -> Token {
        match self {
            Self::Held { token, .. } | Self::Shared { token, .. } => *token,
        }
    }

    /// Who holds or shares it at that time.
    pub(crate) fn holders(&self, now: UnixMillis) -> Vec<Owner> {
        match self {
            _ if self.until() < now => Vec::new(),
            Self::Held { owner, .. } => vec![*owner],
            Self::Shared { shares, .. } => {
                let living = shares.iter().filter(|(_, share)| share.is_live(now));
                living.map(|(owner, _)| *owner).collect()
            }
        }
    }
}

/// One change, as the replicas are told of it.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Lock(Key, Option<Lock>),
    Floor(u64),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Keyspace {
    locks: Vec<Option<Lock>>,
    pub(crate) floor: u64,
}

/// For whom a lock is read, and whether those who share it are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) owner: Owner,
    pub(crate) living: bool,
}

impl Keyspace {
    pub(crate) fn new(keys: usize) -> Self {
        Self { locks: vec![None; keys], floor: 0 }
    }

    pub(crate) fn lock(&self, key: Key) -> Option<&Lock> {
        self.locks[key].as_ref()
    }

    pub(crate) fn locks(&self) -> impl Iterator<Item = &Lock> {
        self.locks.iter().flatten()
    }

    pub(crate) fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Lock(key, lock) => self.locks[key] = lock,
            Effect::Floor(floor) => self.floor = floor,
        }
    }

    /// Reads a lock as the module does.
    pub(crate) fn observe<'a>(
        &'a self,
        key: Key,
        asked: &'a Asked,
        now: UnixMillis,
    ) -> Observed<'a> {
        let owner = asked.owner.bytes();
        match self.lock(key).filter(|lock| lock.until() >= now) {
            None => Observed::Free { stored: None },
            Some(Lock::Held { owner, holds, shared, token, until }) => Observed::Held(Holding {
                owner: owner.bytes(),
                holds: *holds,
                shared: *shared,
                token: Some(*token),
                until: Some(*until),
            }),
            Some(Lock::Shared { token, until, shares }) => {
                let found =
                    shares.values().find(|share| share.is_live(now)).filter(|_| asked.living);
                if asked.living && found.is_none() {
                    return Observed::Free { stored: Some(*token) };
                }
                Observed::Shared(Sharing {
                    asked: owner,
                    own: shares.get(&asked.owner).copied(),
                    token: Some(*token),
                    until: Some(*until),
                    holders: shares.len(),
                    living: found.map(|share| share.until),
                })
            }
        }
    }

    /// Does what the table says, for the owner that it speaks of, and says what became of the lock.
    /// `None`: that cannot be done to what is there.
    pub(crate) fn write<P>(
        &mut self,
        key: Key,
        caller: Owner,
        change: &Change<P>,
    ) -> Option<Effect> {
        let lock = &mut self.locks[key];
        match change {
            Change::None => {}
            Change::Take { token, until, .. } => *lock = Some(held(caller, *token, *until)),
            Change::HandOff(HandOff { owner, token, until, .. }) => {
                *lock = Some(held(Owner::read(owner), *token, *until));
            }
            Change::Free | Change::GiveWay => *lock = None,
            Change::Update { holds: more, token: given, until: end, .. } => {
                let Some(Lock::Held { holds, token, until, .. }) = lock else { return None };
                *holds = more.unwrap_or(*holds);
                *token = given.unwrap_or(*token);
                *until = end.unwrap_or(*until);
            }
            Change::Beside { holds, token: given, until: end } => {
                let Some(Lock::Held { shared, token, until, .. }) = lock else { return None };
                *shared = *holds;
                *token = given.unwrap_or(*token);
                *until = end.unwrap_or(*until);
            }
            Change::Leave => {
                let Some(Lock::Shared { shares, .. }) = lock else { return None };
                shares.remove(&caller);
            }
            Change::Share(sharers) => {
                if sharers.begins {
                    let (token, until) = (sharers.token?, sharers.until?);
                    *lock = Some(Lock::Shared { token, until, shares: BTreeMap::new() });
                }
                let Some(Lock::Shared { token, until, shares }) = lock else { return None };
                *token = sharers.token.unwrap_or(*token);
                *until = sharers.until.unwrap_or(*until);
                shares.extend(sharers.own.map(|share| (caller, share)));
                shares.extend(sharers.joined.iter().map(|hand_off| {
                    let share = Share { holds: 1, until: hand_off.until };
                    (Owner::read(&hand_off.owner), share)
                }));
            }
        }
        Some(Effect::Lock(key, lock.clone()))
    }

    /// Forgets a lock whose time is over. Says whether there was one.
    pub(crate) fn expire(&mut self, key: Key, now: UnixMillis) -> bool {
        let over = self.lock(key).is_some_and(|lock| lock.until() < now);
        if over {
            self.locks[key] = None;
        }
        over
    }
}

fn held(owner: Owner, token: Token, until: UnixMillis) -> Lock {
    Lock::Held { owner, holds: 1, shared: 0, token, until }
}
