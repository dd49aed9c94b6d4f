//! `SESSION.LIST [COUNT count]`

use kvlock_core::arguments;

use crate::clock;
use crate::commands::info::number;
use crate::commands::{Answer, Operation};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::server::Server;
use crate::sessions::short_name;

/// How many sessions are shown unless the caller says so.
const SHOWN: usize = 10;

pub(crate) struct SessionList;

impl Operation for SessionList {
    const SPEC: CommandSpec = CommandSpec {
        name: c"session.list",
        flags: c"readonly",
        arity: -1,
        key: None,
        acl: c"read slow dangerous",
        summary: c"Lists sessions, the oldest first.",
        complexity: c"O(count)",
        args: &[ArgSpec::OptionalNumber { word: c"COUNT", name: c"count" }],
    };

    fn run(server: &mut Server, _ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let shown = arguments::count(b"COUNT", args)?.unwrap_or(SHOWN);
        let now = clock::now();
        let sessions = server.table.sessions().take(shown).map(|session| {
            let state = if session.away { "away" } else { "present" };
            Reply::Map(vec![
                ("id", short_name(session.name)),
                ("user", Reply::Bytes(session.user.to_vec())),
                ("reader", Reply::or_nil(session.reader, |reader| Reply::Number(reader.client_id))),
                ("state", Reply::Word(state)),
                ("waits", number(session.waits)),
                ("outcomes", number(session.outcomes)),
                ("bound", number(session.bound)),
                ("age", Reply::Number(now.mono.since(session.since).0)),
            ])
        });
        Ok(Reply::List(sessions.collect()))
    }
}
