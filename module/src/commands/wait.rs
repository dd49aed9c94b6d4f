//! `LOCK.WAIT key owner lease-ms timeout-ms [SHARED] [HOLDS n]`

use kvlock_core::{Acquire, Join, Millis, Situation, Table, WaitReply, WaiterId};

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
            WaitReply::Now(outcome) => Outcome::Answer(acquire::reply(outcome)),
            WaitReply::QueueFull => Outcome::Answer(QUEUE_FULL),
            WaitReply::Draining => Outcome::Answer(DRAINING),
            WaitReply::Block => park(ctx, table, at, request, timeout),
        };
        (outcome, change)
    });
    match outcome {
        Outcome::Answer(reply) => reply,
        Outcome::Parked { client, waiter, replaced } => {
            server.parked.insert(client, waiter);
            if let Some(replaced) = replaced {
                server.answer(replaced, REPLACED, None);
            }
            Reply::Later
        }
    }
}

/// What a wait comes to for now.
enum Outcome {
    Answer(Reply),
    Parked { client: Handle, waiter: WaiterId, replaced: Option<Waiting> },
}

/// Blocks the client and puts it in line.
fn park(
    ctx: &Ctx<'_>,
    table: &mut Table<Waiting>,
    at: &Situation<'_>,
    request: &Acquire<'_>,
    timeout: Option<Millis>,
) -> Outcome {
    let Some(parked) = ctx.park() else {
        return Outcome::Answer(Reply::Nil);
    };
    let client = parked.handle();
    let waiting = Waiting { client: parked, client_id: ctx.client_id() };
    let join = Join { owner: request.owner, want: request.want, lease: request.lease, timeout };
    let (waiter, replaced) = table.enqueue(at, &join, waiting);
    Outcome::Parked { client, waiter, replaced }
}
