//! `SEM.ACQUIRE key owner <permits | ALL> lease-ms [HOLDS n]`

use kvlock_core::{Acquire, Permits, TakeReply};

use crate::commands::{MISMATCH, NOT_A_LOCK, READ_ONLY, TOO_MANY_PERMITS, UNSET, parse};
use crate::redis::{Arg, ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::{self, Server};

pub(crate) struct SemAcquire;

impl Command for SemAcquire {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.acquire",
        flags: c"write deny-oom fast",
        arity: -5,
        key: Some(KeyUse::Write),
        acl: c"write fast",
        summary: c"Takes permits of a semaphore if they are free. Never waits.",
        complexity: c"O(1), and O(1) for each dead holder that is found",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::NumberOrWord { name: c"permits", word: c"ALL" },
            ArgSpec::Number(c"lease-ms"),
            ArgSpec::OptionalNumber { word: c"HOLDS", name: c"n" },
        ],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, owner, permits, lease, options @ ..] = args.all() else {
            return Reply::Nil;
        };
        server::with(|server| {
            let most = server.config.max_lease_ms;
            match parse::permits_or_all(*owner, *permits, *lease, options, most) {
                Ok((Some(permits), request)) => run(server, ctx, *key, *owner, permits, &request),
                Ok((None, request)) => drain(server, ctx, *key, *owner, &request),
                Err(trouble) => trouble,
            }
        })
    }
}

/// Takes permits without waiting.
pub(super) fn run(
    server: &mut Server,
    ctx: &Ctx<'_>,
    key: Arg<'_>,
    owner: Arg<'_>,
    permits: u64,
    request: &Acquire<'_>,
) -> Reply {
    if !server.may_serve() {
        return READ_ONLY;
    }
    reply(server.on_semaphore(ctx, key, Some(owner), Some(permits), |server, at| {
        server.table.take_permits(at, permits, request)
    }))
}

/// Takes all that are free.
fn drain(
    server: &mut Server,
    ctx: &Ctx<'_>,
    key: Arg<'_>,
    owner: Arg<'_>,
    request: &Acquire<'_>,
) -> Reply {
    if !server.may_serve() {
        return READ_ONLY;
    }
    reply(server.on_semaphore(ctx, key, Some(owner), Some(Permits::MAX), |server, at| {
        server.table.drain_permits(at, request)
    }))
}

/// What an outcome looks like on the wire.
pub(super) fn reply(outcome: TakeReply) -> Reply {
    match outcome {
        TakeReply::Holds(holds) => Reply::Number(holds),
        TakeReply::Refused => Reply::Nil,
        TakeReply::Mismatch => MISMATCH,
        TakeReply::TooMany => TOO_MANY_PERMITS,
        TakeReply::Unset => UNSET,
        TakeReply::NotASemaphore => NOT_A_LOCK,
    }
}
