//! `LOCK.WAIT key owner lease-ms timeout-ms [SHARED] [HOLDS n] [SESSION id] [BOUND] [VALUE value]`

use kvlock_core::{
    Acquire, Join, KeyRef, SessionId, Table, Via, WaitReply, WaitedFor, WaiterId, arguments,
};

use super::{Answer, Operation, QUEUE_FULL, READ_ONLY, TOO_MANY_BOUND, UNBOUND, acquire};
use crate::clock;
use crate::module::DRAINING;
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Handle, Reply};
use crate::server::{Server, Waiting, WaitsFor};

/// What an earlier wait hears when its owner waits again.
const REPLACED: Reply = Reply::error(c"UNBLOCKED a later wait of this owner took this place over");

pub(crate) struct LockWait;

impl Operation for LockWait {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.wait",
        flags: c"write deny-oom blocking",
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
            ArgSpec::OptionalWord { word: c"BOUND", name: c"bound" },
            ArgSpec::OptionalNamedText { word: c"VALUE", name: c"value" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, lease, timeout, options @ ..] = args else { return Ok(Reply::Nil) };
        let ([session, says], options) = arguments::named([b"SESSION", b"VALUE"], options)?;
        let (bound, options) = arguments::bound(&options)?;
        let most = server.config.max_lease_ms;
        let request = arguments::acquire(owner.bytes(), lease.bytes(), &options, most)?;
        let says = arguments::value(says.as_ref(), request.want)?;
        let timeout = arguments::timeout(timeout.bytes())?;
        let how = How::find(server, ctx, session, bound)?;
        if how == How::Not {
            return Ok(acquire::run(server, ctx, *key, *owner, &request, says, None));
        }
        let at = KeyRef::lock(ctx.db(), key.bytes());
        let bound = how.bound_to(server, bound, at, request.owner)?;
        let need = acquire::need(&request);
        let joined = server.on_lock(ctx, *key, Some(*owner), need, |table, at| {
            let (outcome, change) = table.wait(at, &request, how.session());
            let granted = matches!(outcome, WaitReply::Now(reply) if acquire::is_granted(reply));
            if let WaitReply::Now(reply) = outcome {
                table.bind_granted(at, &request, reply, bound);
            }
            let Acquire { owner, want, lease, .. } = request;
            let join = Join { owner, want, lease, timeout };
            let change = change.saying(says.filter(|_| granted));
            let enqueue = |via| {
                let (waiter, replaced) = enqueue(table, at, &join, via, bound);
                table.will_say(waiter, says);
                (waiter, replaced)
            };
            (how.settle(ctx, outcome, acquire::reply, enqueue), change)
        });
        Ok(joined?.answer(server))
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
        bound: bool,
    ) -> Result<Self, Reply> {
        match session {
            _ if !server.may_serve() => Err(READ_ONLY),
            None if bound => Err(UNBOUND),
            Some(name) => server.session(ctx, name).map(Self::Session),
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

    /// The session to which what is granted is to be bound.
    pub(super) fn bound_to(
        self,
        server: &Server,
        bound: bool,
        key: KeyRef<'_>,
        owner: &[u8],
    ) -> Result<Option<SessionId>, Reply> {
        let session = self.session().filter(|_| bound);
        if session.is_none() || server.table.has_room_to_bind(key, owner) {
            Ok(session)
        } else {
            Err(TOO_MANY_BOUND)
        }
    }

    /// Puts the caller in line if that is what the table says; else the reply.
    pub(super) fn settle<R>(
        self,
        ctx: &Ctx<'_>,
        outcome: WaitReply<R>,
        reply: impl FnOnce(R) -> Reply,
        enqueue: impl FnOnce(Via<Waiting>) -> (WaiterId, Option<Waiting>),
    ) -> Result<Joined, Reply> {
        match outcome {
            WaitReply::Now(outcome) => Err(reply(outcome)),
            WaitReply::QueueFull => Err(QUEUE_FULL),
            WaitReply::Draining => Err(DRAINING),
            WaitReply::Block => self.join(ctx, enqueue).ok_or(Reply::Nil),
        }
    }

    /// Puts the caller in line, blocked if it must be; `None` if the server refuses that.
    fn join(
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

/// Puts somebody in line; what it is granted is bound if it is to be.
pub(super) fn enqueue(
    table: &mut Table<Waiting>,
    at: &impl WaitedFor,
    join: &Join<'_>,
    via: Via<Waiting>,
    bound: Option<SessionId>,
) -> (WaiterId, Option<Waiting>) {
    let (waiter, replaced) = table.enqueue(at, join, via);
    if bound.is_some() {
        table.bind_when_granted(waiter);
    }
    (waiter, replaced)
}

impl Joined {
    /// Remembers which waiter a blocked client is, and answers the one before.
    pub(super) fn answer(self, server: &mut Server) -> Reply {
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
