//! The common part of all commands.

use crate::redis::{Arg, Command, CommandSpec, Ctx, Reply};
use crate::replies::{BUSY, READ_ONLY};
use crate::server::{self, Server};

/// Largest number of entries that `LOCK.LIST`, `LOCK.PROFILE` and `SESSION.LIST` return without `COUNT`.
pub(super) const SHOWN: usize = 10;

/// Reply of a command. `Err` is sent to the caller as well: it only ends the command early.
pub(super) type Answer = Result<Reply, Reply>;

/// A command of this module.
pub(super) trait Operation: 'static {
    /// Name, flags, arguments and documentation, as declared to the server.
    const SPEC: CommandSpec;

    /// Runs the command. Not called on a replica if the command writes.
    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer;
}

impl<O: Operation> Command for O {
    const SPEC: CommandSpec = O::SPEC;

    fn run(ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Reply {
        let answer = server::with_unless_busy(|server| {
            if O::SPEC.writes() && !server.may_serve() {
                return READ_ONLY;
            }
            let reply = O::run(server, ctx, args).unwrap_or_else(|trouble| trouble);
            server.finish(ctx);
            reply
        });
        answer.unwrap_or(BUSY)
    }
}
