//! `LOCK.RENEW key owner lease-ms [TOKEN n]`

use kvlock_core::RenewReply;

use super::{MOVING, NOT_A_LOCK, READ_ONLY, SHARED, parse};
use crate::operate::Need;
use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};
use crate::server;

pub(crate) struct LockRenew;

impl Command for LockRenew {
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

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, owner, lease, options @ ..] = args.all() else {
            return Reply::Nil;
        };
        server::with(|server| {
            let parsed = parse::renewal(*owner, *lease, options, server.config.max_lease_ms);
            let (owner, lease, at_least) = match parsed {
                Ok(parsed) => parsed,
                Err(trouble) => return trouble,
            };
            if !server.may_serve() {
                return READ_ONLY;
            }
            let outcome = server.on_lock(ctx, *key, Some(owner), Need::Own, |table, at| {
                table.renew(at, owner.bytes(), lease, at_least)
            });
            reply(outcome)
        })
    }
}

/// What an outcome looks like on the wire.
pub(super) fn reply(outcome: RenewReply) -> Reply {
    match outcome {
        RenewReply::Lease(lease) => Reply::Number(lease.0),
        RenewReply::NotHeld => Reply::Nil,
        RenewReply::Shared => SHARED,
        RenewReply::TooFarAhead(most) => parse::too_far_ahead(most),
        RenewReply::NotALock => NOT_A_LOCK,
        RenewReply::TryAgain => MOVING,
    }
}
