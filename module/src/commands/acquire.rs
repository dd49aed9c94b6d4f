//! `LOCK.ACQUIRE key owner lease-ms [SHARED] [HOLDS n] [SESSION id] [BOUND] [HELD] [WITH numkeys key …]
//! [UNDER numkeys key …] [UNLESS ready-key] [VALUE value]`

use kvlock_core::arguments::Options;
use kvlock_core::{Acquire, KeyRef, Keys as _, Kind, SessionId, Want, arguments};

use super::operation::{Answer, Operation};
use super::set;
use crate::floor::FLOOR_PREFIX;
use crate::operate::Need;
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::replies::{
    READY, READY_KEY, SYNTAX, TOO_MANY_BOUND, UNBOUND, acquired, full, is_granted,
};
use crate::server::Server;

pub(crate) struct LockAcquire;

impl Operation for LockAcquire {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.acquire",
        flags: c"write deny-oom fast getkeys-api",
        summary: c"Acquires a lock if it is free, or re-enters it. Never waits.",
        complexity: c"O(1) for each key",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::Number(c"lease-ms"),
            ArgSpec::OptionalWord { word: c"SHARED", name: c"shared" },
            ArgSpec::OptionalNumber { word: c"HOLDS", name: c"n" },
            ArgSpec::OptionalNamedText { word: c"SESSION", name: c"id" },
            ArgSpec::OptionalWord { word: c"BOUND", name: c"bound" },
            ArgSpec::OptionalWord { word: c"HELD", name: c"held" },
            ArgSpec::OptionalKeys { word: c"WITH", name: c"with" },
            ArgSpec::OptionalKeys { word: c"UNDER", name: c"under" },
            ArgSpec::OptionalKey { word: c"UNLESS", name: c"ready-key" },
            ArgSpec::OptionalNamedText { word: c"VALUE", name: c"value" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, lease, options @ ..] = args else { return Ok(Reply::Nil) };
        let most = server.config.max_lease_ms;
        let mut options = Options::split(options);
        let further = options.further(*key)?;
        let (session, value) = (options.argument(b"SESSION")?, options.argument(b"VALUE")?);
        let unless = options.argument(b"UNLESS")?;
        let (bound, held) = (options.word(b"BOUND")?, options.word(b"HELD")?);
        let request = arguments::acquire(owner.bytes(), lease.bytes(), options, most)?;
        let value = arguments::value(value.as_ref(), request.want)?;
        let session = to_bind_to(session, bound)?;
        let parts = further.map(|further| set::parts(*key, &further));
        set::check_ready_key(parts.as_deref().unwrap_or_default(), unless)?;
        if is_ready(server, ctx, (*key, *owner), unless)? {
            return Ok(READY);
        }
        if let Some(parts) = parts {
            return set::acquire(server, ctx, &parts, *owner, (&request, value), (session, held));
        }
        let at = (*key, Kind::Lock, request.owner);
        let bound = bound_to(server, ctx, session, at)?;
        if held {
            return Ok(run_held(server, ctx, *key, *owner, &request, value, bound));
        }
        Ok(run(server, ctx, *key, *owner, &request, value, bound))
    }
}

/// Returns the name of the session to bind an immediate grant to. `SESSION` without `BOUND` is valid for waits
/// only.
pub(super) fn to_bind_to(session: Option<Arg<'_>>, bound: bool) -> Result<Option<Arg<'_>>, Reply> {
    match (session, bound) {
        (None, true) => Err(UNBOUND),
        (Some(_), false) => Err(SYNTAX),
        (session, _) => Ok(session),
    }
}

/// Returns the session to bind an immediate grant to.
pub(super) fn bound_to(
    server: &Server,
    ctx: &Ctx<'_>,
    session: Option<Arg<'_>>,
    (key, kind, owner): (Arg<'_>, Kind, &[u8]),
) -> Result<Option<SessionId>, Reply> {
    let Some(session) = session else { return Ok(None) };
    let session = server.session(ctx, session)?;
    arguments::kept_key(key.bytes())?;
    let key = KeyRef { db: ctx.db(), name: key.bytes(), kind };
    let room = server.table.room_to_bind(key, owner, session);
    room.map(|()| Some(session)).map_err(|reached| full(reached, TOO_MANY_BOUND))
}

/// Returns whether to answer the caller `ready`: its ready-key (`UNLESS`) exists, and the owner does not hold
/// the lock. If so, also answers `ready` to a wait of the same owner in the queue.
pub(super) fn is_ready(
    server: &mut Server,
    ctx: &Ctx<'_>,
    (lock, owner): (Arg<'_>, Arg<'_>),
    ready_key: Option<Arg<'_>>,
) -> Result<bool, Reply> {
    let Some(ready_key) = ready_key else { return Ok(false) };
    let name = ready_key.bytes();
    if name == lock.bytes() || name.starts_with(FLOOR_PREFIX) {
        return Err(READY_KEY);
    }
    if name.len() > NAME_MAX {
        return Err(NAME_TOO_LONG);
    }
    if !ctx.exists(name) || holds(server, ctx, lock, owner) {
        return Ok(false);
    }
    server.table.record_ready(KeyRef::lock(ctx.db(), lock.bytes()), owner.bytes());
    Ok(true)
}

/// Returns whether an owner already holds a lock, for example because it repeats a request. Such an owner
/// must not be answered `ready`: it would conclude that it holds nothing.
fn holds(server: &mut Server, ctx: &Ctx<'_>, lock: Arg<'_>, owner: Arg<'_>) -> bool {
    let case = server.look_up(ctx, lock, owner);
    let holds = |want| case.at.holds_of(owner.bytes(), want);
    holds(Want::Exclusive).or_else(|| holds(Want::Shared)).is_some()
}

/// Longest ready-key of `UNLESS`, in bytes.
const NAME_MAX: usize = 4_096;

const NAME_TOO_LONG: Reply = Reply::error(c"ERR invalid ready-key: must be at most 4096 bytes");

/// Acquires a lock without waiting.
pub(super) fn run(
    server: &mut Server,
    ctx: &Ctx<'_>,
    key: Arg<'_>,
    owner: Arg<'_>,
    request: &Acquire<'_>,
    value: Option<&[u8]>,
    bound: Option<SessionId>,
) -> Reply {
    let need = need(request);
    let outcome = server.on_lock(ctx, key, Some(owner), need, |table, at| {
        let (reply, change) = table.acquire(at, request);
        table.bind_granted(at, request, reply, bound);
        (reply, change.with_value(value.filter(|_| is_granted(reply))))
    });
    acquired(outcome)
}

/// Handles `HELD`: acquires again a lock that the owner already holds, and adds no hold. Refused if the owner
/// does not hold the lock in the requested mode.
fn run_held(
    server: &mut Server,
    ctx: &Ctx<'_>,
    key: Arg<'_>,
    owner: Arg<'_>,
    request: &Acquire<'_>,
    value: Option<&[u8]>,
    bound: Option<SessionId>,
) -> Reply {
    acquired(server.on_lock(ctx, key, Some(owner), Need::Own, |table, at| {
        let (reply, change) = table.acquire_held(at, request);
        table.bind_granted(at, request, reply, bound);
        (reply, change.with_value(value.filter(|_| is_granted(reply))))
    }))
}

/// Returns the state that a request depends on. For an exclusive request, that includes whether any sharer is
/// alive.
pub(super) fn need(request: &Acquire<'_>) -> Need {
    if request.want == Want::Shared { Need::Own } else { Need::Living }
}
