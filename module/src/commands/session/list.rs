//! `SESSION.LIST [COUNT count]`

use crate::commands::info::number;
use crate::commands::parse;
use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, Reply};
use crate::sessions::short_name;
use crate::{clock, server};

/// How many sessions are shown unless the caller says so.
const SHOWN: usize = 10;

pub(crate) struct SessionList;

impl Command for SessionList {
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

    fn run(_ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let shown = match parse::count(b"COUNT", args.all()) {
            Ok(shown) => shown.unwrap_or(SHOWN),
            Err(trouble) => return trouble,
        };
        server::with(|server| {
            let now = clock::now();
            let sessions = server.table.sessions().take(shown).map(|session| {
                let state = if session.away { "away" } else { "present" };
                Reply::Map(vec![
                    ("id", short_name(session.name)),
                    ("user", Reply::Bytes(session.user.to_vec())),
                    (
                        "reader",
                        Reply::or_nil(session.reader, |reader| Reply::Number(reader.client_id)),
                    ),
                    ("state", Reply::Word(state)),
                    ("waits", number(session.waits)),
                    ("outcomes", number(session.outcomes)),
                    ("age", Reply::Number(now.mono.since(session.since).0)),
                ])
            });
            Reply::List(sessions.collect())
        })
    }
}
