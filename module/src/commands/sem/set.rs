//! `SEM.SET key permits [NX]`

use kvlock_core::arguments;

use crate::commands::{Answer, NOT_A_LOCK, Operation};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::Server;

pub(crate) struct SemSet;

impl Operation for SemSet {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.set",
        flags: c"write deny-oom fast",
        arity: -3,
        key: Some(KeyUse::Write),
        acl: c"write fast",
        summary: c"Sets how many permits a semaphore has.",
        complexity: c"O(1), and O(1) for each waiter that is served by it",
        args: &[
            ArgSpec::Key,
            ArgSpec::Number(c"permits"),
            ArgSpec::OptionalWord { word: c"NX", name: c"nx" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, permits, options @ ..] = args else { return Ok(Reply::Nil) };
        let (permits, only_new) = arguments::permits_to_set(permits.bytes(), options)?;
        let set = server.on_semaphore(ctx, *key, None, None, |server, at| {
            server.table.set_permits(at, permits, only_new)
        });
        Ok(match set {
            None => NOT_A_LOCK,
            Some(false) => Reply::Nil,
            Some(true) => Reply::Number(1),
        })
    }
}
