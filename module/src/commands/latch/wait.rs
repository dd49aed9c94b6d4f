//! `LATCH.WAIT key waiter timeout-ms [SESSION id]`

use kvlock_core::{Join, KeyRef, LatchAt, Millis, WaitReply, Want, arguments};

use crate::commands::wait::How;
use crate::commands::{Answer, NOT_A_LOCK, Operation, SYNTAX};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::Server;
use crate::{clock, latch};

pub(crate) struct LatchWait;

impl Operation for LatchWait {
    const SPEC: CommandSpec = CommandSpec {
        name: c"latch.wait",
        flags: c"readonly blocking",
        arity: -4,
        key: Some(KeyUse::Read),
        acl: c"read slow blocking",
        summary: c"Waits until a latch is open.",
        complexity: c"O(1), however many clients wait",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"waiter"),
            ArgSpec::Number(c"timeout-ms"),
            ArgSpec::OptionalNamedText { word: c"SESSION", name: c"id" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, waiter, timeout, options @ ..] = args else { return Ok(Reply::Nil) };
        let (session, others) = arguments::session(options)?;
        let owner = arguments::name("waiter", waiter.bytes())?;
        let timeout = arguments::timeout(timeout.bytes())?;
        if !others.is_empty() {
            return Err(SYNTAX);
        }
        let how = How::find(server, ctx, session, false)?;
        let now = clock::now();
        let seen = latch::read(ctx.open_to_read(*key).as_ref(), &server.words, *key, None);
        let at = LatchAt { key: KeyRef::latch(ctx.db(), key.bytes()), seen, now };
        let outcome = server.table.wait_for_latch(&at, owner, how.session());
        if how == How::Not && !matches!(outcome, WaitReply::Now(_)) {
            return Ok(Reply::Nil);
        }
        let reply = |is_open| if is_open { Reply::Number(0) } else { NOT_A_LOCK };
        let join = Join { owner, want: Want::Zero, lease: Millis(0), timeout };
        let joined =
            how.settle(ctx, outcome, reply, |via| server.table.enqueue(&at, &join, via))?;
        let reply = joined.answer(server);
        server.plan(ctx, now);
        Ok(reply)
    }
}
