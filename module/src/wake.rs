//! What happens outside commands: waits that are over, leases that ended, keys that somebody
//! changed, grants to clients that were gone.

use std::time::Duration;

use kvlock_core::{Cause, Now};

use crate::clock;
use crate::keyspace;
use crate::redis::{Ctx, Reply, Text};
use crate::server::{Grant, Server};

/// How many things are done in one go before the server's clients get their turn.
const BATCH: usize = 64;

/// How soon to try again what may not be written now. No event tells when a pause ends.
const PAUSED: Duration = Duration::from_millis(20);

impl Server {
    /// Does what is due, up to a batch, and plans the rest.
    pub(crate) fn run_due(&mut self, ctx: &Ctx<'_>) {
        let now = clock::now();
        for _ in 0..BATCH {
            let Some(waiting) = self.table.time_out_one(now) else {
                break;
            };
            self.answer(waiting, Reply::Nil, None);
        }
        if !self.may_write_unasked(ctx) {
            if self.table.next_due(now).is_some() || !self.lost.is_empty() {
                self.timer.arm(ctx, PAUSED);
            }
            return;
        }
        for _ in 0..BATCH {
            let Some(grant) = self.lost.pop() else { break };
            self.take_back(ctx, &grant, now);
        }
        for _ in 0..BATCH {
            let Some((key, cause)) = self.table.next_look(now) else {
                break;
            };
            self.look(ctx, key.db, &Text::new(&key.name), cause, now);
        }
        if !self.lost.is_empty() {
            self.timer.arm(ctx, Duration::ZERO);
        }
        self.plan(ctx, now);
    }

    /// Says whether a grant may be written that no client asks for just now.
    fn may_write_unasked(&self, ctx: &Ctx<'_>) -> bool {
        self.primary && ctx.may_write_unasked()
    }

    /// Looks at a lock that somebody waits for.
    fn look(&mut self, ctx: &Ctx<'_>, db: i32, name: &Text, cause: Cause, now: Now) {
        ctx.select(db);
        let seen = keyspace::read(ctx, &self.words, name.lend(), None);
        let key = kvlock_core::KeyRef {
            db,
            name: name.lend().bytes(),
        };
        let at = seen.situation(key, b"", now);
        let change = self.table.look(&at, cause);
        self.carry_out(ctx, name.lend(), name.lend(), &at, change);
    }

    fn take_back(&mut self, ctx: &Ctx<'_>, grant: &Grant, now: Now) {
        ctx.select(grant.key.db);
        let (name, owner) = (Text::new(&grant.key.name), Text::new(&grant.owner));
        let seen = keyspace::read(ctx, &self.words, name.lend(), Some(owner.lend()));
        let at = seen.situation(grant.key.borrow(), &grant.owner, now);
        let change = self.table.take_back(&at, &grant.owner, grant.token);
        self.carry_out(ctx, name.lend(), owner.lend(), &at, change);
    }
}
