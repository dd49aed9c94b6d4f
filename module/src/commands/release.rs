//! `LOCK.RELEASE key owner [SHARED] [ALL | HOLDS n]`

use kvlock_core::{ReleaseReply, arguments};

use super::{Answer, MISMATCH, NOT_A_LOCK, Operation};
use crate::operate::Need;
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::Server;

pub(crate) struct LockRelease;

impl Operation for LockRelease {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.release",
        flags: c"write fast",
        arity: -3,
        key: Some(KeyUse::Write),
        acl: c"write fast",
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
