//! `LOCK.FORCERELEASE key`

use super::{Answer, NOT_A_LOCK, Operation};
use crate::operate::Need;
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::Server;

pub(crate) struct LockForceRelease;

impl Operation for LockForceRelease {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.forcerelease",
        flags: c"write admin fast",
        arity: 2,
        key: Some(KeyUse::Write),
        acl: c"write fast admin dangerous",
        summary: c"Takes a lock from whoever holds it and hands it to the first waiter.",
        complexity: c"O(1)",
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
