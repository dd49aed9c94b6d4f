//! `LOCK.FORCERELEASE key`

use super::{NOT_A_LOCK, READ_ONLY};
use crate::operate::Need;
use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};
use crate::server;

pub(crate) struct LockForceRelease;

impl Command for LockForceRelease {
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

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key] = args.all() else { return Reply::Nil };
        server::with(|server| {
            if !server.may_serve() {
                return READ_ONLY;
            }
            let held =
                server.on_lock(ctx, *key, None, Need::Living, |table, at| table.force_release(at));
            if held == Some(false) {
                server.delete_remnant(ctx, *key);
            }
            held.map_or(NOT_A_LOCK, |held| Reply::Number(u64::from(held)))
        })
    }
}
