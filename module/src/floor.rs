//! Where token floors are stored: `module/core/src/floor.rs` says what they are for. Each is a plain
//! key with a number.
//!
//! There is one per database, and in a cluster one per slot in use, named so that it lives in that
//! slot and migrates with it.

use std::collections::BTreeMap;

use kvlock_core::{Floor, Millis, MonoMillis, Now, Reign, TOKEN_STORED_MAX, Token, strict_decimal};

use crate::redis::{Ctx, KeyKind, Text};
use crate::slot;

/// What all floors are called, or begin with. No lock may be called so.
pub(crate) const FLOOR_PREFIX: &[u8] = b"kvlock:floor";

/// What shares a floor: a database, and in a cluster a slot of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    db: i32,
    slot: Option<u16>,
}

impl Place {
    /// The place of a lock.
    pub(crate) fn of(db: i32, key: &[u8], in_cluster: bool) -> Self {
        Self { db, slot: in_cluster.then(|| slot::of(key)) }
    }

    /// Returns whether this server serves it, rather than importing its slot.
    fn is_served(self, ctx: &Ctx<'_>) -> bool {
        self.slot.is_none() || ctx.serves_slot_of(self.db, Text::new(&self.key()).lend())
    }

    fn key(self) -> Vec<u8> {
        let tag = self.slot.map(|slot| format!(":{{{}}}", slot::tag(slot)));
        [FLOOR_PREFIX, tag.unwrap_or_default().as_bytes()].concat()
    }
}

/// The floors of this server.
#[derive(Debug)]
pub(crate) struct Floors {
    /// The most recently used one, which is usually the next one.
    recent: Option<(Place, Floor)>,
    others: BTreeMap<Place, Floor>,
    reign: Reign,
    /// A place without a reservation, and when this server was last seen to serve it.
    served: Option<(Place, MonoMillis)>,
}

/// Time for which the check that a place is served is reused.
const SERVED: Millis = Millis(100);

impl Floors {
    /// Returns the floors of a server that has just started.
    pub(crate) fn new(now: Now) -> Self {
        let reign = Reign::started(now);
        Self { recent: None, others: BTreeMap::new(), reign, served: None }
    }

    /// This server takes over from another, which may not know that yet and still grant locks.
    pub(crate) fn promoted(&mut self, now: Now) {
        self.reign = Reign::promoted(now);
    }

    /// Forgets one of them: something happened to its key.
    pub(crate) fn forget_one(&mut self, place: Place) {
        self.recent.take_if(|(recent, _)| *recent == place);
        self.others.remove(&place);
        // Its slot may be leaving.
        self.served.take_if(|(served, _)| *served == place);
    }

    /// Forgets all of them: they are read again when they are needed.
    pub(crate) fn forget(&mut self) {
        self.recent = None;
        self.served = None;
        self.others.clear();
    }

    fn at(&mut self, ctx: &Ctx<'_>, place: Place, now: Now) -> &mut Floor {
        if let Some((other, floor)) = self.recent.take_if(|(recent, _)| *recent != place) {
            self.others.insert(other, floor);
        }
        let (others, reign) = (&mut self.others, self.reign);
        let (_, floor) = self.recent.get_or_insert_with(|| {
            let floor = others.remove(&place);
            (place, floor.unwrap_or_else(|| Floor::found(read(ctx, place), now, reign)))
        });
        floor
    }

    /// The number that the tokens of this place must be above; `None` if it is not known yet,
    /// because the slot is being imported and its floor is still to come. The place's database
    /// must be selected.
    pub(crate) fn of(&mut self, ctx: &Ctx<'_>, place: Place, now: Now) -> Option<u64> {
        let reign = self.reign;
        let floor = self.at(ctx, place, now);
        if floor.is_to_be_checked(now) {
            let found = read(ctx, place);
            if found != floor.expected() {
                *floor = Floor::found(found, now, reign);
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

    /// Reserves a token, with room to spare, unless it is reserved already.
    pub(crate) fn reserve(&mut self, ctx: &Ctx<'_>, place: Place, token: Token, now: Now) {
        let floor = self.at(ctx, place, now);
        if let Some(ahead) = floor.reservation(token, now)
            && write(ctx, place, ahead)
        {
            floor.reserved(ahead);
        }
    }
}

/// What the key says; 0 if it says nothing to us.
fn read(ctx: &Ctx<'_>, place: Place) -> u64 {
    let name = Text::new(&place.key());
    let key = ctx.open_to_read(name.lend()).filter(|key| key.kind() == KeyKind::String);
    let number = key.and_then(|key| strict_decimal(&key.string()));
    number.filter(|n| *n <= TOKEN_STORED_MAX).unwrap_or(0)
}

/// Writes a floor. Not while its slot is being imported: the source's floor is still to come, and
/// a key that is there already stops the migration.
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
