//! Checks each change of a lock by the contents of its key.

use super::Node;
use crate::clock::MS;
use crate::floor::FLOOR_PREFIX;
use crate::judge::Rule;
use crate::redis::{Changed, Entry, Keyspace};
use crate::settings::{Safeguard, Scene};
use crate::sim::Sim;
use crate::wire::{Owner, Place, is_result, key_name, key_of, result_name};
use kvlock_core::{MODE_FIELD, Mode, Now, Share, TOKEN_FIELD, Token};

/// Distance of a token floor from the largest token while the safeguard `FloorsByClock` is off.
const AHEAD_US: u64 = 60_000 * MS;

/// A lock, as any client can read it.
#[derive(Debug, Default)]
struct LockState {
    token: u64,
    shared: bool,
    /// Owners that hold or share it under a lease that has not ended.
    holders: Vec<Owner>,
}

impl LockState {
    fn of(entry: Option<&Entry>, now: Now) -> Self {
        let now = now.unix();
        let Some(entry) = entry.filter(|entry| entry.until.is_none_or(|until| until >= now.0))
        else {
            return Self::default();
        };
        let field = |wanted| entry.fields.get(wanted).map(Vec::as_slice);
        let token = field(TOKEN_FIELD).and_then(Token::read).map_or(0, |token| token.value());
        let shared = field(MODE_FIELD).and_then(Mode::read) == Some(Mode::Shared);
        let lives = |value| !shared || Share::read(value).is_some_and(|share| share.is_live(now));
        let holders = entry.fields.iter().filter(|(_, value)| lives(value));
        let holders = holders.filter_map(|(owner, _)| Owner::read(owner)).collect();
        Self { token, shared, holders }
    }
}

/// Returns whether an owner holds the lock with that token.
pub(super) fn holds(keys: &Keyspace, (key, owner): Place, token: u64, now: Now) -> bool {
    let seen = LockState::of(keys.get(key_name(key).as_bytes()), now);
    seen.token == token && seen.holders.contains(&owner)
}

impl Node {
    /// Returns whether no lock is held on this server.
    pub(crate) fn is_free(&self, sim: &Sim) -> bool {
        let now = self.at(sim);
        self.host.keys.values().all(|entry| LockState::of(Some(entry), now).holders.is_empty())
    }

    /// The reserved floor of tokens; 0 if there is none.
    pub(super) fn floor(&self) -> u64 {
        let stored = self.host.keys.get(FLOOR_PREFIX).map_or(&[][..], Entry::string);
        String::from_utf8_lossy(stored).parse().unwrap_or(0)
    }

    /// Checks a changed key. `of` are the locks, with the owner, that the request names; empty without a
    /// request.
    pub(super) fn watch(&mut self, sim: &Sim, changed: &Changed, of: &[Place]) {
        if self.is_paused(sim) {
            let text = format!("server {} wrote while writes were paused", self.id);
            sim.judge.borrow_mut().fail(Rule::Forbidden, text);
        }
        if is_result(&changed.name) {
            return;
        }
        let Some(key) = key_of(&changed.name) else { return self.floor_was_written(sim) };
        let now = self.at(sim);
        let (was, is) = (
            LockState::of(changed.before.as_ref(), now),
            LockState::of(changed.after.as_ref(), now),
        );
        sim.log(|| format!("server {}: {key} is {is:?}", self.id));
        let joined = is.holders.iter().filter(|owner| !was.holders.contains(owner));
        let joined: Vec<_> = joined.copied().collect();
        if is.token > 0 && (is.token != was.token || !is.shared && !joined.is_empty()) {
            let line = if sim.plan.scene == Scene::Quorum { self.id } else { 0 };
            sim.judge.borrow_mut().issued(line, self.generation, key, is.token);
        }
        let stays = is.holders.iter().any(|owner| was.holders.contains(owner));
        // Only the quorum client raises the token of a lock that stays held.
        if stays && is.token != was.token && sim.plan.scene != Scene::Quorum {
            let text = format!("lock {key} is held on with another token: {was:?}, {is:?}");
            sim.judge.borrow_mut().fail(Rule::Tokens, text);
        }
        for place in joined.into_iter().map(|owner| (key, owner)) {
            sim.judge.borrow_mut().counts.granted += 1;
            self.check_grant(sim, place, of.contains(&place), is.shared);
        }
        let left = was.holders.into_iter().filter(|owner| !is.holders.contains(owner));
        for place in left.map(|owner| (key, owner)) {
            self.ledger.unbind(place);
            if !of.contains(&place) {
                self.check_taken(sim, place, was.token);
            }
        }
    }

    /// Checks a grant to an owner that waited or, with `asked`, has just sent its request.
    fn check_grant(&mut self, sim: &Sim, place: Place, asked: bool, shared: bool) {
        let mut judge = sim.judge.borrow_mut();
        judge.counts.handed_off += u64::from(!asked);
        if !asked && self.ledger.is_away(place) {
            let text = format!("{place:?} was granted although its session is away");
            judge.fail(Rule::Sessions, text);
        }
        let stays = |other| super::waits(&self.module, other);
        if let Some(before) = self.ledger.skipped_waiter((place, shared), stays, self.at(sim)) {
            judge.fail(Rule::Order, format!("{place:?} before {before:?}"));
        }
        self.ledger.leaves(place);
    }

    /// Checks that a result is stored only by a client that held all locks of its command.
    pub(super) fn look_at_results(
        &self,
        sim: &Sim,
        changed: &[Changed],
        before: &Keyspace,
        of: &[Place],
    ) {
        let now = self.at(sim);
        let held = |(key, owner): &Place| {
            LockState::of(before.get(key_name(*key).as_bytes()), now).holders.contains(owner)
        };
        let stored = |it: &&Changed| is_result(&it.name) && it.after.is_some();
        for result in changed.iter().filter(stored) {
            let mut judge = sim.judge.borrow_mut();
            judge.counts.stored += 1;
            if of.is_empty() || !of.iter().all(held) {
                let text = format!("{of:?} stored {:?} without their locks", result.after);
                judge.fail(Rule::Results, text);
            }
        }
    }

    /// Checks a reply `ready`: the result exists, and the owner holds none of the locks.
    pub(super) fn check_ready(&self, sim: &Sim, places: &[Place]) {
        let mut judge = sim.judge.borrow_mut();
        judge.counts.told_ready += 1;
        let now = self.at(sim);
        let Some((first, owner)) = places.first() else { return };
        let result = self.host.keys.get(result_name(*first).as_bytes());
        let exists = result.is_some_and(|it| it.until.is_none_or(|until| until >= now.unix().0));
        let holds = |(key, _): &Place| {
            let lock = self.host.keys.get(key_name(*key).as_bytes());
            LockState::of(lock, now).holders.contains(owner)
        };
        if !exists || places.iter().any(holds) {
            let text = format!("{places:?} are told of a result: {result:?}");
            judge.fail(Rule::Results, text);
        }
    }

    /// Checks that each owner of a set of locks holds all of them or none, and none while it waits.
    pub(super) fn look_at_sets(&mut self, sim: &Sim) {
        let now = self.at(sim);
        let keys = &self.host.keys;
        let holds = |(key, owner): Place| {
            let seen = LockState::of(keys.get(key_name(key).as_bytes()), now);
            seen.holders.contains(&owner)
        };
        if let Some(text) = self.ledger.wrong_set(holds) {
            sim.judge.borrow_mut().fail(Rule::Sets, format!("server {}: {text}", self.id));
        }
    }

    /// Checks the loss of a lock that its owner did not release: only a bound lock or an unsent grant may be
    /// taken.
    fn check_taken(&self, sim: &Sim, place: Place, token: u64) {
        let mut judge = sim.judge.borrow_mut();
        if self.ledger.was_bound(place.1, token) {
            judge.counts.bound_released += 1;
            return;
        }
        judge.counts.taken_back += 1;
        if self.ledger.has_heard(place.1, token) {
            judge.fail(
                Rule::Sessions,
                format!("{place:?} was told of {token}, which is taken back"),
            );
        }
    }

    fn floor_was_written(&mut self, sim: &Sim) {
        if sim.has(Safeguard::FloorsByClock) {
            return;
        }
        let ahead = sim.judge.borrow().largest_token() + AHEAD_US;
        let floor = Entry::of_string(ahead.max(self.floor()).to_string().as_bytes());
        self.host.keys.insert(FLOOR_PREFIX.to_vec(), floor);
    }
}
