//! Sets of locks. The model acquires the locks one after the other on a copy of itself, and keeps
//! the copy if all were granted.

use kvlock_core::Member;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::drive::{acquired, of};
use super::naive::{Answer, Naive, Sent, What};
use super::names::{KEYS, Key};
use super::ops::{Request, Role};
use super::world::World;
use crate::sim::{Asked, key_ref};

/// Returns the keys of a set. The flag marks a key of `UNDER`.
fn keys(first: Key, roles: [Role; 2]) -> Vec<(Key, bool)> {
    let others = [1, 2].map(|step| (first + step) % KEYS.len());
    let others = others.into_iter().zip(roles).filter(|(_, role)| *role != Role::Out);
    let others = others.map(|(key, role)| (key, role == Role::Under));
    std::iter::once((first, false)).chain(others).collect()
}

impl World {
    pub fn acquire_set(
        &mut self,
        first: Key,
        request: &Request,
        roles: [Role; 2],
        held: bool,
    ) -> Result<(Answer, Vec<Sent>), TestCaseError> {
        let (now, floor) = (self.clock.now(), self.model.floor);
        let members = keys(first, roles).into_iter().map(|(key, under)| {
            let in_line = self.table.waiters_of(key_ref(&self.names[key])) > 0;
            let searched = !(request.shared || under || in_line || held);
            let living_at = searched.then_some(now.unix());
            let asked = Asked { owner: request.owner.as_bytes(), living_at };
            let at = self.space.situation(&self.names[key], asked, now, floor);
            Member { at, under }
        });
        let members: Vec<_> = members.collect();
        let (reply, changes) = if held {
            self.table.acquire_set_held(&members, &of(request), None)
        } else {
            self.table.acquire_set(&members, &of(request), None)
        };
        let granted = matches!(acquired(reply), Answer::Granted { .. });
        prop_assert_eq!(changes.len(), if granted { members.len() } else { 0 });
        for ((key, _), change) in keys(first, roles).into_iter().zip(changes) {
            prop_assert!(self.apply(key, request.owner, change)?.is_empty());
        }
        Ok((acquired(reply), Vec::new()))
    }
}

impl Naive {
    pub fn acquire_set(
        &mut self,
        first: Key,
        request: &Request,
        roles: [Role; 2],
        held: bool,
    ) -> Answer {
        let keys = keys(first, roles);
        let repeats = request.holds.is_some() && self.held(first, request) == request.holds;
        let mut copy = self.clone();
        copy.of_set = Some((keys.iter().filter_map(|(key, _)| self.token(*key)).max(), None));
        let (mut refused, mut token, mut holds) = (false, 0, None);
        for (key, under) in keys {
            let part = self.part(key, request, under, repeats);
            let had = self.held(key, &part).filter(|had| *had > 0);
            let answer = match (self.locks[key].what, had) {
                (What::Other, _) => Answer::NotALock,
                (_, None) if held => Answer::Nil,
                (_, Some(had)) if held && part.holds.is_some_and(|wanted| wanted != had) => {
                    Answer::Mismatch
                }
                _ if held => copy.try_acquire(key, &Request { holds: had, ..part }),
                _ => copy.try_acquire(key, &part),
            };
            match answer {
                Answer::Granted { token: granted, holds: held } => {
                    if !under {
                        token = token.max(granted);
                    }
                    holds = holds.or(Some(held));
                }
                Answer::Nil => refused = true,
                Answer::TooFarAhead(_)
                | Answer::Left(_)
                | Answer::Lease(_)
                | Answer::Blocked
                | Answer::QueueFull
                | Answer::Draining
                | Answer::Yes
                | Answer::No => unreachable!("{answer:?} is no reply to an acquire"),
                Answer::Mismatch
                | Answer::TooManyHolds
                | Answer::Upgrade
                | Answer::NotALock
                | Answer::TryAgain => return answer,
            }
        }
        if refused {
            self.counters.refused += u64::from(!held);
            return Answer::Nil;
        }
        copy.of_set = None;
        *self = copy;
        Answer::Granted { token, holds: holds.unwrap() }
    }

    /// Returns the request for one key of a set. `HOLDS n` applies to all keys except those of
    /// `UNDER`, which get one more hold unless the request is a repetition for the first key.
    fn part(&self, key: Key, request: &Request, under: bool, repeats: bool) -> Request {
        if !under {
            return *request;
        }
        let part = Request { shared: true, holds: None, ..*request };
        let holds = self.held(key, &part).filter(|held| repeats && *held > 0);
        Request { holds, ..part }
    }

    /// Number of holds that the owner has in the mode of the request; `None` or 0 if it has none.
    fn held(&self, key: Key, request: &Request) -> Option<u64> {
        match self.locks[key].what {
            What::Held { owner, holds, shared, .. } if owner == request.owner => {
                Some(if request.shared { shared } else { holds })
            }
            What::Shared(_) if request.shared => {
                self.share_of(key, request.owner).map(|(holds, _)| holds)
            }
            What::Free(_) | What::Held { .. } | What::Shared(_) | What::Other => None,
        }
    }

    pub fn token(&self, key: Key) -> Option<u64> {
        match self.locks[key].what {
            What::Held { token, .. } | What::Shared(token) | What::Free(token) => token,
            What::Other => None,
        }
    }
}
