//! `LOCK.RELEASE key owner [SHARED] [ALL | HOLDS n]`

use kvlock_core::ReleaseReply;

use super::{MISMATCH, NOT_A_LOCK, READ_ONLY, parse};
use crate::operate::Need;
use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};
use crate::server;

pub(crate) struct LockRelease;

impl Command for LockRelease {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.release",
        flags: c"write fast",
        arity: -3,
        key: Some(KeyUse::Write),
        acl: c"write fast",
        summary: c"Gives back a lock; the last hold goes straight to the first waiter.",
        complexity: c"O(1)",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::OptionalWord { word: c"SHARED", name: c"shared" },
            ArgSpec::OptionalWordOrNumber { word: c"ALL", other: c"HOLDS", name: c"n" },
        ],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, owner, options @ ..] = args.all() else {
            return Reply::Nil;
        };
        let (want, options) = parse::want(options);
        let parsed = parse::owner(*owner).and_then(|owner| Ok((owner, parse::amount(options)?)));
        let (owner, amount) = match parsed {
            Ok(parsed) => parsed,
            Err(trouble) => return trouble,
        };
        server::with(|server| {
            if !server.may_serve() {
                return READ_ONLY;
            }
            let outcome = server.on_lock(ctx, *key, Some(owner), Need::Holds, |table, at| {
                table.release(at, owner.bytes(), want, amount)
            });
            match outcome {
                ReleaseReply::Left(holds) => Reply::Number(holds),
                ReleaseReply::NotHeld => Reply::Nil,
                ReleaseReply::Mismatch => MISMATCH,
                ReleaseReply::NotALock => NOT_A_LOCK,
            }
        })
    }
}
