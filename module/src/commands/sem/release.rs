//! `SEM.RELEASE key owner [ALL | HOLDS n]`

use kvlock_core::arguments;

use crate::commands::{Answer, Operation, release};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::Server;

pub(crate) struct SemRelease;

impl Operation for SemRelease {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.release",
        flags: c"write fast",
        arity: -3,
        key: Some(KeyUse::Write),
        acl: c"write fast",
        summary: c"Gives back permits; they go straight to the first who wait for them.",
        complexity: c"O(1), and O(1) for each waiter that is served by it",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::OptionalWordOrNumber { word: c"ALL", other: c"HOLDS", name: c"n" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, options @ ..] = args else { return Ok(Reply::Nil) };
        let name = arguments::owner(owner.bytes())?;
        let amount = arguments::amount(options)?;
        let outcome = server.on_semaphore(ctx, *key, Some(*owner), None, |server, at| {
            server.table.release_permits(at, name, amount)
        });
        Ok(release::reply(outcome))
    }
}
