//! `SESSION.OPEN ttl-ms`

use kvlock_core::NotOpened;

use crate::commands::{NO_USER, READ_ONLY, TOO_MANY_SESSIONS, parse};
use crate::module::DRAINING;
use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, Reply};
use crate::{clock, server};

pub(crate) struct SessionOpen;

impl Command for SessionOpen {
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

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [ttl] = args.all() else {
            return Reply::Nil;
        };
        let ttl = match parse::ttl(*ttl) {
            Ok(ttl) => ttl,
            Err(trouble) => return trouble,
        };
        server::with(|server| {
            if !server.may_serve() {
                return READ_ONLY;
            }
            let Some(user) = ctx.user() else { return NO_USER };
            let (name, now) = (ctx.random_digits(), clock::now());
            match server.table.open_session(name, user.lend().bytes(), ttl, now) {
                Err(NotOpened::Draining) => DRAINING,
                Err(NotOpened::Full) => TOO_MANY_SESSIONS,
                Ok(_) => {
                    server.plan(ctx, now);
                    Reply::List(vec![Reply::Bytes(name.to_vec()), Reply::Number(now.mono.0)])
                }
            }
        })
    }
}
