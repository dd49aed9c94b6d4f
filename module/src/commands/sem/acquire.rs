//! `SEM.ACQUIRE key owner <permits | ALL> lease-ms [HOLDS n]`

use kvlock_core::{Acquire, Permits, TakeReply, arguments};

use crate::commands::{Answer, MISMATCH, NOT_A_LOCK, Operation, TOO_MANY_PERMITS, UNSET};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::Server;

pub(crate) struct SemAcquire;

impl Operation for SemAcquire {
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

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, permits, lease, options @ ..] = args else { return Ok(Reply::Nil) };
        let most = server.config.max_lease_ms;
        let (permits, lease) = (permits.bytes(), lease.bytes());
        let (permits, request) =
            arguments::permits_or_all(owner.bytes(), permits, lease, options, most)?;
        if let Some(permits) = permits {
            return Ok(run(server, ctx, *key, *owner, permits, &request));
        }
        let all = Some(Permits::MAX);
        let outcome = server.on_semaphore(ctx, *key, Some(*owner), all, |server, at| {
            server.table.drain_permits(at, &request)
        });
        Ok(reply(outcome))
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
    reply(server.on_semaphore(ctx, key, Some(owner), Some(permits), |server, at| {
        server.table.take_permits(at, permits, request)
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
