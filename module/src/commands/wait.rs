//! `LOCK.WAIT key owner lease-ms timeout-ms [SHARED] [HOLDS n] [SESSION id]`

use kvlock_core::{Acquire, Join, Millis, SessionId, Via, WaitReply, WaiterId};

use super::{QUEUE_FULL, READ_ONLY, acquire, parse};
use crate::clock;
use crate::module::DRAINING;
use crate::redis::{Arg, ArgSpec, Args, Command, CommandSpec, Ctx, Handle, KeyUse, Reply};
use crate::server::{self, Server, Waiting, WaitsFor};

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
            ArgSpec::OptionalNamedText { word: c"SESSION", name: c"id" },
        ],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, owner, lease, timeout, options @ ..] = args.all() else {
            return Reply::Nil;
        };
        server::with(|server| {
            let parsed = parse::session(options).and_then(|(session, options)| {
                let most = server.config.max_lease_ms;
                let request = parse::acquire(*owner, *lease, &options, most)?;
                let timeout = parse::timeout(*timeout)?;
                Ok((request, timeout, How::find(server, ctx, session)?))
            });
            match parsed {
                Ok((request, _, How::Not)) => acquire::run(server, ctx, *key, *owner, &request),
                Ok((request, timeout, how)) => {
                    run(server, ctx, *key, *owner, &request, (timeout, how))
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
    request: &Acquire<'_>,
    (timeout, how): (Option<Millis>, How),
) -> Reply {
    if !server.may_serve() {
        return READ_ONLY;
    }
    let outcome = server.on_lock(ctx, key, Some(owner), acquire::need(request), |table, at| {
        let (outcome, change) = table.wait(at, request, how.session());
        let outcome = match outcome {
            WaitReply::Now(outcome) => Err(acquire::reply(outcome)),
            WaitReply::QueueFull => Err(QUEUE_FULL),
            WaitReply::Draining => Err(DRAINING),
            WaitReply::Block => {
                let (owner, want, lease) = (request.owner, request.want, request.lease);
                let join = Join { owner, want, lease, timeout };
                how.join(ctx, |via| table.enqueue(at, &join, via)).ok_or(Reply::Nil)
            }
        };
        (outcome, change)
    });
    match outcome {
        Ok(joined) => joined.settle(server),
        Err(reply) => reply,
    }
}

/// How a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Blocked.
    Blocked,
    /// Through a session.
    Session(SessionId),
    /// Not at all: it cannot be blocked.
    Not,
}

/// Somebody who was put in line.
pub(super) struct Joined {
    waiter: WaiterId,
    /// The client, if it was blocked.
    client: Option<Handle>,
    /// The one whose place it took over.
    replaced: Option<Waiting>,
}

impl How {
    /// How the caller waits, who may have named a session.
    pub(super) fn find(
        server: &Server,
        ctx: &Ctx<'_>,
        session: Option<Arg<'_>>,
    ) -> Result<Self, Reply> {
        match session {
            Some(name) if server.may_serve() => server.session(ctx, name).map(Self::Session),
            Some(_) => Err(READ_ONLY),
            None if ctx.must_not_block() => Ok(Self::Not),
            None => Ok(Self::Blocked),
        }
    }

    pub(super) fn session(self) -> Option<SessionId> {
        match self {
            Self::Session(session) => Some(session),
            Self::Blocked | Self::Not => None,
        }
    }

    /// Puts the caller in line, blocked if it must be; `None` if the server refuses that.
    pub(super) fn join(
        self,
        ctx: &Ctx<'_>,
        enqueue: impl FnOnce(Via<Waiting>) -> (WaiterId, Option<Waiting>),
    ) -> Option<Joined> {
        if let Self::Session(session) = self {
            let (waiter, replaced) = enqueue(Via::Session(session));
            return Some(Joined { waiter, client: None, replaced });
        }
        let client = ctx.park()?;
        let handle = client.handle();
        let waiting = Waiting { client, client_id: ctx.client_id() };
        let (waiter, replaced) = enqueue(Via::Client(waiting));
        Some(Joined { waiter, client: Some(handle), replaced })
    }
}

impl Joined {
    /// Remembers which waiter a blocked client is, and answers the one before.
    pub(super) fn settle(self, server: &mut Server) -> Reply {
        server.answer(self.replaced, REPLACED, None);
        match self.client {
            Some(client) => {
                server.parked.insert(client, WaitsFor::Grant(self.waiter));
                Reply::Later
            }
            None => Reply::List(vec![Reply::Word("queued"), Reply::Number(clock::now().mono.0)]),
        }
    }
}
