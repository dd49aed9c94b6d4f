//! Semaphores in the keyspace: reads their keys, writes changes, frees the permits of expired holders, and
//! serves waiters.

use kvlock_core::{
    Cause, Dismissal, HandOff, KeyRef, Now, Permits, PermitsChange, RUN_MAX, SearchPart, Semaphore,
    SemaphoreAt, Served, Share, UnixMillis, UnsentGrant, Wanted,
};

use crate::floor::FLOOR_PREFIX;
use crate::holders::ROUNDS_MAX;
use crate::keyspace::Strings;
use crate::redis::{Arg, Ctx, Key, KeyKind, Reply, Text};
use crate::replies::{UNSET, sent_away};
use crate::server::Server;

/// A semaphore whose key is open, with the state that was read.
struct Open<'a> {
    at: KeyRef<'a>,
    now: Now,
    key: Option<Key<'a>>,
    /// Number of permits, and number of held ones, including those of expired holders that are not removed
    /// yet. `Err` if the key is unset or not a semaphore.
    counts: Result<(u64, u64), Semaphore>,
    /// Share of the owner for which the semaphore was read, even if the owner's lease has ended.
    own: Option<Share>,
    /// Earliest time of the next search for expired holders. `None` if a search may run now, or if that was
    /// not checked yet.
    earliest: Option<UnixMillis>,
    /// `true` while waiters are served: then a search of a large hash may be postponed.
    unasked: bool,
}

impl<'a> Open<'a> {
    fn read(
        server: &Server,
        at: KeyRef<'a>,
        name: Arg<'a>,
        asked: Option<Arg<'_>>,
        key: Option<Key<'a>>,
    ) -> Self {
        let now = server.now();
        let (counts, own) = read(key.as_ref(), &server.strings, name, asked);
        Self { at, now, key, counts, own, earliest: None, unasked: false }
    }

    fn situation(&self) -> SemaphoreAt<'a> {
        let seen = match self.counts {
            Err(other) => other,
            Ok((limit, used)) => {
                let live = |share: &Share| share.is_live(self.now.unix());
                // The permits of an owner whose lease has ended are free, even if that owner itself asks.
                let lost = self.own.filter(|own| !live(own)).map_or(0, |own| own.holds);
                let used = used.saturating_sub(lost);
                // The key may expire unnoticed: the module ignores events during its own work.
                let ends = self.key.as_ref().and_then(Key::expires).map(UnixMillis);
                let sooner =
                    |earliest: UnixMillis| ends.map_or(earliest, |ends| earliest.min(ends));
                let (own, earliest) = (self.own.filter(live), self.earliest.map(sooner));
                Semaphore::Set(Permits { limit, used, own, earliest })
            }
        };
        SemaphoreAt { key: self.at, seen, now: self.now }
    }

    fn write(&mut self, strings: &Strings, fields: &[(Text, Option<Text>)], counts: (u64, u64)) {
        let Some(key) = &self.key else { return };
        let counted = Text::new(Permits::text(counts.0, counts.1).as_bytes());
        let gone = fields.iter().filter(|(_, share)| share.is_none());
        key.unset(gone.map(|(owner, _)| owner.lend()));
        let held =
            fields.iter().filter_map(|(owner, share)| Some((owner.lend(), share.as_ref()?.lend())));
        key.set(&Vec::from_iter(
            [(strings.mode_field.lend(), counted.lend())].into_iter().chain(held),
        ));
        self.counts = Ok(counts);
    }
}

/// Reads the number of permits, the number that is held, and the permits of one owner.
pub(crate) fn read(
    key: Option<&Key<'_>>,
    strings: &Strings,
    name: Arg<'_>,
    asked: Option<Arg<'_>>,
) -> (Result<(u64, u64), Semaphore>, Option<Share>) {
    if name.bytes().starts_with(FLOOR_PREFIX) {
        return (Err(Semaphore::NotASemaphore { until: None }), None);
    }
    let Some(key) = key.filter(|key| key.kind() != KeyKind::Empty) else {
        return (Err(Semaphore::Unset), None);
    };
    let other = Semaphore::NotASemaphore { until: key.expires().map(UnixMillis) };
    if key.kind() != KeyKind::Hash {
        return (Err(other), None);
    }
    let mode_field = strings.mode_field.lend();
    let [mode, own] = key.get([mode_field, asked.unwrap_or(mode_field)]);
    let Some(counts) = mode.and_then(|mode| Permits::read(mode.lend().bytes())) else {
        return (Err(other), None);
    };
    let own = own.filter(|_| asked.is_some());
    let share = own.as_ref().and_then(|own| Share::read(own.lend().bytes()));
    if own.is_some() && share.is_none() {
        return (Err(other), None);
    }
    (Ok(counts), share)
}

impl Server {
    /// Carries out one operation on a semaphore. If `permits` are requested and fewer are free,
    /// searches for expired holders first. Afterwards serves the waiters if more permits may be free.
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
        let mut open = Open::read(self, at, name, asked, key);
        self.table.pass_over(at);
        if let Some(permits) = permits {
            self.find_enough(&mut open, asked, permits);
        }
        let (outcome, change) = operate(self, &open.situation());
        let frees = self.write_permits(&mut open, asked, change);
        drop(open);
        if frees && self.table.is_in_line(at) {
            self.serve_permits(ctx, at, name, Cause::Release);
        }
        outcome
    }

    /// Writes a change. Returns whether more permits may be free than before.
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
                open.write(&self.strings, &[], (limit, used));
                true
            }
            (PermitsChange::Own { share, used: now_used }, Some(asked)) => {
                self.holders.searches.note(open.at, open.own.is_some(), share);
                // The lease just written may be the one that ends first.
                open.earliest = None;
                let value = share.map(|share| Text::new(share.text().as_bytes()));
                let fields = [(Text::new(asked.bytes()), value)];
                open.write(&self.strings, &fields, (limit, now_used));
                now_used < used
            }
        }
    }

    /// Searches for expired holders until this number of permits is free, no further search may run now, or
    /// [`ROUNDS_MAX`] parts of the search (see [`SearchPart`]) were done.
    fn find_enough(&mut self, open: &mut Open<'_>, asked: Option<Arg<'_>>, permits: u64) {
        for _ in 0..ROUNDS_MAX {
            if open.earliest.is_some() || !self.table.lacks_permits(&open.situation(), permits) {
                return;
            }
            self.find_dead(open, asked);
        }
    }

    /// Does one part of the search for expired holders (see [`SearchPart`]): removes the holders that it finds, and
    /// counts their permits as free. If no search may run now, only sets `earliest`.
    fn find_dead(&mut self, open: &mut Open<'_>, asked: Option<Arg<'_>>) {
        let (at, now, unasked) = (open.at, open.now, open.unasked);
        let (Ok((limit, used)), Some(key)) = (open.counts, &open.key) else { return };
        open.earliest = self.holders.rest(at, key, unasked, now);
        if open.earliest.is_some() {
            return;
        }
        let part =
            SearchPart { wanted: Wanted::TheDead, fields: key.fields(), removes: true, unasked };
        let found = self.holders.search(at, key, part, now);
        let left = found.left_of(used);
        open.own =
            open.own.filter(|_| !asked.is_some_and(|own| found.dead.contains_key(own.bytes())));
        self.holders.swept += u64::try_from(found.dead.len()).unwrap_or(0);
        let fields: Vec<_> = found.dead.keys().map(|owner| (Text::new(owner), None)).collect();
        // `left` may differ from `used` without an expired holder: another client may have deleted the field
        // of a holder.
        if left != used || !fields.is_empty() {
            open.write(&self.strings, &fields, (limit, left));
        }
        if let Some(key) = &open.key {
            let rest = self.holders.rest(at, key, unasked, now);
            open.earliest = rest.or_else(|| fields.is_empty().then(|| now.unix()));
        }
    }

    /// Returns whether serving the waiters may write: permits are free for the first one, or a search for
    /// expired holders would run.
    pub(crate) fn permits_are_due(&mut self, ctx: &Ctx<'_>, at: KeyRef<'_>, name: Arg<'_>) -> bool {
        let first = self.table.first_for_permits(at).map(|(_, permits)| permits);
        let open = ctx.open_to_read(name);
        let (Ok((limit, used)), _) = read(open.as_ref(), &self.strings, name, None) else {
            return false;
        };
        let is_free = first.is_some_and(|permits| limit.saturating_sub(used) >= permits);
        let now = self.now();
        is_free || open.is_some_and(|key| self.holders.rest(at, &key, true, now).is_none())
    }

    /// Returns whether the first waiter cannot be served, because too few permits are free even if those
    /// of expired holders count as free. If so, plans the next attempt. If the waiter's request no longer
    /// fits, for example because the semaphore has fewer permits in all, answers the waiter with an error.
    /// Writes nothing.
    pub(crate) fn postpone_without_permits(
        &mut self,
        ctx: &Ctx<'_>,
        at: KeyRef<'_>,
        name: Arg<'_>,
        cause: Cause,
    ) -> bool {
        let Some((owner, permits)) = self.table.first_for_permits(at) else { return false };
        let owner = Text::new(owner);
        let key = ctx.open_to_read(name);
        let mut open = Open::read(self, at, name, Some(owner.lend()), key);
        let (Ok((limit, used)), Some(key)) = (open.counts, &open.key) else { return false };
        let (wanted, fields) = (Wanted::TheDead, key.fields());
        let part = SearchPart { wanted, fields, removes: false, unasked: true };
        let found = self.holders.search(at, key, part, open.now);
        let turn = self.holders.rest(at, key, true, open.now);
        open.own = open.own.filter(|_| !found.dead.contains_key(owner.lend().bytes()));
        open.counts = Ok((limit, found.left_of(used)));
        if !self.table.lacks_permits(&open.situation(), permits) {
            return false;
        }
        open.earliest = found.passed.flatten().or(turn);
        match self.table.serve_permits(&open.situation(), cause) {
            Served::NotYet => true,
            Served::Dismissed(waiting, why) => {
                let now = open.now;
                drop(open);
                self.answer(waiting, sent_away(&why), None);
                self.table.serve_soon(at, cause, now);
                true
            }
            // Not reached: too few permits are free, as checked above.
            Served::Granted(..) => false,
        }
    }

    /// Grants free permits to the waiters at the head of the queue. Serves at most `RUN_MAX` waiters, and
    /// plans another call for the others.
    pub(crate) fn serve_permits(
        &mut self,
        ctx: &Ctx<'_>,
        at: KeyRef<'_>,
        name: Arg<'_>,
        cause: Cause,
    ) {
        let key = ctx.open_to_write(name);
        if key.is_none() {
            // The key cannot be written now. Tries again in a later turn of the event loop.
            return self.table.serve_soon(at, cause, self.now());
        }
        let mut open = Open::read(self, at, name, None, key);
        open.unasked = true;
        let (mut granted, mut all) = (Vec::new(), false);
        for _ in 0..RUN_MAX {
            self.table.pass_over(at);
            let first = self.table.first_for_permits(at);
            let Some((owner, permits)) = first.map(|(owner, n)| (Text::new(owner), n)) else {
                all = true;
                break;
            };
            let owner = owner.lend();
            if open.counts == Err(Semaphore::Unset) {
                if let Some(waiting) = self.table.dismiss_one_of(at, Dismissal::Unset) {
                    self.answer(waiting, UNSET, None);
                }
                continue;
            }
            (_, open.own) = read(open.key.as_ref(), &self.strings, name, Some(owner));
            self.find_enough(&mut open, Some(owner), permits);
            match self.table.serve_permits(&open.situation(), cause) {
                Served::NotYet => {
                    all = true;
                    break;
                }
                Served::Dismissed(waiting, why) => self.answer(waiting, sent_away(&why), None),
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
            let Some(client) = client else { continue };
            let grant = UnsentGrant { id, key: at.to_lock_key(), owner, token, permits };
            self.answer(client, Reply::Number(holds), Some(grant));
        }
        if !all {
            self.table.serve_soon(at, cause, now);
        }
    }

    /// Takes back permits whose grant did not reach its client.
    pub(crate) fn take_permits_back(&mut self, ctx: &Ctx<'_>, grant: &UnsentGrant) {
        let (name, owner) = (Text::new(&grant.key.name), Text::new(&grant.owner));
        if ctx.refusal_to_write(name.lend()).is_some() {
            // The permits stay granted until their lease ends.
            return self.delivered(grant);
        }
        let asked = Some(owner.lend());
        self.on_semaphore(ctx, name.lend(), asked, None, |server, at| {
            let (id, permits) = (grant.id, grant.permits);
            ((), server.table.take_permits_back(at, id, &grant.owner, permits))
        });
    }
}
