//! `LATCH.SET key count [PX lifetime-ms] [REPLACE]`

use kvlock_core::SetReply;

use crate::clock;
use crate::commands::{NOT_A_LOCK, READ_ONLY, parse};
use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};
use crate::server;

pub(crate) struct LatchSet;

impl Command for LatchSet {
    const SPEC: CommandSpec = CommandSpec {
        name: c"latch.set",
        flags: c"write deny-oom fast",
        arity: -3,
        key: Some(KeyUse::Write),
        acl: c"write fast",
        summary: c"Sets a latch that opens when it has been counted down to zero.",
        complexity: c"O(1)",
        args: &[
            ArgSpec::Key,
            ArgSpec::Number(c"count"),
            ArgSpec::OptionalNumber { word: c"PX", name: c"lifetime-ms" },
            ArgSpec::OptionalWord { word: c"REPLACE", name: c"replace" },
        ],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, count, options @ ..] = args.all() else {
            return Reply::Nil;
        };
        let parsed = parse::latch(*count, options);
        let (count, lifetime, replace) = match parsed {
            Ok(parsed) => parsed,
            Err(trouble) => return trouble,
        };
        server::with(|server| {
            if !server.may_serve() {
                return READ_ONLY;
            }
            let until = lifetime.map(|lifetime| clock::now().unix().plus(lifetime));
            let outcome = server.on_latch(ctx, *key, None, |server, at| {
                server.table.set_latch(at, count, replace, until)
            });
            match outcome {
                SetReply::Set => Reply::Number(1),
                SetReply::Counting => Reply::Nil,
                SetReply::NotALatch => NOT_A_LOCK,
            }
        })
    }
}
