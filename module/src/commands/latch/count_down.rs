//! `LATCH.COUNTDOWN key [participant]`

use kvlock_core::{CountDownReply, arguments};

use crate::commands::{Answer, NOT_A_LOCK, Operation, SYNTAX};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::Server;

pub(crate) struct LatchCountDown;

impl Operation for LatchCountDown {
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

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, options @ ..] = args else { return Ok(Reply::Nil) };
        let participant = match options {
            [] => None,
            [participant] => {
                arguments::name("participant", participant.bytes())?;
                Some(*participant)
            }
            _ => return Err(SYNTAX),
        };
        let outcome =
            server.on_latch(ctx, *key, participant, |server, at| server.table.count_down(at));
        Ok(match outcome {
            CountDownReply::Left(left) => Reply::Number(left),
            CountDownReply::Open => Reply::Nil,
            CountDownReply::NotALatch => NOT_A_LOCK,
        })
    }
}
