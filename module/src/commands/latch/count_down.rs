//! `LATCH.COUNTDOWN key [participant]`

use kvlock_core::CountDownReply;

use crate::commands::{NOT_A_LOCK, READ_ONLY, parse};
use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};
use crate::server;

pub(crate) struct LatchCountDown;

impl Command for LatchCountDown {
    const SPEC: CommandSpec = CommandSpec {
        name: c"latch.countdown",
        flags: c"write fast",
        arity: -2,
        key: Some(KeyUse::Write),
        acl: c"write fast",
        summary: c"Counts a latch down by one; at zero it opens.",
        complexity: c"O(1), however many clients wait",
        args: &[ArgSpec::Key, ArgSpec::OptionalText(c"participant")],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, options @ ..] = args.all() else {
            return Reply::Nil;
        };
        let participant = match options {
            [] => Ok(None),
            [participant] => parse::name("participant", *participant).map(Some),
            _ => Err(parse::SYNTAX),
        };
        let participant = match participant {
            Ok(participant) => participant,
            Err(trouble) => return trouble,
        };
        server::with(|server| {
            if !server.may_serve() {
                return READ_ONLY;
            }
            let outcome =
                server.on_latch(ctx, *key, participant, |server, at| server.table.count_down(at));
            match outcome {
                CountDownReply::Left(left) => Reply::Number(left),
                CountDownReply::Open => Reply::Nil,
                CountDownReply::NotALatch => NOT_A_LOCK,
            }
        })
    }
}
