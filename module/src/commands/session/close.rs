//! `SESSION.CLOSE id`

use crate::clock;
use crate::commands::{Answer, Operation};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::server::Server;

pub(crate) struct SessionClose;

impl Operation for SessionClose {
    const SPEC: CommandSpec = CommandSpec {
        name: c"session.close",
        flags: c"fast",
        arity: 2,
        key: None,
        acl: c"fast",
        summary:
            c"Ends a session: its waits leave, what is bound to it is released, and grants that it was not told of are taken back.",
        complexity: c"O(1), however many waits it has",
        args: &[ArgSpec::Text(c"id")],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [id] = args else { return Ok(Reply::Nil) };
        let Ok(session) = server.session(ctx, *id) else {
            return Ok(Reply::Number(0));
        };
        server.close_session(session);
        server.plan(ctx, clock::now());
        Ok(Reply::Number(1))
    }
}
