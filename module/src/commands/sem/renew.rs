//! `SEM.RENEW key owner lease-ms`

use kvlock_core::arguments;

use crate::commands::{Answer, Operation, renew};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::Server;

pub(crate) struct SemRenew;

impl Operation for SemRenew {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.renew",
        flags: c"write fast",
        arity: 4,
        key: Some(KeyUse::Write),
        acl: c"write fast",
        summary: c"Starts the lease of an owner's permits anew.",
        complexity: c"O(1)",
        args: &[ArgSpec::Key, ArgSpec::Text(c"owner"), ArgSpec::Number(c"lease-ms")],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, lease] = args else { return Ok(Reply::Nil) };
        let name = arguments::owner(owner.bytes())?;
        let lease = arguments::lease(lease.bytes(), server.config.max_lease_ms)?;
        let outcome = server.on_semaphore(ctx, *key, Some(*owner), None, |server, at| {
            server.table.renew_permits(at, name, lease)
        });
        Ok(renew::reply(outcome))
    }
}
