//! `LOCK.RENEW key owner lease-ms [TOKEN n]`

use kvlock_core::{RenewReply, arguments};

use super::{Answer, MOVING, NOT_A_LOCK, Operation, SHARED, error};
use crate::operate::Need;
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::Server;

pub(crate) struct LockRenew;

impl Operation for LockRenew {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.renew",
        flags: c"write fast",
        arity: -4,
        key: Some(KeyUse::Write),
        acl: c"write fast",
        summary: c"Starts the lease of a held lock anew.",
        complexity: c"O(1)",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::Number(c"lease-ms"),
            ArgSpec::OptionalNumber { word: c"TOKEN", name: c"n" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, lease, options @ ..] = args else { return Ok(Reply::Nil) };
        let (name, most) = (owner.bytes(), server.config.max_lease_ms);
        let (lease, at_least) = arguments::renewal(name, lease.bytes(), options, most)?;
        let outcome = server.on_lock(ctx, *key, Some(*owner), Need::Own, |table, at| {
            table.renew(at, name, lease, at_least)
        });
        Ok(reply(outcome))
    }
}

/// What an outcome looks like on the wire.
pub(super) fn reply(outcome: RenewReply) -> Reply {
    match outcome {
        RenewReply::Lease(lease) => Reply::Number(lease.0),
        RenewReply::NotHeld => Reply::Nil,
        RenewReply::Shared => SHARED,
        RenewReply::TooFarAhead(most) => too_far_ahead(most),
        RenewReply::NotALock => NOT_A_LOCK,
        RenewReply::TryAgain => MOVING,
    }
}

/// A token was asked for that is larger than this, the largest that the clock lets.
fn too_far_ahead(most: u64) -> Reply {
    error(format!(
        "ERR invalid TOKEN: ahead of this server's clock by more than a day, over {most}"
    ))
}
