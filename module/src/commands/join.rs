//! Joining a queue: the way in which a caller waits, and the reply when it is in the queue.

use kvlock_core::{
    Caller, Join, KeyRef, SessionId, Table, Via, WaitReply, WaitedFor, WaiterId, arguments,
};

use super::deadlock::deadlock;
use crate::redis::{Arg, Ctx, Handle, Reply, Text};
use crate::replies::{DRAINING, QUEUE_FULL, READ_ONLY, SUBSCRIBED, TOO_MANY_BOUND, UNBOUND, full};
use crate::server::Server;
use crate::waiting::{Waiting, WaitsFor};

/// Reply to an earlier wait when its owner waits again.
const REPLACED: Reply = Reply::error(c"UNBLOCKED a later call of this owner took over this wait");

/// Way in which a caller waits: blocked, or through a session.
#[derive(Clone, Debug)]
pub(super) struct How(Caller);

/// A new waiter.
pub(super) struct Joined {
    waiter: WaiterId,
    /// The blocked client. `None` if the wait goes through a session.
    client: Option<Handle>,
    /// Earlier blocked waits of the same owner, replaced by this waiter.
    replaced: Vec<Waiting>,
}

impl How {
    /// Returns the way in which the caller waits for a key: through the session that it names, or else
    /// blocked. `None` if it names no session and must not be blocked, for example in a transaction. Then the
    /// command does not wait.
    pub(super) fn find(
        server: &mut Server,
        ctx: &Ctx<'_>,
        key: Arg<'_>,
        session: Option<Arg<'_>>,
        bound: bool,
    ) -> Result<Option<Self>, Reply> {
        if !server.may_serve() {
            return Err(READ_ONLY);
        }
        arguments::kept_key(key.bytes())?;
        let caller = match session {
            None if bound => return Err(UNBOUND),
            Some(name) => Caller::Session(server.session(ctx, name)?),
            None if ctx.must_not_block() => return Ok(None),
            None => {
                let user = ctx.user();
                let user = user.as_ref().map(Text::lend);
                Caller::Client(server.table.account(user.map_or(&[], |user| user.bytes())))
            }
        };
        Ok(Some(Self(caller)))
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.0
    }

    /// Returns the session to bind the grant to. `None` without `bound`.
    pub(super) fn bound_to(
        &self,
        server: &Server,
        bound: bool,
        key: KeyRef<'_>,
        owner: &[u8],
    ) -> Result<Option<SessionId>, Reply> {
        let session = self.0.session().filter(|_| bound);
        let Some(session) = session else { return Ok(None) };
        let room = server.table.room_to_bind(key, owner, session);
        room.map(|()| Some(session)).map_err(|reached| full(reached, TOO_MANY_BOUND))
    }

    /// Puts the caller in the queue if `outcome` says that it must wait. If it does not wait, returns its
    /// reply as `Err`.
    pub(super) fn settle<R, I: IntoIterator<Item = Waiting>>(
        &self,
        ctx: &Ctx<'_>,
        outcome: WaitReply<R>,
        reply: impl FnOnce(R) -> Reply,
        enqueue: impl FnOnce(Via<Waiting>) -> (WaiterId, I),
    ) -> Result<Joined, Reply> {
        match outcome {
            WaitReply::Now(outcome) => Err(reply(outcome)),
            WaitReply::QueueFull(reached) => Err(full(reached, QUEUE_FULL)),
            WaitReply::Draining => Err(DRAINING),
            WaitReply::Deadlock(links) => Err(deadlock(ctx, &links)),
            WaitReply::Block => self.join(ctx, enqueue).ok_or(SUBSCRIBED),
        }
    }

    /// Puts the caller in the queue, and blocks it unless it waits through a session. `None` if the server
    /// refuses to block this connection.
    fn join<I: IntoIterator<Item = Waiting>>(
        &self,
        ctx: &Ctx<'_>,
        enqueue: impl FnOnce(Via<Waiting>) -> (WaiterId, I),
    ) -> Option<Joined> {
        let account = match &self.0 {
            Caller::Session(session) => {
                let (waiter, replaced) = enqueue(Via::Session(*session));
                let replaced = replaced.into_iter().collect();
                return Some(Joined { waiter, client: None, replaced });
            }
            Caller::Client(account) => account,
        };
        let client = ctx.park()?;
        let handle = client.handle();
        let waiting = Waiting::waiter(client, ctx.client_id(), account);
        let (waiter, replaced) = enqueue(Via::Client(waiting));
        let replaced = replaced.into_iter().collect();
        Some(Joined { waiter, client: Some(handle), replaced })
    }
}

/// Adds a waiter to the queue. If `bound` is given, a later grant to the waiter is bound to that session.
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
    /// Answers the waits that this waiter replaced, and records the blocked client, if any. Returns the
    /// caller's reply.
    pub(super) fn answer(self, server: &mut Server) -> Reply {
        for replaced in self.replaced {
            server.answer(replaced, REPLACED, None);
        }
        match self.client {
            Some(client) => {
                server.parked.insert(client, WaitsFor::Grant(self.waiter));
                Reply::Later
            }
            None => Reply::List(vec![Reply::Word("queued"), Reply::Number(server.now().mono.0)]),
        }
    }
}
