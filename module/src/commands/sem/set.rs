//! `SEM.SET key permits [NX]`

use crate::commands::{NOT_A_LOCK, READ_ONLY, parse};
use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};
use crate::server;

pub(crate) struct SemSet;

impl Command for SemSet {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.set",
        flags: c"write deny-oom fast",
        arity: -3,
        key: Some(KeyUse::Write),
        acl: c"write fast",
        summary: c"Sets how many permits a semaphore has.",
        complexity: c"O(1), and O(1) for each waiter that is served by it",
        args: &[
            ArgSpec::Key,
            ArgSpec::Number(c"permits"),
            ArgSpec::OptionalWord { word: c"NX", name: c"nx" },
        ],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, permits, options @ ..] = args.all() else {
            return Reply::Nil;
        };
        let (permits, only_new) = match parse::permits_to_set(*permits, options) {
            Ok(parsed) => parsed,
            Err(trouble) => return trouble,
        };
        server::with(|server| {
            if !server.may_serve() {
                return READ_ONLY;
            }
            let set = server.on_semaphore(ctx, *key, None, None, |server, at| {
                server.table.set_permits(at, permits, only_new)
            });
            match set {
                None => NOT_A_LOCK,
                Some(false) => Reply::Nil,
                Some(true) => Reply::Number(1),
            }
        })
    }
}
