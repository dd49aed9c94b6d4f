//! `SEM.CANCEL key owner`

use kvlock_core::KeyRef;

use crate::commands::{cancel, parse};
use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};

pub(crate) struct SemCancel;

impl Command for SemCancel {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.cancel",
        flags: c"write fast",
        arity: 3,
        key: Some(KeyUse::Write),
        acl: c"write fast",
        summary: c"Withdraws an owner's waiter: its SEM.WAIT answers nil.",
        complexity: c"O(1)",
        args: &[ArgSpec::Key, ArgSpec::Text(c"owner")],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, owner] = args.all() else {
            return Reply::Nil;
        };
        match parse::owner(*owner) {
            Ok(owner) => cancel::run(ctx, KeyRef::semaphore(ctx.db(), key.bytes()), owner),
            Err(trouble) => trouble,
        }
    }
}
