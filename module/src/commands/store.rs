//! `STORE`: the result that a release leaves for waiters with `UNLESS`.

use kvlock_core::arguments::Store;
use kvlock_core::{Cause, Now, Situation, Table};

use crate::redis::{Arg, Ctx};
use crate::waiting::Waiting;

/// Stores a result. Plans a check of the queues of the ready-key, because clients may wait for a lock, a
/// semaphore or a latch of that name. Must be called before the lock becomes free, so that waiters with
/// `UNLESS` are answered `ready` instead of being granted the lock.
pub(super) fn write_result(
    ctx: &Ctx<'_>,
    table: &mut Table<Waiting>,
    at: &Situation<'_>,
    store: &Store<Arg<'_>>,
) {
    write(ctx, store, at.now);
    table.look_soon_at_all_of(ctx.db(), store.key.bytes(), Cause::Outside, at.now);
}

fn write(ctx: &Ctx<'_>, store: &Store<Arg<'_>>, now: Now) {
    let Some(open) = ctx.open_to_write(store.key) else { return };
    match store.lifetime {
        None => open.set_string(store.value),
        Some(lifetime) => {
            open.set_string_until(store.value, now.unix().plus(lifetime).0);
        }
    }
}
