//! `LOCK.RELEASE key owner [SHARED] [ALL | HOLDS n] [WITH numkeys key …] [UNDER numkeys key …]
//! [STORE ready-key value [PX lifetime-ms]]`, `LOCK.FORCERELEASE key`

use kvlock_core::arguments;
use kvlock_core::arguments::{Options, Store};

use super::operation::{Answer, Operation};
use super::set;
use super::store::write_result;
use crate::floor::FLOOR_PREFIX;
use crate::operate::Need;
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::replies::{NOT_A_LOCK, READY_KEY, released};
use crate::server::Server;

pub(crate) struct LockRelease;

impl Operation for LockRelease {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.release",
        flags: c"write fast getkeys-api",
        summary: c"Releases a lock. With the last hold it is granted to the first waiter.",
        complexity: c"O(1) for each key; if waiters are granted the lock, O(log N) where N is the number of waiters and observers on the server",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::OptionalWord { word: c"SHARED", name: c"shared" },
            ArgSpec::OptionalWordOrNumber { word: c"ALL", other: c"HOLDS", name: c"n" },
            ArgSpec::OptionalKeys { word: c"WITH", name: c"with" },
            ArgSpec::OptionalKeys { word: c"UNDER", name: c"under" },
            ArgSpec::OptionalStore { word: c"STORE", key: c"ready-key" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, options @ ..] = args else { return Ok(Reply::Nil) };
        let mut options = Options::split(options);
        let further = options.further(*key)?;
        let store = options.store()?;
        let want = arguments::want(&mut options)?;
        let name = arguments::owner(owner.bytes())?;
        let amount = arguments::amount(options)?;
        if let Some(store) = &store {
            check(ctx, *key, store)?;
        }
        if let Some(further) = further {
            let parts = set::parts(*key, &further);
            set::check_ready_key(&parts, store.map(|store| store.key))?;
            return set::release(server, ctx, &parts, (*owner, name), (want, amount), store);
        }
        let outcome = server.on_lock(ctx, *key, Some(*owner), Need::Holds, |table, at| {
            if let Some(store) = store.filter(|_| at.left_after(name, want, amount).is_some()) {
                write_result(ctx, table, at, &store);
            }
            table.release(at, name, want, amount)
        });
        Ok(released(outcome))
    }
}

/// Refuses a `STORE` whose result cannot be stored, before anything is changed.
fn check(ctx: &Ctx<'_>, lock: Arg<'_>, store: &Store<Arg<'_>>) -> Result<(), Reply> {
    let key = store.key.bytes();
    if key == lock.bytes() || key.starts_with(FLOOR_PREFIX) {
        return Err(READY_KEY);
    }
    if ctx.is_out_of_memory() { Err(OUT_OF_MEMORY) } else { Ok(()) }
}

/// The error for a `STORE` when the server is out of memory. The lock stays held.
const OUT_OF_MEMORY: Reply =
    Reply::error(c"OOM command not allowed when used memory > 'maxmemory': release without STORE");

/// `LOCK.FORCERELEASE key`
pub(crate) struct LockForceRelease;

impl Operation for LockForceRelease {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.forcerelease",
        flags: c"write admin fast",
        summary: c"Takes a lock from its holders and grants it to the first waiter.",
        complexity: c"O(log N) where N is the number of waiters and observers on the server",
        args: &[ArgSpec::Key],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key] = args else { return Ok(Reply::Nil) };
        let held =
            server.on_lock(ctx, *key, None, Need::Living, |table, at| table.force_release(at));
        if held == Some(false) {
            server.delete_remnant(ctx, *key);
        }
        Ok(held.map_or(NOT_A_LOCK, |held| Reply::Number(u64::from(held))))
    }
}
