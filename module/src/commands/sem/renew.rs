//! `SEM.RENEW key owner lease-ms`

use crate::commands::{READ_ONLY, parse, renew};
use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};
use crate::server;

pub(crate) struct SemRenew;

impl Command for SemRenew {
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

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, owner, lease] = args.all() else {
            return Reply::Nil;
        };
        server::with(|server| {
            let parsed = parse::owner(*owner)
                .and_then(|owner| Ok((owner, parse::lease(*lease, server.config.max_lease_ms)?)));
            let (owner, lease) = match parsed {
                Ok(parsed) => parsed,
                Err(trouble) => return trouble,
            };
            if !server.may_serve() {
                return READ_ONLY;
            }
            let outcome = server.on_semaphore(ctx, *key, Some(owner), None, |server, at| {
                server.table.renew_permits(at, owner.bytes(), lease)
            });
            renew::reply(outcome)
        })
    }
}
