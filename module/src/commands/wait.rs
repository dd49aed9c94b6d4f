//! `LOCK.WAIT key owner lease-ms timeout-ms [SHARED] [HOLDS n]`

use kvlock_core::{Acquire, Join, Millis, WaitReply, WaiterId};

use super::{QUEUE_FULL, READ_ONLY, acquire, parse};
use crate::module::DRAINING;
use crate::redis::{Arg, ArgSpec, Args, Command, CommandSpec, Ctx, Handle, KeyUse, Reply};
use crate::server::{self, Server, Waiting};

/// What an earlier wait hears when its owner waits again.
const REPLACED: Reply = Reply::error(c"UNBLOCKED a later wait of this owner took this place over");

pub(crate) struct LockWait;

impl Command for LockWait {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.wait",
        flags: c"write deny-oom blocking",
        arity: -5,
        key: Some(KeyUse::Write),
        acl: c"write slow blocking",
        summary: c"Takes a lock, or waits in line until it is handed over or the time is up.",
        complexity: c"O(1)",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::Number(c"lease-ms"),
            ArgSpec::Number(c"timeout-ms"),
            ArgSpec::OptionalWord { word: c"SHARED", name: c"shared" },
            ArgSpec::OptionalNumber { word: c"HOLDS", name: c"n" },
        ],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, owner, lease, timeout, options @ ..] = args.all() else {
            return Reply::Nil;
        };
        server::with(|server| {
            let request = parse::acquire(*owner, *lease, options, server.config.max_lease_ms);
            let request = request.and_then(|request| Ok((request, parse::timeout(*timeout)?)));
            match request {
                Ok((request, _)) if ctx.must_not_block() => {
                    acquire::run(server, ctx, *key, *owner, &request)
                }
                Ok((request, timeout)) => run(server, ctx, *key, *owner, &request, timeout),
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
    request: &Acquire<'_>,
    timeout: Option<Millis>,
) -> Reply {
    if !server.may_serve() {
        return READ_ONLY;
    }
    let outcome = server.on_lock(ctx, key, Some(owner), acquire::need(request), |table, at| {
        let (outcome, change) = table.wait(at, request);
        let outcome = match outcome {
            WaitReply::Now(outcome) => Err(acquire::reply(outcome)),
            WaitReply::QueueFull => Err(QUEUE_FULL),
            WaitReply::Draining => Err(DRAINING),
            WaitReply::Block => {
                let (owner, want, lease) = (request.owner, request.want, request.lease);
                let join = Join { owner, want, lease, timeout };
                park(ctx, |client| table.enqueue(at, &join, client)).ok_or(Reply::Nil)
            }
        };
        (outcome, change)
    });
    match outcome {
        Ok(parked) => parked.settle(server),
        Err(reply) => reply,
    }
}

/// A client that was blocked and put in line.
pub(super) struct Parked {
    client: Handle,
    waiter: WaiterId,
    /// The one whose place it took over.
    replaced: Option<Waiting>,
}

/// Blocks the client and puts it in line; `None` if the server refuses.
pub(super) fn park(
    ctx: &Ctx<'_>,
    enqueue: impl FnOnce(Waiting) -> (WaiterId, Option<Waiting>),
) -> Option<Parked> {
    let parked = ctx.park()?;
    let client = parked.handle();
    let (waiter, replaced) = enqueue(Waiting { client: parked, client_id: ctx.client_id() });
    Some(Parked { client, waiter, replaced })
}

impl Parked {
    /// Remembers which waiter it is, and answers the one before.
    pub(super) fn settle(self, server: &mut Server) -> Reply {
        server.parked.insert(self.client, self.waiter);
        if let Some(replaced) = self.replaced {
            server.answer(replaced, REPLACED, None);
        }
        Reply::Later
    }
}
