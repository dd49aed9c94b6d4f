//! `LOCK.PROFILE [COUNT count] [RESET]`

use kvlock_core::{Cost, Kind, LockKey, arguments};

use super::{Answer, Operation};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::server::Server;

/// How many locks are shown unless the caller says so.
const SHOWN: usize = 10;

pub(crate) struct LockProfile;

impl Operation for LockProfile {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.profile",
        flags: c"readonly",
        arity: -1,
        key: None,
        acl: c"read slow dangerous",
        summary: c"Lists the locks of the database that were waited for longest.",
        complexity: c"O(1): at most 128 locks are looked at",
        args: &[
            ArgSpec::OptionalNumber { word: c"COUNT", name: c"count" },
            ArgSpec::OptionalWord { word: c"RESET", name: c"reset" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let (shown, reset) = arguments::profile(args)?;
        let found = server.table.profile(ctx.db(), shown.unwrap_or(SHOWN));
        let entries = found.into_iter().map(|(key, cost)| entry(key, cost)).collect();
        if reset {
            server.table.reset_profile();
        }
        Ok(Reply::List(entries))
    }
}

fn entry(key: &LockKey, cost: Cost) -> Reply {
    let kind = match key.kind {
        Kind::Lock | Kind::Changes => "lock",
        Kind::Semaphore => "semaphore",
        Kind::Latch => "latch",
    };
    Reply::Map(vec![
        ("key", Reply::Bytes(key.name.to_vec())),
        ("kind", Reply::Word(kind)),
        ("waited", Reply::Number(cost.waited.0)),
        ("longest-wait", Reply::Number(cost.longest.0)),
        ("hand-offs", Reply::Number(cost.hand_offs)),
        ("held", Reply::Number(cost.held_us / 1000)),
        ("missed", Reply::Number(cost.missed.0)),
    ])
}
