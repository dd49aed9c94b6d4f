//! `SEM.WAIT key owner permits lease-ms timeout-ms [HOLDS n] [SESSION id] [BOUND]`

use kvlock_core::{Join, KeyRef, WaitReply, Want, arguments};

use super::acquire;
use crate::commands::wait::{How, enqueue};
use crate::commands::{Answer, Operation};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::Server;

pub(crate) struct SemWait;

impl Operation for SemWait {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.wait",
        flags: c"write deny-oom blocking",
        arity: -6,
        key: Some(KeyUse::Write),
        acl: c"write slow blocking",
        summary: c"Takes permits of a semaphore, or waits in line until they are free.",
        complexity: c"O(1), and O(1) for each dead holder that is found",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::Number(c"permits"),
            ArgSpec::Number(c"lease-ms"),
            ArgSpec::Number(c"timeout-ms"),
            ArgSpec::OptionalNumber { word: c"HOLDS", name: c"n" },
            ArgSpec::OptionalNamedText { word: c"SESSION", name: c"id" },
            ArgSpec::OptionalWord { word: c"BOUND", name: c"bound" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, permits, lease, timeout, options @ ..] = args else {
            return Ok(Reply::Nil);
        };
        let (session, options) = arguments::session(options)?;
        let (bound, options) = arguments::bound(&options)?;
        let (permits, lease, most) = (permits.bytes(), lease.bytes(), server.config.max_lease_ms);
        let (permits, request) = arguments::permits(owner.bytes(), permits, lease, &options, most)?;
        let timeout = arguments::timeout(timeout.bytes())?;
        let how = How::find(server, ctx, session, bound)?;
        if how == How::Not {
            return Ok(acquire::run(server, ctx, *key, *owner, permits, &request, None));
        }
        let at = KeyRef::semaphore(ctx.db(), key.bytes());
        let bound = how.bound_to(server, bound, at, request.owner)?;
        let joined = server.on_semaphore(ctx, *key, Some(*owner), Some(permits), |server, at| {
            let (outcome, change) =
                server.table.wait_for_permits(at, permits, &request, how.session());
            if let (WaitReply::Now(reply), Some(session)) = (outcome, bound) {
                server.table.bind_taken(at, &request, reply, session);
            }
            let (owner, lease, want) = (request.owner, request.lease, Want::Permits(permits));
            let join = Join { owner, want, lease, timeout };
            let enqueue = |via| enqueue(&mut server.table, at, &join, via, bound);
            (how.settle(ctx, outcome, acquire::reply, enqueue), change)
        });
        Ok(joined?.answer(server))
    }
}
