//! What all commands have in common.

use crate::redis::{Arg, Command, CommandSpec, Ctx, Reply};
use crate::replies::{BUSY, READ_ONLY};
use crate::server::{self, Server};

/// How many locks or sessions are shown unless the caller says so.
pub(super) const SHOWN: usize = 10;

/// What a command answers: trouble is an answer, too.
pub(super) type Answer = Result<Reply, Reply>;

/// A command of ours.
pub(super) trait Operation: 'static {
    /// Declaration for the server and its users.
    const SPEC: CommandSpec;

    /// Runs the command. On a replica, commands that write are not run.
    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer;
}

impl<O: Operation> Command for O {
    const SPEC: CommandSpec = O::SPEC;

    fn run(ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Reply {
        let answer = server::with_unless_busy(|server| {
            if O::SPEC.writes() && !server.may_serve() {
                return READ_ONLY;
            }
            O::run(server, ctx, args).unwrap_or_else(|trouble| trouble)
        });
        answer.unwrap_or(BUSY)
    }
}
