//! Operations on a set of locks: reads all its keys before the lock table decides, and writes the changes of
//! all keys afterwards.

use kvlock_core::{
    Cause, Change, Dismissal, GrantedSet, HandOff, Member, Observed, ServedSet, SetKey, Table,
    UnsentGrant, WaiterId,
};

use crate::holders::ROUNDS_MAX;
use crate::keyspace::Depth;
use crate::operate::{Case, Need};
use crate::redis::{Arg, Ctx, Key, Reply, Text};
use crate::replies::sent_away;
use crate::server::Server;
use crate::slot;
use crate::waiting::Waiting;
use crate::wake::refused;

/// One key of a set of locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) name: Arg<'a>,
    /// `true` for a key of the option `UNDER`: its lock is always shared.
    pub(crate) under: bool,
}

/// A lock of a set, with its open key.
type Opened<'a> = (Case<'a>, Option<Key<'a>>);

/// Keys of a waiter's set, with their names as strings of the server.
struct Keys {
    all: Vec<(SetKey, Text)>,
}

impl Keys {
    fn of(keys: Vec<SetKey>) -> Self {
        let named = |key: SetKey| {
            let name = Text::new(&key.key.name);
            (key, name)
        };
        Self { all: keys.into_iter().map(named).collect() }
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let all = self.all.iter();
        all.map(|(key, name)| Part { name: name.lend(), under: key.under }).collect()
    }
}

/// Returns the input of the lock table for a set.
fn members<'a>(all: &[Opened<'a>], parts: &[Part<'_>]) -> Vec<Member<'a>> {
    all.iter().map(|(case, _)| case).zip(parts).map(member).collect()
}

fn member<'a>((case, part): (&Case<'a>, &Part<'_>)) -> Member<'a> {
    Member { at: case.at, under: part.under }
}

/// Adds the `VALUE` of the holder to the changes, except for keys of `UNDER`.
pub(crate) fn with_values(
    changes: Vec<Change<Waiting>>,
    members: &[Member<'_>],
    value: Option<&[u8]>,
) -> Vec<Change<Waiting>> {
    let changes = changes.into_iter().zip(members);
    changes.map(|(change, member)| change.with_value(value.filter(|_| !member.under))).collect()
}

/// Who has caused an attempt to grant a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// A client, with a command that writes, so the server has checked that it accepts writes now.
    Client,
    /// Nobody: the timer.
    Nobody,
}

/// Largest number of waiters for sets that one call of [`Server::serve_sets`] serves.
const AT_ONCE: usize = 8;

impl Server {
    /// Carries out one operation of a command on several locks: reads all locks, lets `operate` decide, and
    /// writes the changes. If the first waiter of a lock can already be granted it, grants it before `operate`
    /// decides.
    ///
    /// With [`Need::Living`], a lock is read as free if it has no waiters and a search finds only expired
    /// sharers. This does not apply to keys of `UNDER`.
    pub(crate) fn on_set<R>(
        &mut self,
        ctx: &Ctx<'_>,
        parts: &[Part<'_>],
        owner: Arg<'_>,
        need: Need,
        operate: impl FnOnce(&mut Table<Waiting>, &[Member<'_>]) -> (R, Vec<Change<Waiting>>),
    ) -> R {
        let depth = self.depth(need);
        let mut all = self.open_all(ctx, parts, (owner, depth));
        all.iter().for_each(|(case, _)| self.table.pass_over(case.at.key));
        if all.iter().any(|(case, _)| self.table.owes_a_grant(&case.at)) {
            drop(all);
            self.serve_all(ctx, parts, owner);
            all = self.open_all(ctx, parts, (owner, depth));
        }
        let mut rounds = ROUNDS_MAX;
        for ((case, open), part) in all.iter_mut().zip(parts) {
            if let (Observed::Shared(_), Some(key)) = (case.at.seen, open.as_ref())
                && need == Need::Living
                && !part.under
                && !self.table.is_in_line(case.at.key)
            {
                self.find_live(case, key, false, &mut rounds);
            }
        }
        let (outcome, changes) = operate(&mut self.table, &members(&all, parts));
        for ((case, open), change) in all.into_iter().zip(changes) {
            self.carry_out(&case, open, owner, change);
        }
        outcome
    }

    /// Called when a command has changed this key: serves some of the waiters whose sets may be granted now.
    /// The timer later serves the others, also those in other databases and, in a cluster, in other slots.
    pub(crate) fn serve_sets(&mut self, ctx: &Ctx<'_>, name: Arg<'_>) {
        for _ in 0..AT_ONCE {
            let Some(waiter) = self.table.next_set(Some(ctx.db())) else { break };
            if self.in_cluster && !self.is_in_slot_of(waiter, name) {
                self.table.look_at_set_later(waiter);
                break;
            }
            self.serve_set(ctx, waiter, Asks::Client);
        }
    }

    /// Returns whether the keys of a waiter's set are in the slot of this key.
    fn is_in_slot_of(&self, waiter: WaiterId, name: Arg<'_>) -> bool {
        let keys = self.table.set_of(waiter);
        keys.first().is_some_and(|first| slot::of(&first.key.name) == slot::of(name.bytes()))
    }

    /// Grants all locks of a set to its waiter, if all can be granted and it is the waiter's turn. Dismisses the
    /// waiter if this server cannot write the keys.
    /// If expired sharers hold one of the locks, a look at its key removes them, and then the set is tried again.
    fn serve_set(&mut self, ctx: &Ctx<'_>, waiter: WaiterId, asks: Asks) {
        let Some(owner) = self.table.owner_of_set(waiter) else { return };
        let keys = Keys::of(self.table.set_of(waiter));
        keys.all.iter().for_each(|(key, _)| self.table.pass_over(key.key.borrow()));
        let (owner, parts) = (Text::new(&owner), keys.parts());
        let owner = owner.lend();
        if self.in_cluster || asks == Asks::Nobody {
            let members = self.read_all(ctx, &parts, owner);
            if self.table.set_is_held_up(waiter, &members) {
                return;
            }
            if let Some(why) = self.refusal_of(ctx, &keys, asks) {
                return self.turn_set_away(waiter, why);
            }
        }
        let all = self.open_all(ctx, &parts, (owner, Depth::Full));
        if all.iter().any(|(_, open)| open.is_none()) {
            // A key cannot be written now. Tries again in a later turn of the event loop.
            drop(all);
            let now = self.now();
            keys.all.iter().for_each(|(key, _)| {
                self.table.look_soon(key.key.borrow(), Cause::Outside, now);
            });
            return;
        }
        let members = members(&all, &parts);
        let GrantedSet { changes, hand_off, holds } = match self.table.serve_set(waiter, &members) {
            ServedSet::Granted(granted) => granted,
            ServedSet::HeldUp => return,
            ServedSet::Dismissed(client, why) => {
                return self.answer(client, sent_away(&why), None);
            }
        };
        let changes = with_values(changes, &members, hand_off.value.as_deref());
        for ((case, open), change) in all.into_iter().zip(changes) {
            self.carry_out(&case, open, owner, change);
        }
        let HandOff { id, owner, token, client, .. } = hand_off;
        if let (Some(client), Some((first, _))) = (client, keys.all.first()) {
            let grant = UnsentGrant { id, key: first.key.clone(), owner, token, permits: 0 };
            self.answer(client, Reply::Pair(token.value(), holds), Some(grant));
        }
    }

    /// Called outside commands: grants a set to its waiter, if that is possible now.
    pub(crate) fn probe_set(&mut self, ctx: &Ctx<'_>, waiter: WaiterId) {
        if let Some(first) = self.table.set_of(waiter).first() {
            ctx.select(first.key.db);
            self.serve_set(ctx, waiter, Asks::Nobody);
        }
    }

    /// Returns why this server cannot write the keys of a set. The server has checked the keys of a command, but
    /// the set may have others, which may have moved to another node with their slot.
    fn refusal_of(&self, ctx: &Ctx<'_>, keys: &Keys, asks: Asks) -> Option<Dismissal> {
        let names: Vec<_> = keys.all.iter().map(|(_, name)| name.lend()).collect();
        let (first, _) = keys.all.first()?;
        if self.in_cluster && !ctx.serves(first.key.db, &names) {
            return Some(Dismissal::Moving);
        }
        let refusal = match asks {
            Asks::Client => None,
            Asks::Nobody => ctx.refusal_to_write(*names.first()?),
        };
        refusal.map(|refusal| refused(&refusal))
    }

    /// Reads all keys of a set, as seen by one owner.
    fn read_all<'a>(
        &mut self,
        ctx: &'a Ctx<'a>,
        parts: &[Part<'a>],
        owner: Arg<'a>,
    ) -> Vec<Member<'a>> {
        parts.iter().map(|part| member((&self.look_up(ctx, part.name, owner), part))).collect()
    }

    fn turn_set_away(&mut self, waiter: WaiterId, why: Dismissal) {
        let reply = sent_away(&why);
        let client = self.table.dismiss_set(waiter, why);
        self.answer(client, reply, None);
    }

    /// Opens and reads all keys of a set, as seen by one owner.
    fn open_all<'a>(
        &mut self,
        ctx: &'a Ctx<'a>,
        parts: &[Part<'a>],
        (owner, depth): (Arg<'a>, Depth),
    ) -> Vec<Opened<'a>> {
        let open = |part: &Part<'a>| {
            let open = ctx.open_to_write(part.name);
            (self.read_lock(ctx, part.name, Some(owner), (open.as_ref(), depth)), open)
        };
        parts.iter().map(open).collect()
    }

    /// Reads each lock of a set. If its first waiter can be granted the lock, serves its waiters.
    fn serve_all(&mut self, ctx: &Ctx<'_>, parts: &[Part<'_>], owner: Arg<'_>) {
        for part in parts {
            let case = self.look_up(ctx, part.name, owner);
            if self.table.owes_a_grant(&case.at) {
                let cause = self.table.cause_of_freedom(case.at.key);
                self.serve(&case, cause);
            }
        }
    }
}
