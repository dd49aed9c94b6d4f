//! Asks the lock table for a decision about a lock, and carries it out.

use kvlock_core::{
    Cause, Change, HandOff, HeldBy, Holding, KeyRef, Keys, Millis, Now, Observed, Results, Sharers,
    Sharing, Situation, Table, UnixMillis, UnsentGrant,
};

use crate::floor::Place;
use crate::holders::{LastEnd, ROUNDS_MAX, last_end};
use crate::keyspace::{Depth, PLAIN_MAX, Strings};
use crate::redis::{Arg, Ctx, Key, KeyKind, Reply, Text};
use crate::server::Server;
use crate::waiting::Waiting;
use crate::{clock, keyspace, slot};

/// If a lock ends sooner than before by no more than this, the change is not announced to Redisson's waiters.
/// Leases granted in quick succession end that close together.
const NOT_WORTH_A_MESSAGE: Millis = Millis(100);

/// A lock as read at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    pub(crate) ctx: &'a Ctx<'a>,
    pub(crate) name: Arg<'a>,
    /// Input of the lock table. Describes a free lock until the key is read.
    pub(crate) at: Situation<'a>,
}

impl Keys for Ctx<'_> {
    fn exists(&self, name: &[u8]) -> bool {
        self.open_to_read(Text::new(name).lend()).is_some()
    }

    fn holders(&self, name: &[u8], asked: &[u8], most: usize) -> HeldBy {
        // In a cluster, the server looks up every key in the slot of the running command, and would not find
        // a key of another slot.
        if self.is_cluster() && slot::of(name) != slot::of(asked) {
            return HeldBy::default();
        }
        let name = Text::new(name);
        let key = self.open_to_read(name.lend());
        key.map(|key| keyspace::holders(&key, clock::now().unix(), most)).unwrap_or_default()
    }
}

impl<'a> Case<'a> {
    fn new(ctx: &'a Ctx<'a>, db: i32, name: Arg<'a>, now: Now) -> Self {
        let (key, seen) = (KeyRef::lock(db, name.bytes()), Observed::Free { stored: None });
        let results = Results::among(ctx);
        Self { ctx, name, at: Situation { key, seen, now, floor: None, results } }
    }

    /// Reads the lock, as seen by the owner `asked`.
    pub(crate) fn read(
        &mut self,
        key: Option<&Key<'_>>,
        strings: &Strings,
        asked: Option<Arg<'a>>,
    ) {
        self.at.seen = keyspace::read(key, strings, self.at.key.name, asked, Depth::Full);
    }
}

/// Part of a lock's state that an operation depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The owner's hold count. The rest of the state is read only if there are waiters, observers or grants
    /// in flight, or if this release records its hold time.
    Holds,
    /// The whole state, but not whether any sharer is alive.
    Own,
    /// The whole state, and whether any sharer is alive if the result depends on that.
    Living,
}

impl Server {
    /// Returns a lock of the selected database with its token floor. The key is not read yet.
    pub(crate) fn case<'a>(&mut self, ctx: &'a Ctx<'a>, db: i32, name: Arg<'a>) -> Case<'a> {
        let mut case = Case::new(ctx, db, name, self.now());
        case.at.floor = self.floor(&case);
        case
    }

    fn floor(&mut self, case: &Case<'_>) -> Option<u64> {
        let place = Place::of(case.at.key.db, case.at.key.name, self.in_cluster);
        self.floors.of(case.ctx, place, case.at.now)
    }

    /// Returns the amount of a lock's state that must be read.
    pub(crate) fn depth(&mut self, need: Need) -> Depth {
        let is_little = need == Need::Holds && self.table.is_quiet();
        if is_little && !self.table.samples_this_release() { Depth::Holds } else { Depth::Full }
    }

    /// Reads a lock of the selected database, as seen by the owner `asked`.
    pub(crate) fn read_lock<'a>(
        &mut self,
        ctx: &'a Ctx<'a>,
        name: Arg<'a>,
        asked: Option<Arg<'a>>,
        (open, depth): (Option<&Key<'_>>, Depth),
    ) -> Case<'a> {
        let mut case = Case::new(ctx, ctx.db(), name, self.now());
        case.at.seen = keyspace::read(open, &self.strings, case.at.key.name, asked, depth);
        // A release by the only holder of a lock without waiters grants nothing, so it needs no token.
        let is_alone = matches!(case.at.seen, Observed::Held(Holding { shared: 0, .. }));
        if depth != Depth::Holds || !is_alone {
            case.at.floor = self.floor(&case);
        }
        case
    }

    /// Reads a lock of the selected database, as seen by one owner, without changing it.
    pub(crate) fn look_up<'a>(
        &mut self,
        ctx: &'a Ctx<'a>,
        name: Arg<'a>,
        owner: Arg<'a>,
    ) -> Case<'a> {
        let open = ctx.open_to_read(name);
        self.read_lock(ctx, name, Some(owner), (open.as_ref(), Depth::Full))
    }

    /// Carries out one operation of a command on a lock: reads the lock as seen by `asked`, lets `operate`
    /// decide, and writes the change. If the first waiter can already be granted the lock, grants it before
    /// `operate` decides.
    pub(crate) fn on_lock<R>(
        &mut self,
        ctx: &Ctx<'_>,
        name: Arg<'_>,
        asked: Option<Arg<'_>>,
        need: Need,
        operate: impl FnOnce(&mut Table<Waiting>, &Situation<'_>) -> (R, Change<Waiting>),
    ) -> R {
        let mut open = ctx.open_to_write(name);
        let depth = self.depth(need);
        let mut case = self.read_lock(ctx, name, asked, (open.as_ref(), depth));
        self.table.pass_over(case.at.key);
        if self.table.owes_a_grant(&case.at) {
            drop(open);
            let cause = self.table.cause_of_freedom(case.at.key);
            self.serve(&case, cause);
            open = ctx.open_to_write(name);
            case.read(open.as_ref(), &self.strings, asked);
        }
        if let (Need::Living, Observed::Shared(_), Some(key)) = (need, case.at.seen, &open)
            && !self.table.is_in_line(case.at.key)
        {
            self.find_live(&mut case, key, false, &mut { ROUNDS_MAX });
        }
        let (outcome, change) = operate(&mut self.table, &case.at);
        self.carry_out(&case, open, asked.unwrap_or(name), change);
        if self.table.has_sets_to_look_at() {
            self.serve_sets(ctx, name);
        }
        outcome
    }

    /// Serves the waiters of a lock.
    pub(crate) fn serve(&mut self, case: &Case<'_>, cause: Cause) {
        self.table.pass_over(case.at.key);
        // Opened only once: a key may expire between two openings, so that the change would be written to
        // another state than the one that was read.
        let mut case = *case;
        let Some(key) = case.ctx.open_to_write(case.name) else {
            // The key cannot be written now. The timer checks the lock again.
            return self.table.look_soon(case.at.key, cause, case.at.now);
        };
        let open = Some(key);
        case.read(open.as_ref(), &self.strings, None);
        if let Some(key) = &open
            && self.table.must_find_live_sharers(&case.at)
        {
            self.find_live(&mut case, key, true, &mut { ROUNDS_MAX });
        }
        let change = self.table.look(&case.at, cause);
        self.carry_out(&case, open, case.name, change);
    }

    /// Writes a change of the lock table to the open key, and answers the waiters that were granted the lock.
    /// `requester` is the owner that acquires, renews or releases: the change does not contain its name. In a
    /// hand-off, the requester may be the previous holder. Callers without such an owner pass the name of the
    /// key.
    pub(crate) fn carry_out(
        &mut self,
        case: &Case<'_>,
        open: Option<Key<'_>>,
        requester: Arg<'_>,
        change: Change<Waiting>,
    ) {
        let change = self.hand_off_without_listeners(case, change);
        let issued = change.issued();
        let left = matches!(change, Change::Leave);
        let goes_on = matches!(change, Change::Share(Sharers { begins: false, .. }));
        let may_end_sooner = may_end_sooner(&case.at.seen, &change);
        let ends_sooner = ends_sooner(&case.at.seen, &change);
        if let Some(key) = open.filter(|_| !matches!(change, Change::None)) {
            self.write(case, key, requester, change);
        }
        if ends_sooner {
            self.announce(case.ctx, case.name);
        }
        if let Some(token) = issued {
            let place = Place::of(case.at.key.db, case.at.key.name, self.in_cluster);
            self.floors.reserve(case.ctx, place, token, case.at.now);
        }
        if may_end_sooner {
            self.trim_to_last_share(case);
        }
        if left && self.table.waiters_of(case.at.key) > 0 {
            // Finds out whether another sharer is alive. If none is, the first waiter is granted the lock.
            self.serve(case, Cause::Release);
        }
        if goes_on {
            self.sweep(case);
        }
        if self.table.is_observed(case.at.key) {
            self.notice(case.ctx, (case.at.key, case.name), None);
        }
    }

    /// Announces the lock if `change` leaves it free for Redisson. If no process of Redisson listens, returns
    /// a change that hands the lock to the first waiter instead. Otherwise returns `change`.
    fn hand_off_without_listeners(
        &mut self,
        case: &Case<'_>,
        change: Change<Waiting>,
    ) -> Change<Waiting> {
        if !matches!(change, Change::GiveWay) {
            return change;
        }
        let listeners = self.announce(case.ctx, case.name);
        if listeners == 0 {
            return self.table.hand_off_instead_of_turn(&case.at);
        }
        self.table.begin_turn(case.at.key, listeners, case.at.now);
        Change::GiveWay
    }

    /// Shortens the TTL of a shared lock to the end of its last lease, because Redisson reads only the TTL.
    /// Deletes the key if no lease is left and no waiter is in line. Announces the lock to Redisson's
    /// waiters if it is deleted or ends noticeably sooner. Does nothing if there are too many sharers to
    /// read all of them. Called when the longest lease may have been released or shortened.
    fn trim_to_last_share(&mut self, case: &Case<'_>) {
        let mut case = *case;
        let Some(key) = case.ctx.open_to_write(case.name) else { return };
        case.read(Some(&key), &self.strings, None);
        let Observed::Shared(sharing) = case.at.seen else { return };
        match last_end(&key, case.at.now.unix()) {
            LastEnd::Unknown => return,
            LastEnd::Nobody if self.table.is_in_line(case.at.key) => return,
            LastEnd::Nobody => key.delete(),
            LastEnd::At(last) => {
                let Some(until) = sharing.until.filter(|until| last < *until) else { return };
                key.set_expires(last.0);
                if !is_sooner(last, until) {
                    return;
                }
            }
        }
        drop(key);
        self.announce(case.ctx, case.name);
    }

    /// Deletes the fields that earlier grants left in the key of a free lock, and announces to Redisson's
    /// waiters that the lock is free.
    pub(crate) fn delete_remnant(&mut self, ctx: &Ctx<'_>, name: Arg<'_>) {
        let mut case = self.case(ctx, ctx.db(), name);
        let Some(key) = ctx.open_to_write(name) else { return };
        case.read(Some(&key), &self.strings, None);
        let Observed::Free { stored } = case.at.seen else { return };
        if key.kind() == KeyKind::Empty {
            return;
        }
        key.delete();
        drop(key);
        self.announce(ctx, name);
        self.table.record_loss(case.at.key, Cause::Forced);
        if self.table.is_observed(case.at.key) {
            self.notice(ctx, (case.at.key, name), None);
        }
        if let Some(token) = self.table.continue_above(stored) {
            let place = Place::of(case.at.key.db, case.at.key.name, self.in_cluster);
            self.floors.reserve(ctx, place, token, case.at.now);
        }
    }

    fn write(
        &mut self,
        case: &Case<'_>,
        key: Key<'_>,
        requester: Arg<'_>,
        change: Change<Waiting>,
    ) {
        match change {
            Change::None => {}
            Change::Take { token, until, value } => {
                self.strings.grant(&key, (requester, None), token, until, value.as_deref());
            }
            Change::Update { holds, token, until, value } => {
                let holds = holds.map(Text::number);
                self.strings.write_value(&key, value.as_deref());
                self.strings.update(&key, (requester, holds.as_ref()), token, until);
            }
            Change::Beside { holds, token, until } => {
                self.strings.write_shared_holds(&key, holds, token, until);
            }
            Change::Leave => key.unset(std::iter::once(requester)),
            Change::Free => {
                key.delete();
                drop(key);
                let listeners = self.announce(case.ctx, case.name);
                self.table.begin_turn_if_due(case.at.key, listeners, case.at.now);
            }
            Change::GiveWay => key.delete(),
            Change::HandOff(hand_off) => {
                let owner = Text::new(&hand_off.owner);
                let (token, until) = (hand_off.token, hand_off.until);
                let before =
                    Some(requester).filter(|before| is_plain(&key, &case.at.seen, *before));
                let to = (owner.lend(), before);
                self.strings.grant(&key, to, token, until, hand_off.value.as_deref());
                drop(key);
                self.answer_waiter(case, hand_off);
            }
            Change::Share(sharers) => {
                self.strings.share(&key, requester, &sharers);
                drop(key);
                sharers.joined.into_iter().for_each(|hand_off| self.answer_waiter(case, hand_off));
            }
        }
    }

    /// Answers a waiter that was granted the lock, if it is a blocked client.
    fn answer_waiter(&mut self, case: &Case<'_>, hand_off: HandOff<Waiting>) {
        let HandOff { id, owner, token, client, .. } = hand_off;
        let Some(client) = client else { return };
        let key = case.at.key.to_lock_key();
        let reply = Reply::Pair(token.value(), 1);
        self.answer(client, reply, Some(UnsentGrant { id, key, owner, token, permits: 0 }));
    }
}

/// Returns whether the key has exactly two fields: this owner as the exclusive holder, and the token.
fn is_plain(key: &Key<'_>, seen: &Observed<'_>, owner: Arg<'_>) -> bool {
    let Observed::Held(Holding { owner: holder, token: Some(_), .. }) = seen else { return false };
    // If the lock was read for an owner that does not hold it, the holder's name was not read and is empty
    // here.
    *holder == owner.bytes() && !holder.is_empty() && key.fields() == PLAIN_MAX
}

/// Returns whether `end` is so much earlier than `than` that it must be announced.
fn is_sooner(end: UnixMillis, than: UnixMillis) -> bool {
    end.plus(NOT_WORTH_A_MESSAGE) < than
}

/// Returns whether this change makes the key expire noticeably sooner. Then a Redisson process that sleeps
/// until the previous expiry time would sleep too long.
fn ends_sooner<P>(seen: &Observed<'_>, change: &Change<P>) -> bool {
    let before = match seen {
        Observed::Held(holding) => holding.until,
        Observed::Shared(sharing) => sharing.until,
        Observed::Free { .. } | Observed::NotALock { .. } => return false,
    };
    let sooner = |until: UnixMillis| before.is_none_or(|before| is_sooner(until, before));
    change.until().is_some_and(sooner)
}

/// Returns whether this change may remove or shorten the longest lease in a shared lock.
fn may_end_sooner<P>(seen: &Observed<'_>, change: &Change<P>) -> bool {
    let Observed::Shared(Sharing { own: Some(own), until: Some(until), .. }) = seen else {
        return false;
    };
    let is_shorter = |sharers: &Sharers<P>| sharers.own.is_some_and(|now| now.until < own.until);
    let gives_way = matches!(change, Change::Leave)
        || matches!(change, Change::Share(sharers) if is_shorter(sharers));
    gives_way && own.until >= *until
}
