//! `SESSION.OPEN ttl-ms`

use kvlock_core::{NotOpened, arguments};

use crate::clock;
use crate::commands::{Answer, NO_USER, Operation, READ_ONLY, TOO_MANY_SESSIONS};
use crate::module::DRAINING;
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::server::Server;

pub(crate) struct SessionOpen;

impl Operation for SessionOpen {
    const SPEC: CommandSpec = CommandSpec {
        name: c"session.open",
        flags: c"fast",
        arity: 2,
        key: None,
        acl: c"fast",
        summary: c"Opens a session: any number of waits over one connection.",
        complexity: c"O(1)",
        args: &[ArgSpec::Number(c"ttl-ms")],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [ttl] = args else { return Ok(Reply::Nil) };
        let ttl = arguments::ttl(ttl.bytes())?;
        if !server.may_serve() {
            return Err(READ_ONLY);
        }
        let user = ctx.user().ok_or(NO_USER)?;
        let (name, now) = (ctx.random_digits(), clock::now());
        match server.table.open_session(name, user.lend().bytes(), ttl, now) {
            Err(NotOpened::Draining) => Err(DRAINING),
            Err(NotOpened::Full) => Err(TOO_MANY_SESSIONS),
            Ok(_) => {
                server.plan(ctx, now);
                Ok(Reply::List(vec![Reply::Bytes(name.to_vec()), Reply::Number(now.mono.0)]))
            }
        }
    }
}
