//! `LOCK.OBSERVE key SESSION id`, `LOCK.UNOBSERVE key SESSION id`

use kvlock_core::arguments::Options;
use kvlock_core::{KeyRef, NotObserved, SessionId, arguments};

use super::operation::{Answer, Operation};
use crate::observers::{StateReply, state_reply};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::replies::{DRAINING, NOT_A_LOCK, QUEUE_FULL, SYNTAX, full};
use crate::server::Server;

pub(super) struct LockObserve;
pub(super) struct LockUnobserve;

const SPEC: CommandSpec = CommandSpec {
    name: c"lock.observe",
    flags: c"readonly deny-oom fast",
    summary: c"Returns the holder of a lock, and reports each change to a session.",
    complexity: c"O(log N) where N is the number of waiters and observers on the server",
    args: &[ArgSpec::Key, ArgSpec::NamedText { word: c"SESSION", name: c"id" }],
};

impl Operation for LockObserve {
    const SPEC: CommandSpec = SPEC;

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let (key, session) = read(server, ctx, args)?;
        arguments::kept_key(key.bytes())?;
        let state = server.state_of(ctx.open_to_read(key).as_ref(), key).ok_or(NOT_A_LOCK)?;
        let (name, now) = (KeyRef::lock(ctx.db(), key.bytes()), server.now());
        let news = match server.table.observe(name, now, state, session) {
            Err(NotObserved::Full(reached)) => return Err(full(reached, QUEUE_FULL)),
            Err(NotObserved::Draining) => return Err(DRAINING),
            Ok(news) => news,
        };
        let StateReply { state, owner, token, value, version } = state_reply(&news);
        Ok(Reply::List(vec![state, owner, token, value, version]))
    }
}

impl Operation for LockUnobserve {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.unobserve",
        flags: c"readonly fast",
        summary: c"Stops reporting the changes of a lock to a session.",
        ..SPEC
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let (key, session) = read(server, ctx, args)?;
        let name = KeyRef::lock(ctx.db(), key.bytes());
        Ok(Reply::Number(u64::from(server.table.unobserve(name, session))))
    }
}

/// Parses the key and the session.
fn read<'a>(
    server: &Server,
    ctx: &Ctx<'_>,
    args: &[Arg<'a>],
) -> Result<(Arg<'a>, SessionId), Reply> {
    let [key, options @ ..] = args else { return Err(SYNTAX) };
    let mut options = Options::split(options);
    let session = options.argument(b"SESSION")?;
    options.end()?;
    let session = session.ok_or(SYNTAX)?;
    Ok((*key, server.session(ctx, session)?))
}
