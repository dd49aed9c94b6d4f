//! Several locks in one step: reads all keys of a set before the decision, and writes all of them after it.

use kvlock_core::{Change, Member, Now, Observed, Table};

use crate::clock;
use crate::operate::Case;
use crate::redis::{Arg, Ctx, Key};
use crate::server::{Server, Waiting};

/// A key of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) name: Arg<'a>,
    /// Whether it is a key of `UNDER`, which the set only shares.
    pub(crate) under: bool,
}

/// A lock of a set, with its open key.
type Opened<'a> = (Case<'a>, Option<Key<'a>>);

impl Server {
    /// Carries out one operation of a command on several locks of one owner: reads them all, lets `operate` decide,
    /// and writes a change for each. If a lock can be granted to a waiter, the waiter gets it before that.
    ///
    /// With `searches`, a lock that is only shared by expired sharers is read as free, unless it is a key of `UNDER`.
    pub(crate) fn on_set<R>(
        &mut self,
        ctx: &Ctx<'_>,
        parts: &[Part<'_>],
        owner: Arg<'_>,
        searches: bool,
        operate: impl FnOnce(&mut Table<Waiting>, &[Member<'_>]) -> (R, Vec<Change<Waiting>>),
    ) -> R {
        let now = clock::now();
        let mut all = self.open_all(ctx, parts, owner, now);
        if all.iter().any(|(case, _)| self.table.owes_a_grant(&case.at)) {
            drop(all);
            self.serve_all(ctx, parts, owner, now);
            all = self.open_all(ctx, parts, owner, now);
        }
        for ((case, open), part) in all.iter_mut().zip(parts) {
            if let (Observed::Shared(_), Some(key)) = (case.at.seen, open.as_ref())
                && searches
                && !part.under
                && !self.table.is_in_line(case.at.key)
            {
                self.find_living(case, key, false);
            }
        }
        let members = all.iter().zip(parts);
        let members = members.map(|((case, _), part)| Member { at: case.at, under: part.under });
        let members: Vec<_> = members.collect();
        let (outcome, changes) = operate(&mut self.table, &members);
        for ((case, open), change) in all.into_iter().zip(changes) {
            self.carry_out(&case, open, owner, change);
        }
        outcome
    }

    /// Opens and reads all keys of a set, as their owner sees them.
    fn open_all<'a>(
        &mut self,
        ctx: &'a Ctx<'a>,
        parts: &[Part<'a>],
        owner: Arg<'a>,
        now: Now,
    ) -> Vec<Opened<'a>> {
        let db = ctx.db();
        let open = |part: &Part<'a>| {
            let mut case = self.case(ctx, db, part.name, now);
            let open = ctx.open_to_write(part.name);
            case.read(open.as_ref(), &self.words, Some(owner));
            (case, open)
        };
        parts.iter().map(open).collect()
    }

    /// Serves the waiters of all locks of a set that can be granted to one.
    fn serve_all(&mut self, ctx: &Ctx<'_>, parts: &[Part<'_>], owner: Arg<'_>, now: Now) {
        let db = ctx.db();
        for part in parts {
            let mut case = self.case(ctx, db, part.name, now);
            case.read(ctx.open_to_read(part.name).as_ref(), &self.words, Some(owner));
            if self.table.owes_a_grant(&case.at) {
                let cause = self.table.cause_of_freedom(case.at.key);
                self.serve(&case, cause);
            }
        }
    }
}
