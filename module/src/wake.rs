//! What happens outside commands: waits that are over, leases that ended, keys that somebody
//! changed, grants to clients that were gone.

use std::time::Duration;

use kvlock_core::{Bug, Cause, Dismissal, KeyRef, Kind, LockKey, Now, Observed, RUN_MAX, Untold};

use crate::clock::{self, Instant};
use crate::commands::sent_away;
use crate::redis::{Ctx, Reply, Text};
use crate::server::Server;

/// How many things are done in one go before the server's clients get their turn.
pub(crate) const BATCH: usize = RUN_MAX;

/// How long one kind of work goes on that may take long at one key, and nothing at another.
const GO: Duration = Duration::from_micros(300);

/// A go of such work: until it has taken long enough, or so many were granted something.
pub(crate) struct Go {
    begun: Instant,
    enough: u64,
}

/// How soon to try again what may not be written now. No event tells when a pause ends.
const PAUSED: Duration = Duration::from_millis(20);

impl Server {
    /// Does what is due, up to a batch, and plans the rest.
    pub(crate) fn run_due(&mut self, ctx: &Ctx<'_>) {
        let now = clock::now();
        self.table.end_quarantine(now);
        self.table.end_moments(now);
        for _ in 0..BATCH {
            let Some(waiting) = self.table.time_out_one(now) else {
                break;
            };
            self.answer(waiting, Reply::Nil, None);
        }
        self.work_on_sessions(now);
        if !self.may_write_unasked(ctx) {
            self.answer_released(ctx);
            self.tell_readers(now);
            if self.table.next_due(now).is_some() {
                // To answer readers nothing is written, nor for what else sessions leave to be done.
                let goes_on = self.table.has_readers_to_tell() || self.table.sessions_have_work();
                self.timer.arm(ctx, if goes_on { Duration::ZERO } else { PAUSED });
            }
            return;
        }
        self.take_some_back(ctx, now);
        self.work_on_bound(ctx, now);
        self.look_at_what_is_due(ctx, now);
        self.answer_released(ctx);
        self.plan(ctx, now);
    }

    /// Takes back grants that reached nobody, up to a batch. Where a key cannot be written just now, that is done in a
    /// later turn.
    fn take_some_back(&mut self, ctx: &Ctx<'_>, now: Now) {
        let mut later = Vec::new();
        for _ in 0..BATCH {
            let Some(grant) = self.table.next_untold() else { break };
            ctx.select(grant.key.db);
            if ctx.open_to_write(Text::new(&grant.key.name).lend()).is_some() {
                self.take_back(ctx, &grant, now);
            } else {
                later.push(grant);
            }
        }
        later.into_iter().for_each(|grant| self.table.was_not_sent(grant));
    }

    /// Begins a go.
    pub(crate) fn begin(&self) -> Go {
        let enough = self.table.counters().granted.saturating_add(BATCH as u64);
        Go { begun: Instant::now(), enough }
    }

    /// Whether it may go on.
    pub(crate) fn may_go_on(&self, go: &Go) -> bool {
        self.table.counters().granted < go.enough && go.begun.elapsed() < GO
    }

    /// Looks at each lock once, as long as that may go on: what a look leaves to be done at the same
    /// lock, and the locks that are left, have their turn when the server's clients had theirs.
    fn look_at_what_is_due(&mut self, ctx: &Ctx<'_>, now: Now) {
        while self.to_look_at.len() < BATCH
            && let Some(due) = self.table.next_look(now)
        {
            self.to_look_at.push(due);
        }
        self.to_look_at.reverse();
        let go = self.begin();
        // One after another is taken off: a panic at one of them leaves the others for the next turn.
        while let Some((key, cause)) = self.to_look_at.pop() {
            if self.may_go_on(&go) {
                self.probe(ctx, &key, cause, now);
            } else {
                self.table.look_soon(key.borrow(), cause, now);
            }
        }
    }

    /// Says whether a grant may be written that no client asks for just now.
    fn may_write_unasked(&self, ctx: &Ctx<'_>) -> bool {
        (self.primary || Bug::NoRoleCheck.is_planted())
            && (ctx.may_write_unasked() || Bug::NoPauseGuard.is_planted())
    }

    /// Serves those who wait at a key, if something may be granted here.
    fn probe(&mut self, ctx: &Ctx<'_>, key: &LockKey, cause: Cause, now: Now) {
        ctx.select(key.db);
        let name = Text::new(&key.name);
        if self.in_cluster
            && !ctx.serves_slot_of(key.db, name.lend())
            && !Bug::NoSlotProbe.is_planted()
        {
            return self.turn_away(key.borrow(), &Dismissal::Moving, now);
        }
        if key.kind == Kind::Changes {
            self.notice(ctx, (key.borrow(), name.lend()), now, Some(cause));
            return;
        }
        if key.kind == Kind::Latch {
            return self.look_at_latch(ctx, key.borrow());
        }
        if key.kind == Kind::Semaphore {
            if self.permits_are_due(ctx, key.borrow(), name.lend())
                && let Some(refusal) = ctx.refusal_to_write(name.lend())
            {
                if !Bug::RefusedForNothing.is_planted()
                    && self.permits_are_out(ctx, key.borrow(), name.lend(), cause)
                {
                    return;
                }
                return self.turn_away(key.borrow(), &refused(&refusal), now);
            }
            return self.serve_permits(ctx, key.borrow(), name.lend(), cause);
        }
        let mut case = self.case(ctx, key.db, name.lend(), now);
        case.read(ctx.open_to_read(name.lend()).as_ref(), &self.words, None);
        if (self.table.owes_a_grant(&case.at) || self.table.must_find_the_living(&case.at))
            && !Bug::NoReplicasCheck.is_planted()
            && !Bug::NoSlotProbe.is_planted()
            && let Some(refusal) = ctx.refusal_to_write(name.lend())
        {
            if !Bug::RefusedForNothing.is_planted() && self.is_shared_by_the_living(&mut case) {
                // They could be given nothing if the server took writes, either: the next look.
                let change = self.table.look(&case.at, cause);
                return self.carry_out(&case, None, name.lend(), change);
            }
            return self.turn_away(key.borrow(), &refused(&refusal), now);
        }
        self.serve(&case, cause);
    }

    /// Answers those who wait for this lock, because nobody can be given it here.
    fn turn_away(&mut self, key: KeyRef<'_>, why: &Dismissal, now: Now) {
        for _ in 0..BATCH {
            let Some(waiting) = self.table.dismiss_one_of(key, why.clone()) else {
                return;
            };
            self.answer(waiting, sent_away(why), None);
        }
        // The rest of them in the next round.
        self.table.look_soon(key, Cause::Outside, now);
    }

    fn take_back(&mut self, ctx: &Ctx<'_>, grant: &Untold, now: Now) {
        if grant.key.kind == Kind::Semaphore {
            return self.take_permits_back(ctx, grant);
        }
        let (name, owner) = (Text::new(&grant.key.name), Text::new(&grant.owner));
        let mut case = self.case(ctx, grant.key.db, name.lend(), now);
        case.read(ctx.open_to_read(name.lend()).as_ref(), &self.words, Some(owner.lend()));
        let is_there = match case.at.seen {
            Observed::Held(holding) => *holding.owner == *grant.owner,
            Observed::Shared(sharing) => sharing.own.is_some(),
            Observed::Free { .. } | Observed::NotALock { .. } => false,
        };
        if !is_there || ctx.refusal_to_write(name.lend()).is_some() {
            // It is not that grant any more, or nobody can be given it now and its lease ends it.
            return self.delivered(grant);
        }
        let change = self.table.take_back(&case.at, grant.id, &grant.owner, grant.token);
        let open = ctx.open_to_write(name.lend());
        self.carry_out(&case, open, owner.lend(), change);
    }
}

/// The server's own words for why it takes no writes now; anything else is about the slot.
fn refused(why: &[u8]) -> Dismissal {
    let known = [&b"NOREPLICAS"[..], b"MISCONF"].iter().any(|code| why.starts_with(code));
    if known { Dismissal::Server(why.into()) } else { Dismissal::Moving }
}
