//! `LATCH.CANCEL key waiter`

use kvlock_core::KeyRef;

use crate::commands::{cancel, parse};
use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};

pub(crate) struct LatchCancel;

impl Command for LatchCancel {
    const SPEC: CommandSpec = CommandSpec {
        name: c"latch.cancel",
        flags: c"write fast",
        arity: 3,
        key: Some(KeyUse::Write),
        acl: c"write fast",
        summary: c"Withdraws a waiter: its LATCH.WAIT answers nil.",
        complexity: c"O(1)",
        args: &[ArgSpec::Key, ArgSpec::Text(c"waiter")],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, waiter] = args.all() else {
            return Reply::Nil;
        };
        match parse::name("waiter", *waiter) {
            Ok(waiter) => cancel::run(ctx, KeyRef::latch(ctx.db(), key.bytes()), waiter),
            Err(trouble) => trouble,
        }
    }
}
