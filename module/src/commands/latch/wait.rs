//! `LATCH.WAIT key waiter timeout-ms [SESSION id]`

use kvlock_core::{Join, KeyRef, LatchAt, LatchWait as Outcome, Millis, WaitReply, Want};

use crate::commands::wait::How;
use crate::commands::{NOT_A_LOCK, QUEUE_FULL, READ_ONLY, parse};
use crate::module::DRAINING;
use crate::redis::{Arg, ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::{self, Server};
use crate::{clock, latch};

pub(crate) struct LatchWait;

impl Command for LatchWait {
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

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, waiter, timeout, options @ ..] = args.all() else {
            return Reply::Nil;
        };
        server::with(|server| {
            let parsed = parse::session(options).and_then(|(session, others)| {
                let waiter = parse::name("waiter", *waiter)?;
                let timeout = parse::timeout(*timeout)?;
                if !others.is_empty() {
                    return Err(parse::SYNTAX);
                }
                Ok((waiter, timeout, How::find(server, ctx, session)?))
            });
            match parsed {
                Ok((waiter, timeout, how)) => run(server, ctx, *key, waiter, (timeout, how)),
                Err(trouble) => trouble,
            }
        })
    }
}

fn run(
    server: &mut Server,
    ctx: &Ctx<'_>,
    key: Arg<'_>,
    waiter: Arg<'_>,
    (timeout, how): (Option<Millis>, How),
) -> Reply {
    if !server.may_serve() {
        return READ_ONLY;
    }
    let now = clock::now();
    let seen = latch::read(ctx.open_to_read(key).as_ref(), &server.words, key, None);
    let at = LatchAt { key: KeyRef::latch(ctx.db(), key.bytes()), seen, now };
    match server.table.wait_for_latch(&at, waiter.bytes(), how.session()) {
        Outcome::Open => Reply::Number(0),
        Outcome::NotALatch => NOT_A_LOCK,
        Outcome::Later(_) if how == How::Not => Reply::Nil,
        Outcome::Later(WaitReply::QueueFull) => QUEUE_FULL,
        Outcome::Later(WaitReply::Draining) => DRAINING,
        Outcome::Later(WaitReply::Block | WaitReply::Now(_)) => {
            let owner = waiter.bytes();
            let join = Join { owner, want: Want::Zero, lease: Millis(0), timeout };
            let joined = how.join(ctx, |via| server.table.enqueue_for_latch(&at, &join, via));
            let reply = joined.map_or(Reply::Nil, |joined| joined.settle(server));
            server.plan(ctx, now);
            reply
        }
    }
}
