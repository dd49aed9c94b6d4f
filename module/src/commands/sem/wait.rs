//! `SEM.WAIT key owner permits lease-ms timeout-ms [HOLDS n] [SESSION id]`

use kvlock_core::{Acquire, Join, Millis, WaitReply, Want};

use super::acquire;
use crate::commands::wait::How;
use crate::commands::{QUEUE_FULL, READ_ONLY, parse};
use crate::module::DRAINING;
use crate::redis::{Arg, ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::{self, Server};

pub(crate) struct SemWait;

impl Command for SemWait {
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
        ],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, owner, permits, lease, timeout, options @ ..] = args.all() else {
            return Reply::Nil;
        };
        server::with(|server| {
            let parsed = parse::session(options).and_then(|(session, options)| {
                let most = server.config.max_lease_ms;
                let parsed = parse::permits(*owner, *permits, *lease, &options, most)?;
                let timeout = parse::timeout(*timeout)?;
                Ok((parsed, timeout, How::find(server, ctx, session)?))
            });
            match parsed {
                Ok(((permits, request), _, How::Not)) => {
                    acquire::run(server, ctx, *key, *owner, permits, &request)
                }
                Ok(((permits, request), timeout, how)) => {
                    run(server, ctx, *key, *owner, (permits, timeout, how), &request)
                }
                Err(trouble) => trouble,
            }
        })
    }
}

fn run(
    server: &mut Server,
    ctx: &Ctx<'_>,
    key: Arg<'_>,
    owner: Arg<'_>,
    (permits, timeout, how): (u64, Option<Millis>, How),
    request: &Acquire<'_>,
) -> Reply {
    if !server.may_serve() {
        return READ_ONLY;
    }
    let outcome = server.on_semaphore(ctx, key, Some(owner), Some(permits), |server, at| {
        let (outcome, change) = server.table.wait_for_permits(at, permits, request, how.session());
        let outcome = match outcome {
            Ok(outcome) => Err(acquire::reply(outcome)),
            Err(WaitReply::QueueFull) => Err(QUEUE_FULL),
            Err(WaitReply::Draining) => Err(DRAINING),
            Err(WaitReply::Block | WaitReply::Now(_)) => {
                let (owner, lease, want) = (request.owner, request.lease, Want::Permits(permits));
                let join = Join { owner, want, lease, timeout };
                how.join(ctx, |via| server.table.enqueue_for_permits(at, &join, via))
                    .ok_or(Reply::Nil)
            }
        };
        (outcome, change)
    });
    match outcome {
        Ok(joined) => joined.settle(server),
        Err(reply) => reply,
    }
}
