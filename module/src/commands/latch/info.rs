//! `LATCH.INFO key [WAITERS count]`

use kvlock_core::{KeyRef, Latch, arguments};

use crate::commands::info::{number, queue};
use crate::commands::{Answer, NOT_A_LOCK, Operation};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::Server;
use crate::{clock, latch};

pub(crate) struct LatchInfo;

impl Operation for LatchInfo {
    const SPEC: CommandSpec = CommandSpec {
        name: c"latch.info",
        flags: c"readonly fast",
        arity: -2,
        key: Some(KeyUse::Read),
        acl: c"read fast",
        summary: c"Says how much is left of a latch, and who waits for it.",
        complexity: c"O(1), with WAITERS O(count)",
        args: &[ArgSpec::Key, ArgSpec::OptionalNumber { word: c"WAITERS", name: c"count" }],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, options @ ..] = args else { return Ok(Reply::Nil) };
        let shown = arguments::count(b"WAITERS", options)?;
        let now = clock::now();
        let open = ctx.open_to_read(*key);
        let name = KeyRef::latch(ctx.db(), key.bytes());
        let (state, left, participants, until) =
            match latch::read(open.as_ref(), &server.words, *key, None) {
                Latch::NotALatch { .. } => return Err(NOT_A_LOCK),
                Latch::Open => ("open", 0, 0, None),
                Latch::Counting { left, until, .. } => {
                    // All fields but the one with the count.
                    let fields = open.as_ref().map_or(0, |key| key.fields());
                    ("counting", left, fields.saturating_sub(1), until)
                }
            };
        let left_of = |until: kvlock_core::UnixMillis| until.since(now.unix()).0;
        let mut fields = vec![
            ("state", Reply::Word(state)),
            ("count", Reply::Number(left)),
            ("participants", number(participants)),
            ("lifetime-left", Reply::or_nil(until.map(left_of), Reply::Number)),
            ("waiters", number(server.table.waiters_of(name))),
        ];
        if let Some(shown) = shown {
            fields.push(("queue", queue(server, name, shown, now)));
        }
        Ok(Reply::Map(fields))
    }
}
