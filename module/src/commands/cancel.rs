//! `LOCK.CANCEL key owner`

use kvlock_core::KeyRef;

use super::{READ_ONLY, parse};
use crate::redis::{Arg, ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};
use crate::{clock, server};

pub(crate) struct LockCancel;

impl Command for LockCancel {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.cancel",
        flags: c"write fast",
        arity: 3,
        key: Some(KeyUse::Write),
        acl: c"write fast",
        summary: c"Withdraws an owner's waiter: its LOCK.WAIT answers nil.",
        complexity: c"O(1)",
        args: &[ArgSpec::Key, ArgSpec::Text(c"owner")],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, owner] = args.all() else {
            return Reply::Nil;
        };
        let owner = match parse::owner(*owner) {
            Ok(owner) => owner,
            Err(trouble) => return trouble,
        };
        run(ctx, KeyRef::lock(ctx.db(), key.bytes()), owner)
    }
}

/// Withdraws a waiter of any kind.
pub(super) fn run(ctx: &Ctx<'_>, key: KeyRef<'_>, owner: Arg<'_>) -> Reply {
    server::with(|server| {
        if !server.may_serve() {
            return READ_ONLY;
        }
        match server.table.cancel(key, owner.bytes()) {
            Some(waiting) => {
                server.answer(waiting, Reply::Nil, None);
                // What the next one wants may be there to be had.
                server.plan(ctx, clock::now());
                Reply::Number(1)
            }
            None => Reply::Number(0),
        }
    })
}
