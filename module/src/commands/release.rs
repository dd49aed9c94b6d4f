//! `LOCK.RELEASE key owner [SHARED] [ALL | HOLDS n]`, `LOCK.FORCERELEASE key`

use kvlock_core::{ReleaseReply, arguments};

use super::{Answer, MISMATCH, NOT_A_LOCK, Operation};
use crate::operate::Need;
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::server::Server;

pub(crate) struct LockRelease;

impl Operation for LockRelease {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.release",
        flags: c"write fast",
        summary: c"Gives back a lock; the last hold goes straight to the first waiter.",
        complexity: c"O(1)",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::OptionalWord { word: c"SHARED", name: c"shared" },
            ArgSpec::OptionalWordOrNumber { word: c"ALL", other: c"HOLDS", name: c"n" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, options @ ..] = args else { return Ok(Reply::Nil) };
        let (want, options) = arguments::want(options);
        let name = arguments::owner(owner.bytes())?;
        let amount = arguments::amount(options)?;
        let outcome = server.on_lock(ctx, *key, Some(*owner), Need::Holds, |table, at| {
            table.release(at, name, want, amount)
        });
        Ok(reply(outcome))
    }
}

/// What an outcome looks like on the wire.
pub(super) fn reply(outcome: ReleaseReply) -> Reply {
    match outcome {
        ReleaseReply::Left(holds) => Reply::Number(holds),
        ReleaseReply::NotHeld => Reply::Nil,
        ReleaseReply::Mismatch => MISMATCH,
        ReleaseReply::NotALock => NOT_A_LOCK,
    }
}

/// `LOCK.FORCERELEASE key`
pub(crate) struct LockForceRelease;

impl Operation for LockForceRelease {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.forcerelease",
        flags: c"write admin fast",
        summary: c"Takes a lock from whoever holds it and hands it to the first waiter.",
        complexity: c"O(1)",
        args: &[ArgSpec::Key],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key] = args else { return Ok(Reply::Nil) };
        let held =
            server.on_lock(ctx, *key, None, Need::Living, |table, at| table.force_release(at));
        if held == Some(false) {
            server.delete_remnant(ctx, *key);
        }
        Ok(held.map_or(NOT_A_LOCK, |held| Reply::Number(u64::from(held))))
    }
}
