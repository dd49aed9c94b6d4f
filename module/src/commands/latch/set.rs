//! `LATCH.SET key count [PX lifetime-ms] [REPLACE]`

use kvlock_core::{SetReply, arguments};

use crate::clock;
use crate::commands::{Answer, NOT_A_LOCK, Operation};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::Server;

pub(crate) struct LatchSet;

impl Operation for LatchSet {
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

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, count, options @ ..] = args else { return Ok(Reply::Nil) };
        let (count, lifetime, replace) = arguments::latch(count.bytes(), options)?;
        let until = lifetime.map(|lifetime| clock::now().unix().plus(lifetime));
        let outcome = server.on_latch(ctx, *key, None, |server, at| {
            server.table.set_latch(at, count, replace, until)
        });
        Ok(match outcome {
            SetReply::Set => Reply::Number(1),
            SetReply::Counting => Reply::Nil,
            SetReply::NotALatch => NOT_A_LOCK,
        })
    }
}
