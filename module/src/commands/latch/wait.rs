//! `LATCH.WAIT key waiter timeout-ms`

use kvlock_core::{Join, KeyRef, LatchAt, LatchWait as Outcome, Millis, WaitReply, Want};

use crate::commands::wait::{Parked, park};
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
        arity: 4,
        key: Some(KeyUse::Read),
        acl: c"read slow blocking",
        summary: c"Waits until a latch is open.",
        complexity: c"O(1), however many clients wait",
        args: &[ArgSpec::Key, ArgSpec::Text(c"waiter"), ArgSpec::Number(c"timeout-ms")],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, waiter, timeout] = args.all() else {
            return Reply::Nil;
        };
        let parsed = parse::name("waiter", *waiter)
            .and_then(|waiter| Ok((waiter, parse::timeout(*timeout)?)));
        match parsed {
            Ok((waiter, timeout)) => server::with(|server| run(server, ctx, *key, waiter, timeout)),
            Err(trouble) => trouble,
        }
    }
}

fn run(
    server: &mut Server,
    ctx: &Ctx<'_>,
    key: Arg<'_>,
    waiter: Arg<'_>,
    timeout: Option<Millis>,
) -> Reply {
    if !server.may_serve() {
        return READ_ONLY;
    }
    let now = clock::now();
    let seen = latch::read(ctx.open_to_read(key).as_ref(), &server.words, key, None);
    let at = LatchAt { key: KeyRef::latch(ctx.db(), key.bytes()), seen, now };
    match server.table.wait_for_latch(&at, waiter.bytes()) {
        Outcome::Open => Reply::Number(0),
        Outcome::NotALatch => NOT_A_LOCK,
        Outcome::Later(_) if ctx.must_not_block() => Reply::Nil,
        Outcome::Later(WaitReply::QueueFull) => QUEUE_FULL,
        Outcome::Later(WaitReply::Draining) => DRAINING,
        Outcome::Later(WaitReply::Block | WaitReply::Now(_)) => {
            let owner = waiter.bytes();
            let join = Join { owner, want: Want::Zero, lease: Millis(0), timeout };
            let parked = park(ctx, |client| server.table.enqueue_for_latch(&at, &join, client));
            let reply = parked.map_or(Reply::Nil, |parked: Parked| parked.settle(server));
            server.plan(ctx, now);
            reply
        }
    }
}
