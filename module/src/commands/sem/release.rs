//! `SEM.RELEASE key owner [ALL | HOLDS n]`

use kvlock_core::ReleaseReply;

use crate::commands::{MISMATCH, NOT_A_LOCK, READ_ONLY, parse};
use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};
use crate::server;

pub(crate) struct SemRelease;

impl Command for SemRelease {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.release",
        flags: c"write fast",
        arity: -3,
        key: Some(KeyUse::Write),
        acl: c"write fast",
        summary: c"Gives back permits; they go straight to the first who wait for them.",
        complexity: c"O(1), and O(1) for each waiter that is served by it",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::OptionalWordOrNumber { word: c"ALL", other: c"HOLDS", name: c"n" },
        ],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, owner, options @ ..] = args.all() else {
            return Reply::Nil;
        };
        let parsed = parse::owner(*owner).and_then(|owner| Ok((owner, parse::amount(options)?)));
        let (owner, amount) = match parsed {
            Ok(parsed) => parsed,
            Err(trouble) => return trouble,
        };
        server::with(|server| {
            if !server.may_serve() {
                return READ_ONLY;
            }
            let outcome = server.on_semaphore(ctx, *key, Some(owner), None, |server, at| {
                server.table.release_permits(at, owner.bytes(), amount)
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
