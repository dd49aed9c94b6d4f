//! The permits of semaphores: finds the dead among those who hold them, and serves those who wait.

use std::hash::{BuildHasher, RandomState};

use kvlock_core::{
    Bug, Cause, HandOff, KeyRef, MODE_FIELD, Millis, PermitsChange, RUN_MAX, Semaphore,
    SemaphoreAt, Served, Share, UnixMillis,
};

use crate::clock;
use crate::commands::{TOO_MANY_PERMITS, UNSET};
use crate::redis::{Arg, Ctx, Cursor, Key, Reply, Text};
use crate::semaphore::{Open, read};
use crate::server::{Grant, Server};

/// How many steps a search for the dead takes in one go, and how many it removes.
const STEPS_MAX: usize = 1_000;
const DEAD_MAX: usize = 128;

/// How often a search goes on when it found so many.
const ROUNDS_MAX: usize = 8;

/// How soon a search goes on that did not come to the end.
const GO_ON: Millis = Millis(20);

/// For how many semaphores it is remembered when the next lease ends.
const REMEMBERED: usize = 64;

/// When a search for dead holders is worth while. Nothing else depends on it.
#[derive(Debug)]
pub(crate) struct Ends {
    cursor: Cursor,
    known: Vec<Option<Known>>,
    names: RandomState,
}

/// What was found when everybody who held permits had been looked at.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Of which semaphore.
    name: u64,
    /// No lease ends before this.
    end: UnixMillis,
    /// How many fields there are, unless somebody else took one out or put one in.
    fields: usize,
}

/// What a search for the dead came to.
struct Search {
    /// Some of those whose lease has ended, with what they held.
    dead: Vec<(Vec<u8>, u64)>,
    /// When to search again: no lease ends before; none for at once.
    next: Option<UnixMillis>,
    /// What the living hold, if all were seen.
    held: Option<u64>,
}

impl Search {
    /// How many permits are held without the dead, where so many were counted as held with them.
    fn left_of(&self, used: u64) -> u64 {
        let freed: u64 = self.dead.iter().map(|(_, holds)| *holds).sum();
        self.held.unwrap_or_else(|| used.saturating_sub(freed))
    }
}

impl Ends {
    pub(crate) fn new() -> Self {
        let known = vec![None; REMEMBERED];
        Self { cursor: Cursor::new(), known, names: RandomState::new() }
    }

    fn place(&mut self, key: KeyRef<'_>) -> (u64, Option<&mut Option<Known>>) {
        let name = self.names.hash_one((key.db, key.name));
        let place = usize::try_from(name).unwrap_or_default() % REMEMBERED;
        (name, self.known.get_mut(place))
    }

    fn known(&mut self, key: KeyRef<'_>) -> Option<&mut Known> {
        let (name, place) = self.place(key);
        place?.as_mut().filter(|known| known.name == name)
    }

    /// No lease of a hash of so many fields ends before this.
    fn of(&mut self, key: KeyRef<'_>, fields: usize) -> Option<UnixMillis> {
        self.known(key).filter(|known| known.fields == fields).map(|known| known.end)
    }

    fn remember(&mut self, key: KeyRef<'_>, end: UnixMillis, fields: usize) {
        if let (name, Some(place)) = self.place(key) {
            *place = Some(Known { name, end, fields });
        }
    }

    /// Looks for those whose lease has ended, and for the next lease to end.
    fn search(&mut self, key: &Key<'_>, now: UnixMillis) -> Search {
        // A small hash is gone through from end to end; of a large one a part each time.
        let is_small = key.fields() <= STEPS_MAX;
        if is_small {
            self.cursor.restart();
        }
        let (mut dead, mut first_end, mut all) = (Vec::new(), None::<UnixMillis>, false);
        let mut held = 0_u64;
        for _ in 0..STEPS_MAX {
            let more = key.scan(&mut self.cursor, &mut |field, value| {
                let share = Share::read(value).filter(|_| field != MODE_FIELD);
                match share {
                    None => {}
                    Some(share) if share.is_live(now) => {
                        first_end = Some(first_end.map_or(share.until, |end| end.min(share.until)));
                        held = held.saturating_add(share.holds);
                    }
                    Some(share) => dead.push((field.to_vec(), share.holds)),
                }
            });
            if !more {
                self.cursor.restart();
                all = true;
            }
            if all || dead.len() >= DEAD_MAX {
                break;
            }
        }
        let found_many = dead.len() >= DEAD_MAX;
        dead.sort_unstable();
        dead.dedup();
        let next = match (all && is_small, found_many) {
            (true, _) => first_end,
            // There are more where they come from.
            (false, true) => None,
            (false, false) => Some(now.plus(GO_ON)),
        };
        Search { dead, next, held: (all && is_small).then_some(held) }
    }

    /// An owner had this, dead or alive, and now has that.
    fn note(&mut self, key: KeyRef<'_>, had: bool, has: Option<Share>) {
        let Some(known) = self.known(key) else { return };
        known.fields = known.fields.saturating_add_signed(match (had, has.is_some()) {
            (false, true) => 1,
            (true, false) => -1,
            (true, true) | (false, false) => 0,
        });
        known.end = has.map_or(known.end, |share| known.end.min(share.until));
    }
}

impl Server {
    /// Does one operation of a command on a semaphore. If it takes `permits` and they are not
    /// free, dead holders are looked for first.
    pub(crate) fn on_semaphore<R>(
        &mut self,
        ctx: &Ctx<'_>,
        name: Arg<'_>,
        asked: Option<Arg<'_>>,
        permits: Option<u64>,
        operate: impl FnOnce(&mut Self, &SemaphoreAt<'_>) -> (R, PermitsChange),
    ) -> R {
        let at = KeyRef::semaphore(ctx.db(), name.bytes());
        let key = ctx.open_to_write(name);
        let mut open = Open::read(ctx, &self.words, at, name, asked, key);
        if let Some(permits) = permits {
            self.find_enough(&mut open, asked, permits);
        }
        let (outcome, change) = operate(self, &open.situation());
        let frees = self.write_permits(&mut open, asked, change);
        let now = open.now;
        drop(open);
        if frees && self.table.waiters_of(at) > 0 {
            self.serve_permits(ctx, at, name, Cause::Release);
        }
        self.plan(ctx, now);
        outcome
    }

    /// Writes a change; says whether there may be more free than before.
    fn write_permits(
        &mut self,
        open: &mut Open<'_>,
        asked: Option<Arg<'_>>,
        change: PermitsChange,
    ) -> bool {
        let (limit, used) = open.counts.unwrap_or((0, 0));
        match (change, asked) {
            (PermitsChange::None, _) | (PermitsChange::Own { .. }, None) => false,
            (PermitsChange::Limit(limit), _) => {
                open.write(&self.words, &[], (limit, used));
                true
            }
            (PermitsChange::Own { share, used: now_used }, Some(asked)) => {
                self.ends.note(open.at, open.own.is_some(), share);
                let value = share.map(|share| Text::new(share.text().as_bytes()));
                let fields = [(Text::new(asked.bytes()), value)];
                open.write(&self.words, &fields, (limit, now_used));
                now_used < used
            }
        }
    }

    /// Looks for dead holders until so many permits are free, as far as that is worth while.
    fn find_enough(&mut self, open: &mut Open<'_>, asked: Option<Arg<'_>>, permits: u64) {
        for _ in 0..ROUNDS_MAX {
            if open.earliest.is_some() || !self.table.lacks_permits(&open.situation(), permits) {
                return;
            }
            self.find_dead(open, asked);
        }
    }

    /// Removes dead holders and counts what they held as free; if that can be worth while.
    fn find_dead(&mut self, open: &mut Open<'_>, asked: Option<Arg<'_>>) {
        let now = open.now.unix();
        let (Ok((limit, used)), Some(key)) = (open.counts, &open.key) else { return };
        open.earliest = self.ends.of(open.at, key.fields()).filter(|end| *end >= now);
        if open.earliest.is_some() || Bug::DeadKeepPermits.is_planted() {
            return;
        }
        let search = self.ends.search(key, now);
        let left = search.left_of(used);
        if let Some(asked) = asked
            && search.dead.iter().any(|(owner, _)| owner == asked.bytes())
        {
            open.own = None;
        }
        self.sharers.swept += u64::try_from(search.dead.len()).unwrap_or(0);
        let fields: Vec<_> =
            search.dead.iter().map(|(owner, _)| (Text::new(owner), None)).collect();
        // A stranger may have taken out somebody who holds permits.
        if left != used || !fields.is_empty() {
            open.write(&self.words, &fields, (limit, left));
        }
        open.earliest = search.next;
        if let (Some(next), Some(key)) = (open.earliest, &open.key) {
            self.ends.remember(open.at, next, key.fields());
        }
    }

    /// Says whether serving those who wait may write anything.
    pub(crate) fn permits_are_due(&mut self, ctx: &Ctx<'_>, at: KeyRef<'_>, name: Arg<'_>) -> bool {
        let open = ctx.open_to_read(name);
        let first = self.table.first_for_permits(at).map(|(_, permits)| permits);
        let (Ok((limit, used)), _) = read(open.as_ref(), &self.words, name, None) else {
            return false;
        };
        let (now, fields) = (clock::now().unix(), open.as_ref().map_or(0, Key::fields));
        let is_free = first.is_some_and(|permits| limit.saturating_sub(used) >= permits);
        is_free || self.ends.of(at, fields).is_none_or(|end| end < now)
    }

    /// Says whether so few permits are free, with those of the dead, that the first waiter could
    /// not be given its own, and plans when to look again. If there are fewer at all, it is told
    /// so. Writes nothing.
    pub(crate) fn permits_are_out(
        &mut self,
        ctx: &Ctx<'_>,
        at: KeyRef<'_>,
        name: Arg<'_>,
        cause: Cause,
    ) -> bool {
        let Some((owner, permits)) = self.table.first_for_permits(at) else { return false };
        let owner = Text::new(owner);
        let key = ctx.open_to_read(name);
        let mut open = Open::read(ctx, &self.words, at, name, Some(owner.lend()), key);
        let Some(key) = &open.key else { return false };
        if !self.table.lacks_permits(&open.situation(), permits) {
            return false;
        }
        let search = self.ends.search(key, open.now.unix());
        let (Some(next), Ok((limit, used))) = (search.next, open.counts) else { return false };
        let left = search.left_of(used);
        if left == used && search.dead.is_empty() {
            self.ends.remember(at, next, key.fields());
        }
        if search.dead.iter().any(|(dead, _)| dead == owner.lend().bytes()) {
            open.own = None;
        }
        open.counts = Ok((limit, left));
        if !self.table.lacks_permits(&open.situation(), permits) {
            return false;
        }
        open.earliest = Some(next);
        match self.table.serve_permits(&open.situation(), cause) {
            Served::NotYet => true,
            Served::TooMany(waiting) => {
                let now = open.now;
                drop(open);
                self.answer(waiting, TOO_MANY_PERMITS, None);
                self.table.serve_soon(at, cause, now);
                true
            }
            // They are not free, as was just found.
            Served::Granted(..) => false,
        }
    }

    /// Gives free permits to those at the head of the queue, up to a batch.
    pub(crate) fn serve_permits(
        &mut self,
        ctx: &Ctx<'_>,
        at: KeyRef<'_>,
        name: Arg<'_>,
        cause: Cause,
    ) {
        let key = ctx.open_to_write(name);
        let mut open = Open::read(ctx, &self.words, at, name, None, key);
        let (mut granted, mut all) = (Vec::new(), false);
        for _ in 0..RUN_MAX {
            let first = self.table.first_for_permits(at);
            let Some((owner, permits)) = first.map(|(owner, n)| (Text::new(owner), n)) else {
                all = true;
                break;
            };
            let owner = owner.lend();
            if open.counts == Err(Semaphore::Unset) {
                if let Some(waiting) = self.table.dismiss_one_of(at) {
                    self.answer(waiting, UNSET, None);
                }
                continue;
            }
            (_, open.own) = read(open.key.as_ref(), &self.words, name, Some(owner));
            self.find_enough(&mut open, Some(owner), permits);
            match self.table.serve_permits(&open.situation(), cause) {
                Served::NotYet => {
                    all = true;
                    break;
                }
                Served::TooMany(waiting) => self.answer(waiting, TOO_MANY_PERMITS, None),
                Served::Granted(hand_off, share, used) => {
                    let change = PermitsChange::Own { share: Some(share), used };
                    self.write_permits(&mut open, Some(owner), change);
                    granted.push((hand_off, share.holds, permits));
                }
            }
        }
        let now = open.now;
        drop(open);
        for (HandOff { id, owner, token, client, .. }, holds, permits) in granted {
            let client_id = client.client_id;
            let grant = Grant { id, client_id, key: at.keep(), owner, token, permits };
            self.answer(client, Reply::Number(holds), Some(grant));
        }
        if !all {
            self.table.serve_soon(at, cause, now);
        }
    }

    /// Takes back permits whose grant reached nobody.
    pub(crate) fn take_permits_back(&mut self, ctx: &Ctx<'_>, grant: &Grant) {
        let (name, owner) = (Text::new(&grant.key.name), Text::new(&grant.owner));
        if ctx.refusal_to_write(name.lend()).is_some() {
            // Its lease ends it.
            return self.delivered(grant);
        }
        let asked = Some(owner.lend());
        self.on_semaphore(ctx, name.lend(), asked, None, |server, at| {
            let (id, permits) = (grant.id, grant.permits);
            ((), server.table.take_permits_back(at, id, &grant.owner, permits))
        });
    }
}
