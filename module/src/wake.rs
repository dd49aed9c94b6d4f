//! Work outside commands. Its causes are, for example, timeouts, ends of leases and of sessions, and changes
//! of keys by other clients. Another cause is a grant to a client that had already disconnected.

use std::time::Duration;

use kvlock_core::{
    Cause, Dismissal, Group, KeyRef, Keys as _, Kind, LockKey, Millis, Observed, UnsentGrant, Work,
};

use crate::clock::Instant;
use crate::redis::{Ctx, Reply, Text};
use crate::replies::{NO_SESSION, sent_away};
use crate::server::Server;
use crate::sessions::ring;
use crate::waiting::Waiting;

/// Time budget for work outside commands in one turn of the event loop.
const BUDGET: Duration = Duration::from_micros(500);

/// Largest number of waiters of one key that are dismissed in one piece of work.
const TURNED_AWAY: usize = 8;

/// Delay before a write that is not allowed now is tried again. No event reports that a pause of the
/// clients (`CLIENT PAUSE`) has ended.
const PAUSED: Duration = Duration::from_millis(20);

impl Server {
    /// Does due work until the time budget of this turn is used up, and arms the timer for the rest.
    pub(crate) fn run_due(&mut self, ctx: &Ctx<'_>) {
        let begun = Instant::now();
        self.table.end_quarantine(self.now());
        let may_write = self.may_write_unasked(ctx);
        let mut later = Vec::new();
        while let Some(work) = self.next_work(may_write) {
            if let Work::TakeBack(grant) = work {
                later.extend(self.take_back_if_it_can_be_written(ctx, grant));
            } else {
                self.carry_out_work(ctx, work);
            }
            self.answer_due();
            if begun.elapsed() >= BUDGET {
                break;
            }
        }
        let now = self.forget_time().now();
        let is_paused = !may_write && begun.elapsed() < BUDGET;
        if is_paused && self.table.next_due(now) == Some(Millis(0)) {
            self.timer.arm(ctx, PAUSED);
        } else {
            self.arm_timer(ctx);
        }
        if !later.is_empty() {
            later.into_iter().for_each(|grant| self.table.not_taken_back(grant));
            self.timer.arm(ctx, PAUSED);
        }
    }

    fn next_work(&mut self, may_write: bool) -> Option<Work<Waiting>> {
        let now = self.forget_time().now();
        self.table.next_work(now, may_write)
    }

    /// Takes a grant back. Returns the grant if its key cannot be written at this moment.
    fn take_back_if_it_can_be_written(
        &mut self,
        ctx: &Ctx<'_>,
        grant: UnsentGrant,
    ) -> Option<UnsentGrant> {
        ctx.select(grant.key.db);
        if ctx.open_to_write(Text::new(&grant.key.name).lend()).is_none() {
            return Some(grant);
        }
        self.take_back(ctx, &grant);
        None
    }

    fn carry_out_work(&mut self, ctx: &Ctx<'_>, work: Work<Waiting>) {
        match work {
            Work::TimedOut(waiting) => self.answer(waiting, Reply::Nil, None),
            Work::Opened(waiting) => self.answer(waiting, Reply::Number(0), None),
            Work::Drained(waiting) => {
                self.answer(waiting, sent_away(&Dismissal::Draining), None);
            }
            Work::Forgotten(reader) => self.answer(reader, NO_SESSION, None),
            Work::Read(reading, waiting) => self.answer_reader(reading, waiting),
            Work::Ring(session, last) => ring(ctx, &session, last),
            Work::Look(key, cause) => self.probe(ctx, &key, cause),
            Work::Set(waiter) => self.probe_set(ctx, waiter),
            Work::Bound(bound) => self.look_at_bound(ctx, &bound),
            Work::Results(group) => self.look_for_result(ctx, &group),
            Work::TakeBack(_) | Work::Done => {}
        }
    }

    /// Checks whether the ready-key (`UNLESS`) of a group of waiters exists. If so, some of them are answered
    /// next.
    fn look_for_result(&mut self, ctx: &Ctx<'_>, group: &Group) {
        ctx.select(group.key.db);
        let exists = ctx.exists(&group.ready_key);
        self.table.looked_at_group(group, exists);
    }

    /// Returns whether grants may be written outside a command.
    fn may_write_unasked(&self, ctx: &Ctx<'_>) -> bool {
        self.primary && ctx.may_write_unasked()
    }

    /// Serves the waiters of a key, or notifies its observers. Dismisses them with an error if this server
    /// cannot serve the key.
    fn probe(&mut self, ctx: &Ctx<'_>, key: &LockKey, cause: Cause) {
        ctx.select(key.db);
        let name = Text::new(&key.name);
        if self.in_cluster && !ctx.serves(key.db, &[name.lend()]) {
            return self.turn_away(key.borrow(), &Dismissal::Moving);
        }
        if key.kind == Kind::Changes {
            self.notice(ctx, (key.borrow(), name.lend()), Some(cause));
            return;
        }
        if key.kind == Kind::Latch {
            return self.look_at_latch(ctx, key.borrow());
        }
        if key.kind == Kind::Semaphore {
            if self.permits_are_due(ctx, key.borrow(), name.lend())
                && let Some(refusal) = ctx.refusal_to_write(name.lend())
            {
                if self.postpone_without_permits(ctx, key.borrow(), name.lend(), cause) {
                    return;
                }
                return self.turn_away(key.borrow(), &refused(&refusal));
            }
            return self.serve_permits(ctx, key.borrow(), name.lend(), cause);
        }
        let mut case = self.case(ctx, key.db, name.lend());
        case.read(ctx.open_to_read(name.lend()).as_ref(), &self.strings, None);
        if (self.table.owes_a_grant(&case.at) || self.table.must_find_live_sharers(&case.at))
            && let Some(refusal) = ctx.refusal_to_write(name.lend())
        {
            if self.has_live_sharers(&mut case) {
                // Even if the server accepted writes, the waiters could be granted nothing now. So this only
                // plans the next look.
                let change = self.table.look(&case.at, cause);
                return self.carry_out(&case, None, name.lend(), change);
            }
            return self.turn_away(key.borrow(), &refused(&refusal));
        }
        self.serve(&case, cause);
    }

    /// Dismisses some waiters of this key, because this server cannot grant it. Plans the dismissal of the
    /// others.
    fn turn_away(&mut self, key: KeyRef<'_>, why: &Dismissal) {
        for _ in 0..TURNED_AWAY {
            let Some(waiting) = self.table.dismiss_one_of(key, why.clone()) else {
                return;
            };
            self.answer(waiting, sent_away(why), None);
        }
        // The next call of `probe` for this key dismisses the others.
        self.table.look_soon(key, Cause::Outside, self.now());
    }

    fn take_back(&mut self, ctx: &Ctx<'_>, grant: &UnsentGrant) {
        if grant.key.kind == Kind::Semaphore {
            return self.take_permits_back(ctx, grant);
        }
        let (name, owner) = (Text::new(&grant.key.name), Text::new(&grant.owner));
        let mut case = self.case(ctx, grant.key.db, name.lend());
        case.read(ctx.open_to_read(name.lend()).as_ref(), &self.strings, Some(owner.lend()));
        let is_there = match case.at.seen {
            Observed::Held(holding) => *holding.owner == *grant.owner,
            Observed::Shared(sharing) => sharing.own.is_some(),
            Observed::Free { .. } | Observed::NotALock { .. } => false,
        };
        if !is_there || ctx.refusal_to_write(name.lend()).is_some() {
            // The grant has already ended, or its key cannot be written. In the second case, the grant ends
            // with its lease.
            return self.table.stays_granted(grant);
        }
        let change = self.table.take_back(&case.at, grant.id, &grant.owner, grant.token);
        let open = ctx.open_to_write(name.lend());
        self.carry_out(&case, open, owner.lend(), change);
    }
}

/// Returns the reason for turning waiters away when the server refuses writes. `NOREPLICAS` and `MISCONF` are
/// passed on with the server's text. Any other refusal is taken to mean that the slot is moving.
pub(crate) fn refused(why: &[u8]) -> Dismissal {
    let known = [&b"NOREPLICAS"[..], b"MISCONF"].iter().any(|code| why.starts_with(code));
    if known { Dismissal::Server(why.into()) } else { Dismissal::Moving }
}
