//! `SEM.ACQUIRE key owner <permits | ALL> lease-ms [HOLDS n] [SESSION id] [BOUND]`

use kvlock_core::{Acquire, KeyRef, Permits, SessionId, TakeReply, arguments};

use crate::commands::acquire::bound_to;
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
            ArgSpec::OptionalNamedText { word: c"SESSION", name: c"id" },
            ArgSpec::OptionalWord { word: c"BOUND", name: c"bound" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, permits, lease, options @ ..] = args else { return Ok(Reply::Nil) };
        let most = server.config.max_lease_ms;
        let (permits, lease) = (permits.bytes(), lease.bytes());
        let (session, options) = arguments::session(options)?;
        let (bound, options) = arguments::bound(&options)?;
        let (permits, request) =
            arguments::permits_or_all(owner.bytes(), permits, lease, &options, most)?;
        let at = KeyRef::semaphore(ctx.db(), key.bytes());
        let bound = bound_to(server, ctx, session, bound, at, request.owner)?;
        if let Some(permits) = permits {
            return Ok(run(server, ctx, *key, *owner, permits, &request, bound));
        }
        let all = Some(Permits::MAX);
        let outcome = server.on_semaphore(ctx, *key, Some(*owner), all, |server, at| {
            let (outcome, change) = server.table.drain_permits(at, &request);
            if let Some(session) = bound {
                server.table.bind_taken(at, &request, outcome, session);
            }
            (outcome, change)
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
    bound: Option<SessionId>,
) -> Reply {
    reply(server.on_semaphore(ctx, key, Some(owner), Some(permits), |server, at| {
        let (outcome, change) = server.table.take_permits(at, permits, request);
        if let Some(session) = bound {
            server.table.bind_taken(at, request, outcome, session);
        }
        (outcome, change)
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
