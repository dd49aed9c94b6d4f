//! Storage of the token floors. `module/core/src/floor.rs` explains their purpose.
//!
//! Each floor is a number in a string key. There is one floor for each database, or in a cluster one for each
//! slot in use of each database. In a cluster, the key has a hash tag of its slot, so that it migrates with
//! the slot.

use std::collections::BTreeMap;

use kvlock_core::{
    Floor, Millis, MonoMillis, Now, PrimarySince, TOKEN_STORED_MAX, Token, strict_decimal,
};

use crate::redis::{Ctx, KeyKind, Text};
use crate::slot;

/// Key of the floor, or in a cluster the prefix of the keys of all floors. No lock, semaphore, latch or
/// ready-key may have a name with this prefix.
pub(crate) const FLOOR_PREFIX: &[u8] = b"kvlock:floor";

/// Scope of one floor: a database, or in a cluster one slot of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    db: i32,
    slot: Option<u16>,
}

impl Place {
    /// Returns the place of a lock.
    pub(crate) fn of(db: i32, key: &[u8], in_cluster: bool) -> Self {
        Self { db, slot: in_cluster.then(|| slot::of(key)) }
    }

    /// Returns whether this server serves the slot of this place. `false` while it imports the slot.
    fn is_served(self, ctx: &Ctx<'_>) -> bool {
        self.slot.is_none() || ctx.serves(self.db, &[Text::new(&self.key()).lend()])
    }

    fn key(self) -> Vec<u8> {
        let tag = self.slot.map(|slot| format!(":{{{}}}", slot::tag(slot)));
        [FLOOR_PREFIX, tag.unwrap_or_default().as_bytes()].concat()
    }
}

/// The floors that this server knows, as a cache of their keys.
#[derive(Debug)]
pub(crate) struct Floors {
    /// The floor that was used last. The next use is usually of the same floor.
    recent: Option<(Place, Floor)>,
    others: BTreeMap<Place, Floor>,
    primary_since: PrimarySince,
    /// Last place for which a check found that this server serves its slot, and the time of that check.
    served: Option<(Place, MonoMillis)>,
}

/// Time for which `Floors::served` is reused without a new check.
const SERVED: Millis = Millis(100);

impl Floors {
    /// Returns the floors of a server that has just started.
    pub(crate) fn new(now: Now) -> Self {
        let primary_since = PrimarySince::started(now);
        Self { recent: None, others: BTreeMap::new(), primary_since, served: None }
    }

    /// Records that this server was promoted. The previous primary may not know this yet, and may still grant
    /// locks.
    pub(crate) fn promoted(&mut self, now: Now) {
        self.primary_since = PrimarySince::promoted(now);
    }

    /// Forgets one floor, because its key was changed.
    pub(crate) fn forget_one(&mut self, place: Place) {
        self.recent.take_if(|(recent, _)| *recent == place);
        self.others.remove(&place);
        // The key may have been changed because its slot migrates away.
        self.served.take_if(|(served, _)| *served == place);
    }

    /// Forgets all floors. Each is read again when it is needed.
    pub(crate) fn forget(&mut self) {
        self.recent = None;
        self.served = None;
        self.others.clear();
    }

    fn at(&mut self, ctx: &Ctx<'_>, place: Place, now: Now) -> &mut Floor {
        if let Some((other, floor)) = self.recent.take_if(|(recent, _)| *recent != place) {
            self.others.insert(other, floor);
        }
        let (others, primary_since) = (&mut self.others, self.primary_since);
        let (_, floor) = self.recent.get_or_insert_with(|| {
            let floor = others.remove(&place);
            (place, floor.unwrap_or_else(|| Floor::found(read(ctx, place), now, primary_since)))
        });
        floor
    }

    /// Returns the number that new tokens of this place must be larger than. `None` if the number is not
    /// known: no floor is stored, and this server does not serve the slot, for example because it still
    /// imports the slot. The caller must have selected the database of the place.
    pub(crate) fn of(&mut self, ctx: &Ctx<'_>, place: Place, now: Now) -> Option<u64> {
        let primary_since = self.primary_since;
        let floor = self.at(ctx, place, now);
        if floor.is_to_be_checked(now) {
            let found = read(ctx, place);
            if found != floor.expected() {
                *floor = Floor::found(found, now, primary_since);
            }
        }
        let (expected, others) = (floor.expected(), floor.others());
        (expected > 0 || self.serves(ctx, place, now)).then_some(others)
    }

    fn serves(&mut self, ctx: &Ctx<'_>, place: Place, now: Now) -> bool {
        let lately = |(seen, at): (Place, MonoMillis)| seen == place && now.mono.since(at) < SERVED;
        if self.served.is_some_and(lately) {
            return true;
        }
        let served = place.is_served(ctx);
        self.served = served.then_some((place, now.mono));
        served
    }

    /// Stores a new reservation ahead of this token, unless enough of the current one is left.
    pub(crate) fn reserve(&mut self, ctx: &Ctx<'_>, place: Place, token: Token, now: Now) {
        let floor = self.at(ctx, place, now);
        if let Some(ahead) = floor.reservation(token, now)
            && write(ctx, place, ahead)
        {
            floor.reserved(ahead);
        }
    }
}

/// Reads the number at the floor's key. 0 if there is no valid number.
fn read(ctx: &Ctx<'_>, place: Place) -> u64 {
    let name = Text::new(&place.key());
    let key = ctx.open_to_read(name.lend()).filter(|key| key.kind() == KeyKind::String);
    let number = key.and_then(|key| strict_decimal(&key.string()));
    number.filter(|n| *n <= TOKEN_STORED_MAX).unwrap_or(0)
}

/// Writes a floor, and returns whether it was written. Never writes while the slot is being imported: the
/// source node's floor has not arrived yet, and an existing key would stop the migration.
fn write(ctx: &Ctx<'_>, place: Place, floor: u64) -> bool {
    if !place.is_served(ctx) {
        return false;
    }
    let name = Text::new(&place.key());
    let Some(key) = ctx.open_to_write(name.lend()) else {
        return false;
    };
    key.set_string(Text::number(floor).lend());
    true
}
