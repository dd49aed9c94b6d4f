//! `WITH numkeys key …` and `UNDER numkeys key …`: commands that apply to several locks at once.

use kvlock_core::arguments::{Further, Store};
use kvlock_core::{
    Acquire, Join, KeyRef, Millis, Release, SessionId, Token, WaitReply, Want, arguments,
    mismatches,
};

use super::join::How;
use super::operation::Answer;
use super::store::write_result;
use crate::operate::Need;
use crate::redis::{Arg, Ctx, Reply};
use crate::replies::{
    READY_KEY, TOO_MANY_BOUND, acquired, full, is_granted, released, renewed_with_value,
};
use crate::server::Server;
use crate::sets::{Part, with_values};

/// Returns the keys of a command for several locks: its first key, then the keys of `WITH`, then the keys of
/// `UNDER`.
pub(super) fn parts<'a>(first: Arg<'a>, further: &Further<'a, Arg<'a>>) -> Vec<Part<'a>> {
    let first = std::iter::once(&first).chain(further.with);
    let first = first.map(|name| Part { name: *name, under: false });
    let under = further.under.iter().map(|name| Part { name: *name, under: true });
    first.chain(under).collect()
}

/// Refuses a ready-key that is one of the locks.
pub(super) fn check_ready_key(parts: &[Part<'_>], ready_key: Option<Arg<'_>>) -> Result<(), Reply> {
    let is_locked = |key: Arg<'_>| parts.iter().any(|part| part.name.bytes() == key.bytes());
    if ready_key.is_some_and(is_locked) { Err(READY_KEY) } else { Ok(()) }
}

/// Returns the session to bind an immediate grant of a set of locks to: see `acquire::bound_to`.
fn bound_to(
    server: &Server,
    ctx: &Ctx<'_>,
    session: Option<Arg<'_>>,
    parts: &[Part<'_>],
    owner: &[u8],
) -> Result<Option<SessionId>, Reply> {
    let Some(session) = session else { return Ok(None) };
    let session = server.session(ctx, session)?;
    for part in parts {
        arguments::kept_key(part.name.bytes())?;
    }
    let keys = parts.iter().map(|part| KeyRef::lock(ctx.db(), part.name.bytes()));
    let room = server.table.room_to_bind_all(keys, owner, session);
    room.map(|()| Some(session)).map_err(|reached| full(reached, TOO_MANY_BOUND))
}

/// Acquires all locks without waiting, or none of them. With `held`, the request is refused unless the owner
/// already holds all of them.
pub(super) fn acquire(
    server: &mut Server,
    ctx: &Ctx<'_>,
    parts: &[Part<'_>],
    owner: Arg<'_>,
    (request, value): (&Acquire<'_>, Option<&[u8]>),
    (session, held): (Option<Arg<'_>>, bool),
) -> Answer {
    let bound = bound_to(server, ctx, session, parts, request.owner)?;
    let need = if request.want != Want::Shared && !held { Need::Living } else { Need::Own };
    let outcome = server.on_set(ctx, parts, owner, need, |table, members| {
        let (reply, changes) = if held {
            table.acquire_set_held(members, request, bound)
        } else {
            table.acquire_set(members, request, bound)
        };
        (reply, with_values(changes, members, value.filter(|_| is_granted(reply))))
    });
    Ok(acquired(outcome))
}

/// Arguments of a wait for several locks.
pub(super) struct Wait<'a> {
    pub(super) request: Acquire<'a>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) timeout: Option<Millis>,
    pub(super) bound: bool,
    pub(super) unless: Option<Arg<'a>>,
}

/// Acquires all locks, or waits in the queue of each lock. If `how` is `None`, the caller cannot wait, and
/// the locks are acquired at once or not at all.
pub(super) fn wait(
    server: &mut Server,
    ctx: &Ctx<'_>,
    parts: &[Part<'_>],
    owner: Arg<'_>,
    what: &Wait<'_>,
    how: Option<How>,
) -> Answer {
    let Wait { request, value, timeout, bound, unless } = what;
    let Some(how) = how else {
        return acquire(server, ctx, parts, owner, (request, *value), (None, false));
    };
    for part in parts {
        arguments::kept_key(part.name.bytes())?;
    }
    let bound = how.caller().session().filter(|_| *bound);
    if let Some(session) = bound {
        let keys = parts.iter().map(|part| KeyRef::lock(ctx.db(), part.name.bytes()));
        let room = server.table.room_to_bind_all(keys, request.owner, session);
        room.map_err(|reached| full(reached, TOO_MANY_BOUND))?;
    }
    let need = if request.want == Want::Shared { Need::Own } else { Need::Living };
    let joined = server.on_set(ctx, parts, owner, need, |table, members| {
        let (outcome, changes) = table.wait_set(members, request, how.caller(), bound);
        let granted = matches!(outcome, WaitReply::Now(reply) if is_granted(reply));
        let changes = with_values(changes, members, value.filter(|_| granted));
        let Acquire { owner, want, lease, .. } = *request;
        let join = Join { owner, want, lease, timeout: *timeout };
        let enqueue = |via| {
            let joined = table.enqueue_set(members, &join, request.holds, via, how.caller());
            let Some((waiter, replaced)) = joined else { unreachable!("a set has a first key") };
            if bound.is_some() {
                table.bind_when_granted(waiter);
            }
            table.set_value(waiter, *value);
            table.set_ready_key(waiter, unless.as_ref().map(|key| key.bytes()));
            (waiter, replaced)
        };
        (how.settle(ctx, outcome, acquired, enqueue), changes)
    });
    Ok(joined?.answer(server))
}

/// Releases each lock of a set, except locks that the owner does not hold. If `HOLDS` does not match,
/// releases none. Stores the result only if the owner holds all of them, and `HOLDS` matches.
pub(super) fn release(
    server: &mut Server,
    ctx: &Ctx<'_>,
    parts: &[Part<'_>],
    (owner, name): (Arg<'_>, &[u8]),
    (want, amount): (Want, Release),
    store: Option<Store<Arg<'_>>>,
) -> Answer {
    let outcome = server.on_set(ctx, parts, owner, Need::Holds, |table, members| {
        // If any lock of the set is lost, another client may already do the work.
        let stores = members.iter().all(|member| member.is_held_by(name, want));
        let stores = stores && !mismatches(members, name, want, amount);
        if let (Some(store), Some(first)) = (store.filter(|_| stores), members.first()) {
            write_result(ctx, table, &first.at, &store);
        }
        table.release_set(members, name, want, amount)
    });
    if let Some(first) = parts.first()
        && server.table.has_sets_to_look_at()
    {
        server.serve_sets(ctx, first.name);
    }
    Ok(released(outcome))
}

/// Renews each lock of a set, except locks that the owner does not hold. After an error, renews none. `TOKEN`
/// and `VALUE` do not apply to keys of `UNDER`.
pub(super) fn renew(
    server: &mut Server,
    ctx: &Ctx<'_>,
    parts: &[Part<'_>],
    owner: Arg<'_>,
    (renewal, value): ((Millis, Option<Token>), Option<&[u8]>),
) -> Answer {
    let outcome = server.on_set(ctx, parts, owner, Need::Own, |table, members| {
        table.renew_set(members, owner.bytes(), renewal, value)
    });
    renewed_with_value(outcome, value)
}
