//! Those who share a lock: finds out whether any of them still lives, and removes the fields of
//! those who do not.
//!
//! A lease that ends tells nobody, and there may be thousands of them in one hash. So nothing here
//! goes through all of them. To know that a lock is still shared one living holder is enough, and
//! whoever was found alive is asked first the next time. Each dead one that is found on the way is
//! removed, so it is found once.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};

use kvlock_core::{Bug, MODE_FIELD, Share, TOKEN_FIELD, UnixMillis};

use crate::keyspace::{Seen, Shared, Words};
use crate::redis::{Arg, Ctx, Cursor, Key, Text};
use crate::writer::Writer;

/// How many steps a search takes at most in one go. A step is a few fields of a large hash, or
/// none, and all fields of a small one.
const STEPS_MAX: usize = 1_000;

/// How many dead fields are removed by one command, and how often a search goes on when it found
/// nobody else.
const DEAD_MAX: usize = 128;
const ROUNDS_MAX: usize = 8;

/// How many steps a sweep takes, and how many times somebody joins or renews between two of them,
/// on average: so that it finds more fields than are added.
const SWEEP_STEPS: usize = 128;
const SWEEP_EVERY: u64 = 32;

/// How many steps are taken to find the last lease to end.
const LAST_END_STEPS: usize = 256;

/// For how many locks the holder that was last found alive is remembered.
const WITNESSES: usize = 64;

/// What is remembered of those who share locks. Nothing depends on it: it saves work.
#[derive(Debug)]
pub(crate) struct Sharers {
    /// Where the last search ended, in whichever hash.
    cursor: Cursor,
    /// Holders that were alive, by the name of the lock.
    witnesses: Vec<Option<Box<[u8]>>>,
    places: RandomState,
    /// How many fields of dead holders were removed.
    pub(crate) swept: u64,
}

/// One who shares a lock and lives.
pub(crate) type Living = (Box<[u8]>, Share);

/// What a search came to.
struct Found {
    living: Option<(Box<[u8]>, UnixMillis)>,
    dead: BTreeSet<Box<[u8]>>,
    is_lock: bool,
    /// It went through the hash from end to end.
    all: bool,
}

impl Sharers {
    pub(crate) fn new() -> Self {
        Self {
            cursor: Cursor::new(),
            witnesses: vec![None; WITNESSES],
            places: RandomState::new(),
            swept: 0,
        }
    }

    fn witness(&mut self, db: i32, name: Arg<'_>) -> Option<&mut Option<Box<[u8]>>> {
        let hash = self.places.hash_one((db, name.bytes()));
        let place = usize::try_from(hash).unwrap_or_default() % WITNESSES;
        self.witnesses.get_mut(place)
    }

    /// Finds out whether anybody who shares this lock lives, and puts it into `seen`. The key is
    /// open for writing: the dead who are found are removed.
    pub(crate) fn find_living(
        &mut self,
        ctx: &Ctx<'_>,
        words: &Words,
        name: Arg<'_>,
        key: &Key<'_>,
        seen: &mut Seen,
        now: UnixMillis,
    ) {
        let Seen::Shared(shared) = seen else { return };
        if let Some(until) = self.ask_witness(ctx, words, name, key, now) {
            shared.living = Some(until);
            return;
        }
        for _ in 0..ROUNDS_MAX {
            let found = self.search(key, shared.holders, now, false, STEPS_MAX);
            if !found.is_lock {
                *seen = Seen::NotALock { until: shared.until };
                return;
            }
            self.bury(ctx, words, name, key, &found.dead);
            shared.holders -= found.dead.len().min(shared.holders);
            if shared.holders == 0 {
                *seen = Seen::Free { stored: shared.token, remnant: true };
                return;
            }
            if let Some((owner, until)) = found.living {
                shared.living = Some(until);
                if let Some(place) = self.witness(ctx.db(), name) {
                    *place = Some(owner);
                }
                return;
            }
            if found.all && found.dead.is_empty() {
                // Fields with a TTL of their own that is over count, and are not shown.
                *seen = Seen::Free { stored: shared.token, remnant: true };
                return;
            }
        }
        // There is more to go through: at once, but not now.
        shared.living = Some(now);
    }

    /// Finds out whether anybody who shares this lock lives, as [`Self::find_living`] does, but
    /// writes nothing: the dead stay. None if nobody was found.
    pub(crate) fn anybody_alive(
        &mut self,
        ctx: &Ctx<'_>,
        words: &Words,
        name: Arg<'_>,
        key: &Key<'_>,
        shared: &Shared,
        now: UnixMillis,
    ) -> Option<UnixMillis> {
        if let Some(until) = self.ask_witness(ctx, words, name, key, now) {
            return Some(until);
        }
        for _ in 0..ROUNDS_MAX {
            let found = self.search(key, shared.holders, now, false, STEPS_MAX);
            if let Some((owner, until)) = found.living.filter(|_| found.is_lock) {
                if let Some(place) = self.witness(ctx.db(), name) {
                    *place = Some(owner);
                }
                return Some(until);
            }
            if !found.is_lock || found.all || found.dead.len() >= shared.holders {
                return None;
            }
        }
        None
    }

    /// Asks the holder that was alive the last time. That it is one of this lock is seen by that
    /// it has a share there.
    fn ask_witness(
        &mut self,
        ctx: &Ctx<'_>,
        words: &Words,
        name: Arg<'_>,
        key: &Key<'_>,
        now: UnixMillis,
    ) -> Option<UnixMillis> {
        let owner = Text::new(self.witness(ctx.db(), name)?.as_deref()?);
        let [share, _] = key.get_two(owner.lend(), words.mode_field.lend());
        let share = Share::read(share?.lend().bytes())?;
        share.is_live(now).then_some(share.until)
    }

    /// Goes on through a hash: until somebody is found alive or all are known to be dead, or, if
    /// it is only to find the dead, once to the end. Up to so many steps.
    fn search(
        &mut self,
        key: &Key<'_>,
        holders: usize,
        now: UnixMillis,
        only_dead: bool,
        steps: usize,
    ) -> Found {
        let mut found = Found { living: None, dead: BTreeSet::new(), is_lock: true, all: false };
        let mut ends = 0;
        for _ in 0..steps {
            let more = key.scan(&mut self.cursor, &mut |field, value| {
                if field == TOKEN_FIELD || field == MODE_FIELD {
                    return;
                }
                match Share::read(value) {
                    None => found.is_lock = false,
                    Some(share) if share.is_live(now) => {
                        found.living.get_or_insert_with(|| (field.into(), share.until));
                    }
                    Some(_) => {
                        found.dead.insert(field.into());
                    }
                }
            });
            if !more {
                self.cursor.restart();
                ends += 1;
                // The first may have begun in the middle.
                found.all = ends == 2;
            }
            let enough = found.dead.len() >= holders.min(DEAD_MAX);
            let seen = if only_dead { !more } else { found.living.is_some() };
            if seen || enough || found.all || !found.is_lock {
                break;
            }
        }
        found
    }

    /// Now and then, when somebody joins or renews: removes some of the dead, for a lock that is
    /// shared all the time and never searched.
    pub(crate) fn sweep(
        &mut self,
        ctx: &Ctx<'_>,
        words: &Words,
        name: Arg<'_>,
        shared: &Shared,
        now_us: u64,
    ) {
        // The microseconds are as good as a random number: no pattern of commands can evade them.
        if !now_us.is_multiple_of(SWEEP_EVERY) || Bug::DeadReadersStay.is_planted() {
            return;
        }
        let Some(key) = ctx.open_to_write(name) else { return };
        let now = UnixMillis(now_us / 1000);
        let found = self.search(&key, shared.holders, now, true, SWEEP_STEPS);
        if found.is_lock {
            self.bury(ctx, words, name, &key, &found.dead);
        }
    }

    fn bury(
        &mut self,
        ctx: &Ctx<'_>,
        words: &Words,
        name: Arg<'_>,
        key: &Key<'_>,
        dead: &BTreeSet<Box<[u8]>>,
    ) {
        let dead: Vec<_> = dead.iter().map(|owner| Text::new(owner)).collect();
        self.swept += u64::try_from(dead.len()).unwrap_or(0);
        Writer { ctx, words, key: name }.remove(key, dead.iter().map(Text::lend));
    }
}

/// When the last of the leases in a shared lock ends.
pub(crate) enum LastEnd {
    /// All have ended.
    Nobody,
    /// Then, and not before.
    At(UnixMillis),
    /// Too many share it to look at all of them, or one of them is no share.
    Unknown,
}

/// Finds the last lease to end in a shared lock of not too many.
pub(crate) fn last_end(key: &Key<'_>, now: UnixMillis) -> LastEnd {
    let (mut cursor, mut last, mut is_lock) = (Cursor::new(), None::<UnixMillis>, true);
    for _ in 0..LAST_END_STEPS {
        let more = key.scan(&mut cursor, &mut |field, value| {
            if field == TOKEN_FIELD || field == MODE_FIELD {
                return;
            }
            match Share::read(value) {
                None => is_lock = false,
                Some(share) if share.is_live(now) => last = last.max(Some(share.until)),
                Some(_) => {}
            }
        });
        if !more {
            return match last {
                _ if !is_lock => LastEnd::Unknown,
                None => LastEnd::Nobody,
                Some(last) => LastEnd::At(last),
            };
        }
    }
    LastEnd::Unknown
}

/// Lists some of the living who share a lock, without changing anything; `None` if one of those
/// in it is none.
pub(crate) fn list(key: &Key<'_>, now: UnixMillis, most: usize) -> Option<Vec<Living>> {
    let (mut cursor, mut living, mut is_lock) = (Cursor::new(), BTreeMap::new(), true);
    for _ in 0..STEPS_MAX {
        let more = key.scan(&mut cursor, &mut |field, value| {
            if field == TOKEN_FIELD || field == MODE_FIELD {
                return;
            }
            match Share::read(value) {
                None => is_lock = false,
                Some(share) if share.is_live(now) && living.len() < most => {
                    living.insert(field.into(), share);
                }
                Some(_) => {}
            }
        });
        if !more || living.len() >= most {
            break;
        }
    }
    is_lock.then(|| living.into_iter().collect())
}
