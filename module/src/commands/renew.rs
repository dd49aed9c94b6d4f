//! `LOCK.RENEW key owner lease-ms [TOKEN n] [WITH numkeys key …] [UNDER numkeys key …] [VALUE value]`

use kvlock_core::{RenewReply, Want, arguments};

use super::{Answer, MOVING, NOT_A_LOCK, Operation, SHARED, error, set};
use crate::operate::Need;
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::server::Server;

pub(crate) struct LockRenew;

impl Operation for LockRenew {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.renew",
        flags: c"write fast getkeys-api",
        summary: c"Starts the lease of a held lock anew.",
        complexity: c"O(1)",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::Number(c"lease-ms"),
            ArgSpec::OptionalNumber { word: c"TOKEN", name: c"n" },
            ArgSpec::OptionalKeys { word: c"WITH", name: c"with" },
            ArgSpec::OptionalKeys { word: c"UNDER", name: c"under" },
            ArgSpec::OptionalNamedText { word: c"VALUE", name: c"value" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, lease, options @ ..] = args else { return Ok(Reply::Nil) };
        let (name, most) = (owner.bytes(), server.config.max_lease_ms);
        let further = arguments::further(*key, options)?;
        let options = further.as_ref().map_or(options, |(_, options)| options);
        let ([says], options) = arguments::named([b"VALUE"], options)?;
        let renewal = arguments::renewal(name, lease.bytes(), &options, most)?;
        let says = arguments::value(says.as_ref(), Want::Exclusive)?;
        if let Some((further, _)) = further {
            let parts = set::parts(*key, &further);
            return set::renew(server, ctx, &parts, *owner, (renewal, says));
        }
        let outcome = server.on_lock(ctx, *key, Some(*owner), Need::Own, |table, at| {
            table.renew_saying(at, name, renewal, says)
        });
        answer(outcome, says)
    }
}

/// The reply to a renewal with this value.
pub(super) fn answer(outcome: RenewReply, says: Option<&[u8]>) -> Answer {
    if outcome == RenewReply::Shared && says.is_some() {
        return Err(error(arguments::NO_VALUE.to_owned()));
    }
    Ok(reply(outcome))
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
