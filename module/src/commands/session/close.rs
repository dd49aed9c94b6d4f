//! `SESSION.CLOSE id`

use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, Reply};
use crate::{clock, server};

pub(crate) struct SessionClose;

impl Command for SessionClose {
    const SPEC: CommandSpec = CommandSpec {
        name: c"session.close",
        flags: c"fast",
        arity: 2,
        key: None,
        acl: c"fast",
        summary:
            c"Ends a session: its waits leave, and grants that it was not told of are taken back.",
        complexity: c"O(1), however many waits it has",
        args: &[ArgSpec::Text(c"id")],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [id] = args.all() else {
            return Reply::Nil;
        };
        server::with(|server| {
            let Ok(session) = server.session(ctx, *id) else {
                return Reply::Number(0);
            };
            server.close_session(session);
            server.plan(ctx, clock::now());
            Reply::Number(1)
        })
    }
}
