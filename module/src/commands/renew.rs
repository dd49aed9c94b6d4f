//! `LOCK.RENEW key owner lease-ms [TOKEN n] [WITH numkeys key …] [UNDER numkeys key …] [VALUE value]`

use kvlock_core::arguments::Options;
use kvlock_core::{Want, arguments};

use super::operation::{Answer, Operation};
use super::set;
use crate::operate::Need;
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::replies::renewed_with_value;
use crate::server::Server;

pub(crate) struct LockRenew;

impl Operation for LockRenew {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.renew",
        flags: c"write fast getkeys-api",
        summary: c"Renews the lease of a held lock.",
        complexity: c"O(1) for each key",
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
        let mut options = Options::split(options);
        let further = options.further(*key)?;
        let value = options.argument(b"VALUE")?;
        let renewal = arguments::renewal(name, lease.bytes(), options, most)?;
        let value = arguments::value(value.as_ref(), Want::Exclusive)?;
        if let Some(further) = further {
            let parts = set::parts(*key, &further);
            return set::renew(server, ctx, &parts, *owner, (renewal, value));
        }
        let outcome = server.on_lock(ctx, *key, Some(*owner), Need::Own, |table, at| {
            table.renew_with_value(at, name, renewal, value)
        });
        renewed_with_value(outcome, value)
    }
}
