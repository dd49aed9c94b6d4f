//! Releases locks and permits that were bound to ended sessions, a few in each turn. Drops bindings whose
//! grant no longer exists.

use kvlock_core::{DueBinding, Kind, UnixMillis};

use crate::redis::{Arg, Ctx, Text};
use crate::semaphore;
use crate::server::Server;

impl Server {
    /// Drops the binding if its owner no longer has the bound grant of the lock, or holds no permits. If the
    /// grant still exists and the session has ended, releases it. If the key cannot be written now, plans
    /// another attempt.
    pub(crate) fn look_at_bound(&mut self, ctx: &Ctx<'_>, bound: &DueBinding) {
        let now = self.now();
        ctx.select(bound.key.db);
        let (name, owner) = (Text::new(&bound.key.name), Text::new(&bound.owner));
        let (name, owner) = (name.lend(), owner.lend());
        let until = match bound.key.kind {
            Kind::Lock => self.bound_lock_until(ctx, bound, (name, owner)),
            Kind::Semaphore => {
                let open = ctx.open_to_read(name);
                let own = semaphore::read(open.as_ref(), &self.strings, name, Some(owner)).1;
                own.filter(|own| own.is_live(now.unix())).map(|own| own.until)
            }
            Kind::Latch | Kind::Changes => None,
        };
        let Some(until) = until else { return self.table.not_bound(bound) };
        if !bound.is_orphan {
            return self.table.stays_bound(bound, until, now);
        }
        if self.in_cluster && !ctx.serves(bound.key.db, &[name]) {
            // This node does not serve the slot: the key migrates, or has migrated, with its slot.
            return self.table.refused_to_release(bound, false, now);
        }
        if ctx.refusal_to_write(name).is_some() || ctx.open_to_write(name).is_none() {
            return self.table.refused_to_release(bound, true, now);
        }
        if bound.key.kind == Kind::Semaphore {
            return self.on_semaphore(ctx, name, Some(owner), None, |server, at| {
                ((), server.table.release_bound_permits(at, bound))
            });
        }
        let mut case = self.case(ctx, bound.key.db, name);
        let open = ctx.open_to_write(name);
        case.read(open.as_ref(), &self.strings, Some(owner));
        let change = self.table.release_bound(&case.at, bound);
        self.carry_out(&case, open, owner, change);
    }

    fn bound_lock_until(
        &mut self,
        ctx: &Ctx<'_>,
        bound: &DueBinding,
        (name, owner): (Arg<'_>, Arg<'_>),
    ) -> Option<UnixMillis> {
        let mut case = self.case(ctx, bound.key.db, name);
        case.read(ctx.open_to_read(name).as_ref(), &self.strings, Some(owner));
        self.table.bound_until(&case.at, bound)
    }
}
