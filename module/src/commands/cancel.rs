//! `LOCK.CANCEL key owner`, `SEM.CANCEL key owner`, `LATCH.CANCEL key waiter`

use kvlock_core::{KeyRef, Kind, arguments};

use super::operation::{Answer, Operation};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::server::Server;

pub(super) struct LockCancel;
pub(super) struct SemCancel;
pub(super) struct LatchCancel;

const SPEC: CommandSpec = CommandSpec {
    name: c"lock.cancel",
    flags: c"write fast",
    summary: c"Cancels an owner's wait: its LOCK.WAIT answers nil.",
    complexity:
        c"O(log N) for each key, where N is the number of waiters and observers on the server",
    args: &[ArgSpec::Key, ArgSpec::Text(c"owner")],
};

impl Operation for LockCancel {
    const SPEC: CommandSpec = SPEC;

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        cancel(server, ctx, args, Kind::Lock, "owner")
    }
}

impl Operation for SemCancel {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.cancel",
        summary: c"Cancels an owner's wait: its SEM.WAIT answers nil.",
        ..SPEC
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        cancel(server, ctx, args, Kind::Semaphore, "owner")
    }
}

impl Operation for LatchCancel {
    const SPEC: CommandSpec = CommandSpec {
        name: c"latch.cancel",
        summary: c"Cancels a wait: its LATCH.WAIT answers nil.",
        args: &[ArgSpec::Key, ArgSpec::Text(c"waiter")],
        ..SPEC
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        cancel(server, ctx, args, Kind::Latch, "waiter")
    }
}

/// Cancels the wait of an owner for a key of this kind. For a latch, the owner is the name of the waiter.
fn cancel(
    server: &mut Server,
    ctx: &Ctx<'_>,
    args: &[Arg<'_>],
    kind: Kind,
    who: &'static str,
) -> Answer {
    let [key, owner] = args else { return Ok(Reply::Nil) };
    let owner = arguments::name(who, owner.bytes())?;
    let key = KeyRef { db: ctx.db(), name: key.bytes(), kind };
    let Some(waiting) = server.table.cancel(key, owner) else { return Ok(Reply::Number(0)) };
    server.answer(waiting, Reply::Nil, None);
    Ok(Reply::Number(1))
}
