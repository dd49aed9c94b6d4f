//! Searches for expired owners of shared locks and semaphores. [`Searches`] keeps the position of
//! each search and the result of the last pass through each hash. It limits the rate of searches of
//! large hashes outside commands.
//!
//! The end of a lease in a field causes no event, and a hash may have a million fields. So a hash is
//! read in parts; each continues where the last one ended. A pass is a complete read
//! of the hash, in one or more parts. Its result is the earliest end of a lease.
//! [`Searches::earliest`] decides how long the result is valid.
//!
//! All of this is a cache: if it is lost, the keys are searched again.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;

use crate::key::KeyRef;
use crate::mode::Share;
use crate::types::{Millis, MonoMillis, Now, UnixMillis};

/// Limit for the steps of a part that finds no expired owner. A step is a field that a scan shows, or
/// a call of the scan. A step takes 0.1 to 0.2 µs.
const PART_STEPS: u64 = 4_000;

/// The same limit for a part with [`Wanted::SomeDead`].
const SWEEP_STEPS: u64 = 256;

/// Number of expired owners after which a part ends.
const DEAD_MAX: usize = 128;

/// Number of extra steps that a part may take for each expired owner that it finds.
const STEPS_PER_DEAD: u64 = 4;

/// Largest number of fields of a small hash. A search for all expired owners reads a small hash in
/// one part, unless it finds [`DEAD_MAX`] of them before the end.
const SMALL: usize = 1_000;

/// Steps per millisecond, on average, for all searches of large hashes outside commands. They take
/// at most a twentieth of a processor.
const PACE: u64 = 250;

/// Largest number of unused steps that are saved for later.
const AHEAD: u64 = 5_000;

/// Number of remembered keys from which a new entry replaces an unused one. If no unused entry is
/// found, only a key that is searched for a waiter gets an entry.
const ROOM: usize = 1_024;

/// Longest time until the next search, even if all leases are longer.
const FAR: Millis = Millis(3_600_000);

/// Time after its last use for which an entry is not replaced.
const KEPT: Millis = Millis(2_000);

/// Time for which the result of a pass stays valid, even if unknown keys have changed since.
const BELIEVED: Millis = Millis(1_000);

/// The state of all searches. `C` is a cursor in a hash; its default is the start.
#[derive(Debug)]
pub struct Searches<C> {
    places: BTreeMap<u64, Place<C>>,
    names: RandomState,
    /// Position at which [`Self::place`] continues to look for an unused entry.
    hand: u64,
    /// Number of changes that were recorded without the name of the key.
    unheard: u64,
    /// End of the steps that are already assigned to searches, on a scale with [`PACE`] steps for
    /// each millisecond of the monotonic clock.
    given: u64,
    steps: u64,
}

/// State of the search of one key.
#[derive(Debug, Default)]
struct Place<C> {
    cursor: C,
    pass: Pass,
    known: Option<Known>,
    /// An owner that was alive when the key was searched.
    witness: Option<Box<[u8]>>,
    /// Time at which the search may continue, and the number of steps assigned to its next part.
    turn: Option<(MonoMillis, u64)>,
    used: Option<MonoMillis>,
}

/// State of a pass through a hash.
#[derive(Debug, Default)]
struct Pass {
    is_begun: bool,
    first_end: Option<UnixMillis>,
    /// Holds or permits of expired owners that earlier parts found and the caller did not remove.
    left_to_the_dead: u64,
    /// `true` if the key was changed, perhaps in a part that the pass has already read.
    is_spoilt: bool,
    unheard: u64,
}

/// Result of a complete pass.
#[derive(Debug)]
struct Known {
    /// No lease ends before this time.
    end: UnixMillis,
    /// Expected number of fields. It differs if another client has added or removed one.
    fields: usize,
    /// `true` if all fields were read in one part.
    whole: bool,
    since: MonoMillis,
    unheard: u64,
}

/// The purpose of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Any live owner, and the expired owners that are found before it.
    Anybody,
    /// All expired owners.
    TheDead,
    /// Some expired owners.
    SomeDead,
}

/// Request for the part of a search that is done in one call of [`Searches::search`].
#[derive(Clone, Copy, Debug)]
pub struct SearchPart {
    /// Purpose of the search.
    pub wanted: Wanted,
    /// Number of fields of the hash.
    pub fields: usize,
    /// `true` if the caller will remove the expired owners that are found.
    pub removes: bool,
    /// `true` if the search is for a waiter, outside a command.
    pub unasked: bool,
}

/// Result of one part of a search.
#[derive(Debug, Default)]
pub struct Found {
    /// Expired owners, with their holds or permits.
    pub dead: BTreeMap<Box<[u8]>, u64>,
    /// A live owner, and the end of its lease.
    pub living: Option<(Box<[u8]>, UnixMillis)>,
    /// `true` if this part has read a field that is neither reserved nor a share.
    pub has_others: bool,
    /// `true` if the whole hash was read in this part.
    pub whole: bool,
    /// Result of a pass that ended in this part: the earliest end of a live owner's lease, at most an
    /// hour ahead, or `Some(None)` if no owner is alive. `None` if no pass ended, or if
    /// [`Searches::changed`] was called for the key during the pass.
    pub passed: Option<Option<UnixMillis>>,
    held: u64,
    left_to_the_dead: u64,
}

impl Found {
    fn see(&mut self, pass: &mut Pass, field: &[u8], value: &[u8], now: UnixMillis) {
        match Share::of_field(field, value) {
            None => {}
            Some(None) => self.has_others = true,
            Some(Some(share)) if share.is_live(now) => {
                self.living.get_or_insert_with(|| (field.into(), share.until));
                self.held = self.held.saturating_add(share.holds);
                pass.see(share.until);
            }
            Some(Some(share)) => {
                self.dead.insert(field.into(), share.holds);
            }
        }
    }

    /// Returns the number of held permits, without the permits of the expired owners that were found.
    /// `used` is the recorded number, which includes expired owners. If this part has read the whole
    /// hash, returns the exact number that live owners hold.
    #[must_use]
    pub fn left_of(&self, used: u64) -> u64 {
        let dead: u64 = self.dead.values().sum();
        let freed = dead.saturating_add(self.left_to_the_dead);
        if self.whole { self.held } else { used.saturating_sub(freed) }
    }
}

impl Pass {
    fn see(&mut self, end: UnixMillis) {
        self.first_end = Some(self.first_end.map_or(end, |first| first.min(end)));
    }
}

impl<C> Default for Searches<C> {
    fn default() -> Self {
        let (places, names) = (BTreeMap::new(), RandomState::default());
        Self { places, names, hand: 0, unheard: 0, given: 0, steps: 0 }
    }
}

impl<C: Default> Searches<C> {
    /// Number of steps of all searches.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Number of keys that are remembered.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.places.len()
    }

    /// Hash under which a key is remembered. It does not depend on the kind, since a key holds one
    /// thing at a time.
    fn id(&self, key: KeyRef<'_>) -> u64 {
        self.names.hash_one((key.db, key.name))
    }

    fn of(&mut self, key: KeyRef<'_>) -> Option<&mut Place<C>> {
        if self.places.is_empty() {
            return None;
        }
        self.places.get_mut(&self.id(key))
    }

    /// Records that a key was changed in an unknown way.
    pub fn changed(&mut self, db: i32, name: &[u8]) {
        if let Some(place) = self.of(KeyRef::lock(db, name)) {
            place.known = None;
            place.pass.is_spoilt = true;
        }
    }

    /// Records that some key was changed, without its name.
    pub fn unheard(&mut self) {
        self.unheard = self.unheard.wrapping_add(1);
    }

    /// Records that all keys may have changed.
    pub fn forget(&mut self) {
        self.places.clear();
    }

    /// Records that an owner's field was written or removed. `had` says whether it existed before,
    /// expired or not. `has` is the share that it has now.
    pub fn note(&mut self, key: KeyRef<'_>, had: bool, has: Option<Share>) {
        let Some(place) = self.of(key) else { return };
        if let Some(known) = &mut place.known {
            known.fields = known.fields.saturating_add_signed(match (had, has.is_some()) {
                (false, true) => 1,
                (true, false) => -1,
                (true, true) | (false, false) => 0,
            });
            known.end = has.map_or(known.end, |share| known.end.min(share.until));
        }
        if let Some(share) = has {
            place.pass.see(share.until);
        }
    }

    /// Returns an owner that was alive when the key was searched.
    pub fn witness(&mut self, key: KeyRef<'_>) -> Option<&[u8]> {
        self.of(key)?.witness.as_deref()
    }

    /// Returns a time before which no lease ends. `None` if none is known; then a search may find
    /// expired owners.
    pub fn earliest(&mut self, key: KeyRef<'_>, fields: usize, now: Now) -> Option<UnixMillis> {
        let unheard = self.unheard;
        let place = self.of(key)?;
        place.used = Some(now.mono);
        let known = place.known.as_ref()?;
        let is_current = known.unheard == unheard || now.mono.since(known.since) <= BELIEVED;
        let fits = known.fields == fields && (known.whole || fields > SMALL);
        (is_current && fits && known.end >= now.unix()).then_some(known.end)
    }

    /// Returns the time at which a search outside commands may continue, or `None` if it may
    /// continue now. The search of a small hash never has to wait.
    pub fn turn(&mut self, key: KeyRef<'_>, fields: usize, now: Now) -> Option<UnixMillis> {
        if fields <= SMALL {
            return None;
        }
        let count = now.mono.0.saturating_mul(PACE);
        let from = self.given.max(count.saturating_sub(AHEAD));
        let fields = u64::try_from(fields).unwrap_or(u64::MAX);
        let steps = fields.saturating_mul(2).saturating_add(1).min(PART_STEPS);
        let id = self.id(key);
        let due = match self.places.get(&id).and_then(|place| place.turn) {
            Some((due, _)) => due,
            None if from < count.saturating_add(PACE) => return None,
            None => {
                self.given = from.saturating_add(steps);
                let due = MonoMillis(from / PACE);
                self.place(id, true, now.mono).turn = Some((due, steps));
                due
            }
        };
        (due > now.mono).then(|| now.unix().plus(due.since(now.mono)))
    }

    /// Continues the search of a key. `scan` shows some fields at the cursor and advances it. At
    /// the end of the hash, `scan` resets the cursor and returns false.
    pub fn search(
        &mut self,
        key: KeyRef<'_>,
        part: SearchPart,
        now: Now,
        mut scan: impl FnMut(&mut C, &mut dyn FnMut(&[u8], &[u8])) -> bool,
    ) -> Found {
        let (id, unheard) = (self.id(key), self.unheard);
        let place = self.place(id, part.unasked, now.mono);
        let (mut found, mut steps) = (Found::default(), 0_u64);
        let most = if part.wanted == Wanted::SomeDead { SWEEP_STEPS } else { PART_STEPS };
        let in_one = part.wanted == Wanted::Anybody
            || part.wanted == Wanted::TheDead && part.fields <= SMALL;
        let mut whole = !place.pass.is_begun;
        loop {
            if !place.pass.is_begun {
                place.pass = Pass { is_begun: true, unheard, ..Pass::default() };
                found.held = 0;
            }
            steps = steps.saturating_add(1);
            let more = scan(&mut place.cursor, &mut |field, value| {
                steps = steps.saturating_add(1);
                found.see(&mut place.pass, field, value, now.unix());
            });
            if !more {
                found.whole = whole;
                place.end_pass(part, &mut found, now);
                if whole || !in_one {
                    break;
                }
                whole = true;
            }
            let is_found = part.wanted == Wanted::Anybody && found.living.is_some();
            if is_found || found.dead.len() >= DEAD_MAX || spent(steps, &found) >= most {
                break;
            }
        }
        place.end_part(part, &mut found);
        self.steps = self.steps.saturating_add(steps);
        if part.unasked && part.fields > SMALL {
            let steps = if part.removes { spent(steps, &found) } else { steps };
            self.pay(id, steps, now);
        }
        found
    }

    /// Replaces the number of steps that were assigned to a part by the number that it took.
    fn pay(&mut self, id: u64, steps: u64, now: Now) {
        let turn = self.places.get_mut(&id).and_then(|place| place.turn.take());
        let given = turn.map_or(0, |(_, steps)| steps);
        let least = now.mono.0.saturating_mul(PACE).saturating_sub(AHEAD);
        self.given = self.given.saturating_sub(given).max(least).saturating_add(steps);
    }

    /// Returns the state of a key. If there is no room, removes an entry that is not in use. If no
    /// such entry is found, only keys that are searched for a waiter get an entry.
    fn place(&mut self, id: u64, is_waited_for: bool, now: MonoMillis) -> &mut Place<C> {
        for _ in 0..2 {
            if self.places.len() < ROOM || self.places.contains_key(&id) {
                break;
            }
            let next = self.places.range(self.hand..).next().or_else(|| self.places.iter().next());
            let Some((&other, place)) = next else { break };
            let is_due = |(due, _): (MonoMillis, u64)| due <= now;
            let rests = place.used.is_none_or(|used| now.since(used) > KEPT);
            self.hand = other.wrapping_add(1);
            if rests && place.turn.is_none_or(is_due) {
                self.places.remove(&other);
            }
        }
        // All keys without an entry share one entry. The shared entry may describe another key, so
        // it starts empty each time.
        let has_room = is_waited_for || self.places.len() < ROOM || self.places.contains_key(&id);
        let id = if has_room { id } else { u64::MAX };
        if !has_room {
            self.places.remove(&id);
        }
        let place = self.places.entry(id).or_default();
        place.used = Some(now);
        place
    }
}

/// Returns the number of steps that count against the limit. Each expired owner that was found
/// allows [`STEPS_PER_DEAD`] more.
fn spent(steps: u64, found: &Found) -> u64 {
    let dead = u64::try_from(found.dead.len()).unwrap_or(u64::MAX);
    steps.saturating_sub(dead.saturating_mul(STEPS_PER_DEAD))
}

impl<C> Place<C> {
    /// Records the result of a pass that has reached the end of the hash.
    fn end_pass(&mut self, part: SearchPart, found: &mut Found, now: Now) {
        self.pass.is_begun = false;
        let far = now.unix().plus(FAR);
        let first_end = self.pass.first_end.map(|end| end.min(far));
        found.passed = (!self.pass.is_spoilt).then_some(first_end);
        let removed = part.removes || found.dead.is_empty();
        let is_clean = !self.pass.is_spoilt && removed && self.pass.left_to_the_dead == 0;
        self.known = is_clean.then(|| Known {
            end: first_end.unwrap_or(far),
            fields: part.fields.saturating_sub(found.dead.len()),
            whole: found.whole,
            since: now.mono,
            unheard: self.pass.unheard,
        });
    }

    /// Records the live owner that a part has found. If the caller does not remove the expired owners,
    /// also records what they hold.
    fn end_part(&mut self, part: SearchPart, found: &mut Found) {
        if let (Wanted::Anybody, Some((owner, _))) = (part.wanted, &found.living) {
            self.witness = Some(owner.clone());
        }
        if !part.removes {
            found.left_to_the_dead = self.pass.left_to_the_dead;
            let dead: u64 = found.dead.values().sum();
            self.pass.left_to_the_dead = found.left_to_the_dead.saturating_add(dead);
        }
    }
}
