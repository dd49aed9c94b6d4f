//! The token floor: what keeps fencing tokens growing over a restart or a failover, when the
//! clock of the next server is behind and the lock itself is gone.
//!
//! A floor is a plain key with a number: a reservation. The server that wrote it issues tokens
//! below it only; any other server that finds it starts above it. It is raised a minute ahead of
//! the clock when less than half a minute is left, so it costs one small write in half a minute, and
//! losing the last half minute of a replication stream cannot lower a token.
//!
//! There is one per database, and in a cluster one per slot in use, named so that it lives in that
//! slot and migrates with it.

use std::collections::HashMap;

use kvlock_core::{Bug, MonoMillis, Now, TOKEN_STORED_MAX, Token, strict_decimal};

use crate::redis::{Ctx, KeyEventKind, KeyKind, Text};
use crate::slot;

/// What all floors are called, or begin with. No lock may be called so.
pub(crate) const FLOOR_PREFIX: &[u8] = b"kvlock:floor";

/// How far ahead of the clock a floor is written, in microseconds.
const AHEAD_US: u64 = 60_000_000;

/// How much must be left of it, in microseconds.
const LEFT_US: u64 = 30_000_000;

/// The same for tokens that are ahead of the clock, and grow by one with each grant. No more than a
/// moment of the clock: a floor that is further ahead of it than [`AHEAD_US`] tells who finds it
/// nothing of those who have found it before. See [`above`].
const AHEAD_TOKENS: u64 = 20_000;
const LEFT_TOKENS: u64 = 10_000;

/// What shares a floor: a database, and in a cluster a slot of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    db: i32,
    slot: Option<u16>,
}

impl Place {
    /// The place of a lock.
    pub(crate) fn of(db: i32, key: &[u8], in_cluster: bool) -> Self {
        Self { db, slot: in_cluster.then(|| slot::of(key)) }
    }

    /// Says whether this server serves it, rather than importing its slot.
    fn is_served(self, ctx: &Ctx<'_>) -> bool {
        self.slot.is_none() || ctx.serves_slot_of(Text::new(&self.key()).lend())
    }

    fn key(self) -> Vec<u8> {
        let tag = self.slot.map(|slot| format!(":{{{}}}", slot::tag(slot)));
        [FLOOR_PREFIX, tag.unwrap_or_default().as_bytes()].concat()
    }
}

/// How often the key is looked at again, in milliseconds: a `SET` of it by somebody else comes
/// without an event.
const CHECK_MS: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
struct Floor {
    /// What somebody else had reserved when we first looked; 0 is nothing.
    found: u64,
    /// Our tokens are above it. See [`above`].
    others: u64,
    /// What we have reserved: our tokens are below it. 0 is nothing yet.
    ours: u64,
    /// When the key was looked at last.
    checked: MonoMillis,
}

impl Floor {
    /// A floor as it is found. Anything but a number that a server of ours can have written is
    /// ignored, and replaced by the next reservation.
    fn find(ctx: &Ctx<'_>, place: Place, now: Now, reign: Reign) -> Self {
        let found = read(ctx, place);
        Self { found, others: above(found, reign), ours: 0, checked: now.mono }
    }

    /// What the key should say.
    fn expected(&self) -> u64 {
        if self.ours > 0 { self.ours } else { self.found }
    }
}

/// When this server became one that grants, in microseconds of its date, and how.
#[derive(Clone, Copy, Debug)]
struct Reign {
    since_us: u64,
    /// It took over from another, and was not just started.
    promoted: bool,
}

/// The floors of this server.
#[derive(Debug)]
pub(crate) struct Floors {
    /// The one that was used last, which most often is the next one.
    recent: Option<(Place, Floor)>,
    others: HashMap<Place, Floor>,
    reign: Reign,
}

impl Floors {
    /// Those of a server that starts.
    pub(crate) fn new(now: Now) -> Self {
        let reign = Reign { since_us: now.unix_us, promoted: false };
        Self { recent: None, others: HashMap::new(), reign }
    }

    /// This server takes over from another, which may not know it yet and go on granting.
    pub(crate) fn promoted(&mut self, now: Now) {
        self.reign = Reign { since_us: now.unix_us, promoted: true };
    }

    /// Forgets one of them: something happened to its key.
    pub(crate) fn forget_one(&mut self, place: Place) {
        self.recent.take_if(|(recent, _)| *recent == place);
        self.others.remove(&place);
    }

    /// Forgets all of them: they are read again when they are needed.
    pub(crate) fn forget(&mut self) {
        self.recent = None;
        self.others.clear();
    }

    fn at(&mut self, ctx: &Ctx<'_>, place: Place, now: Now) -> &mut Floor {
        if let Some((other, floor)) = self.recent.take_if(|(recent, _)| *recent != place) {
            self.others.insert(other, floor);
        }
        let (others, reign) = (&mut self.others, self.reign);
        let (_, floor) = self.recent.get_or_insert_with(|| {
            let floor = others.remove(&place);
            (place, floor.unwrap_or_else(|| Floor::find(ctx, place, now, reign)))
        });
        floor
    }

    /// The number that the tokens of this place must be above; `None` if it is not known yet,
    /// because the slot is being imported and its floor is still to come. The place's database
    /// must be selected.
    pub(crate) fn of(&mut self, ctx: &Ctx<'_>, place: Place, now: Now) -> Option<u64> {
        let reign = self.reign;
        let floor = self.at(ctx, place, now);
        if now.mono.since(floor.checked).0 >= CHECK_MS {
            floor.checked = now.mono;
            if read(ctx, place) != floor.expected() {
                *floor = Floor::find(ctx, place, now, reign);
            }
        }
        let known = floor.expected() > 0 || place.is_served(ctx);
        known.then_some(floor.others)
    }

    /// Sees to it that this token is below what we have reserved, with room to spare.
    pub(crate) fn reserve(&mut self, ctx: &Ctx<'_>, place: Place, token: Token, now: Now) {
        let floor = self.at(ctx, place, now);
        let (token, clock) = (token.value(), now.unix_us.min(TOKEN_STORED_MAX));
        let least = |us, tokens| clock.saturating_add(us).max(token.saturating_add(tokens));
        if floor.ours >= least(LEFT_US, LEFT_TOKENS) {
            return;
        }
        let ahead = least(AHEAD_US, AHEAD_TOKENS);
        if write(ctx, place, ahead) {
            floor.ours = ahead;
        }
    }
}

/// Where to begin when somebody else has reserved tokens up to `found`.
///
/// The reservation alone would not do. Two servers that take over one after the other, of which the
/// second has not heard of the first, find the same one and would begin at the same token. So each
/// begins at least as far ahead of its clock as anybody reserves: the one that comes later begins
/// higher, as long as their clocks agree, and does so for as long as the one before was ahead. What
/// the one before has reserved is not much more than that, however many took over before it.
///
/// What counts is when it took over, not when it grants here for the first time: that it may do
/// after it was deposed itself, and after the next one has granted. Whoever was promoted does that
/// also where nothing was reserved yet: the server before may still be about to grant its first
/// lock there.
fn above(found: u64, reign: Reign) -> u64 {
    if (found == 0 && !reign.promoted) || Bug::FloorAlone.is_planted() {
        return found;
    }
    found.max(reign.since_us.saturating_add(AHEAD_US)).min(TOKEN_STORED_MAX)
}

/// What the key says; 0 if it says nothing to us.
fn read(ctx: &Ctx<'_>, place: Place) -> u64 {
    let name = Text::new(&place.key());
    let key = ctx.open_to_read(name.lend()).filter(|key| key.kind() == KeyKind::String);
    let number = key.and_then(|key| strict_decimal(&key.string()));
    number.filter(|n| *n <= TOKEN_STORED_MAX && !Bug::FloorIgnored.is_planted()).unwrap_or(0)
}

/// Writes a floor. Not while its slot is being imported: the source's floor is still to come, and
/// a key that is there already stops the migration.
fn write(ctx: &Ctx<'_>, place: Place, floor: u64) -> bool {
    if !place.is_served(ctx) {
        return false;
    }
    let name = Text::new(&place.key());
    let name = name.lend();
    let Some(key) = ctx.open_to_write(name) else {
        return false;
    };
    let value = Text::number(floor);
    key.set_string(value.lend());
    drop(key);
    ctx.replicate(c"SET", &[name, value.lend()]);
    ctx.notify(KeyEventKind::String, c"set", name);
    true
}
