//! The commands of semaphores, except `SEM.CANCEL`.

use kvlock_core::arguments::Options;
use kvlock_core::{
    Acquire, Join, KeyRef, Kind, Permits, Semaphore, SessionId, TakeReply, WaitReply, arguments,
};

use super::acquire::{bound_to, to_bind_to};
use super::info::{SHOWS, number, quarantine, queue};
use super::join::{How, enqueue};
use super::operation::{Answer, Operation};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::replies::{MISMATCH, NOT_A_LOCK, TOO_MANY_PERMITS, UNSET, released, renewed};
use crate::semaphore;
use crate::server::Server;

/// `SEM.SET key permits [NX]`
pub(super) struct SemSet;

impl Operation for SemSet {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.set",
        flags: c"write deny-oom fast",
        summary: c"Sets the number of permits of a semaphore.",
        complexity: c"O(1); if clients wait, O(log N) where N is the number of waiters and observers on the server, and a search of expired holders",
        args: &[
            ArgSpec::Key,
            ArgSpec::Number(c"permits"),
            ArgSpec::OptionalWord { word: c"NX", name: c"nx" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, permits, options @ ..] = args else { return Ok(Reply::Nil) };
        let (permits, only_new) =
            arguments::permits_to_set(permits.bytes(), Options::split(options))?;
        let set = server.on_semaphore(ctx, *key, None, None, |server, at| {
            server.table.set_permits(at, permits, only_new)
        });
        Ok(match set {
            None => NOT_A_LOCK,
            Some(false) => Reply::Nil,
            Some(true) => Reply::Number(1),
        })
    }
}

/// `SEM.ACQUIRE key owner <permits | ALL> lease-ms [HOLDS n] [SESSION id] [BOUND] [HELD]`
pub(super) struct SemAcquire;

impl Operation for SemAcquire {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.acquire",
        flags: c"write deny-oom fast",
        summary: c"Acquires permits of a semaphore if they are free. Never waits.",
        complexity: c"O(1); if too few permits are free, O(H) where H is the number of holders",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::NumberOrWord { name: c"permits", word: c"ALL" },
            ArgSpec::Number(c"lease-ms"),
            ArgSpec::OptionalNumber { word: c"HOLDS", name: c"n" },
            ArgSpec::OptionalNamedText { word: c"SESSION", name: c"id" },
            ArgSpec::OptionalWord { word: c"BOUND", name: c"bound" },
            ArgSpec::OptionalWord { word: c"HELD", name: c"held" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, permits, lease, options @ ..] = args else { return Ok(Reply::Nil) };
        let most = server.config.max_lease_ms;
        let (permits, lease) = (permits.bytes(), lease.bytes());
        let mut options = Options::split(options);
        let session = options.argument(b"SESSION")?;
        let (bound, held) = (options.word(b"BOUND")?, options.word(b"HELD")?);
        let (permits, request) =
            arguments::permits_or_all(owner.bytes(), permits, lease, options, most)?;
        let session = to_bind_to(session, bound)?;
        let at = (*key, Kind::Semaphore, request.owner);
        let bound = bound_to(server, ctx, session, at)?;
        if held {
            return Ok(taken(server.on_semaphore(ctx, *key, Some(*owner), None, |server, at| {
                let (outcome, change) = server.table.take_held_permits(at, &request);
                server.table.bind_taken(at, &request, outcome, bound);
                (outcome, change)
            })));
        }
        Ok(take(server, ctx, *key, *owner, permits, &request, bound))
    }
}

/// Acquires `permits` without waiting, or all free permits if `None`.
fn take(
    server: &mut Server,
    ctx: &Ctx<'_>,
    key: Arg<'_>,
    owner: Arg<'_>,
    permits: Option<u64>,
    request: &Acquire<'_>,
    bound: Option<SessionId>,
) -> Reply {
    let most = permits.unwrap_or(Permits::MAX);
    taken(server.on_semaphore(ctx, key, Some(owner), Some(most), |server, at| {
        let (outcome, change) = match permits {
            Some(permits) => server.table.take_permits(at, permits, request),
            None => server.table.drain_permits(at, request),
        };
        server.table.bind_taken(at, request, outcome, bound);
        (outcome, change)
    }))
}

fn taken(outcome: TakeReply) -> Reply {
    match outcome {
        TakeReply::Holds(holds) => Reply::Number(holds),
        TakeReply::Refused => Reply::Nil,
        TakeReply::Mismatch => MISMATCH,
        TakeReply::TooMany => TOO_MANY_PERMITS,
        TakeReply::Unset => UNSET,
        TakeReply::NotASemaphore => NOT_A_LOCK,
    }
}

/// `SEM.WAIT key owner permits lease-ms timeout-ms [HOLDS n] [SESSION id] [BOUND]`
pub(super) struct SemWait;

impl Operation for SemWait {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.wait",
        flags: c"write deny-oom blocking",
        summary: c"Acquires permits of a semaphore, or waits in the queue until they are free.",
        complexity: c"O(log N) where N is the number of waiters and observers on the server; if too few permits are free, also O(H) where H is the number of holders",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::Number(c"permits"),
            ArgSpec::Number(c"lease-ms"),
            ArgSpec::Number(c"timeout-ms"),
            ArgSpec::OptionalNumber { word: c"HOLDS", name: c"n" },
            ArgSpec::OptionalNamedText { word: c"SESSION", name: c"id" },
            ArgSpec::OptionalWord { word: c"BOUND", name: c"bound" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, permits, lease, timeout, options @ ..] = args else {
            return Ok(Reply::Nil);
        };
        let mut options = Options::split(options);
        let session = options.argument(b"SESSION")?;
        let bound = options.word(b"BOUND")?;
        let (permits, lease, most) = (permits.bytes(), lease.bytes(), server.config.max_lease_ms);
        let (permits, request) = arguments::permits(owner.bytes(), permits, lease, options, most)?;
        let timeout = arguments::timeout(timeout.bytes())?;
        let Some(how) = How::find(server, ctx, *key, session, bound)? else {
            return Ok(take(server, ctx, *key, *owner, Some(permits), &request, None));
        };
        let at = KeyRef::semaphore(ctx.db(), key.bytes());
        let bound = how.bound_to(server, bound, at, request.owner)?;
        let joined = server.on_semaphore(ctx, *key, Some(*owner), Some(permits), |server, at| {
            let caller = how.caller().clone();
            let (outcome, change) = server.table.wait_for_permits(at, permits, &request, caller);
            if let WaitReply::Now(reply) = outcome {
                server.table.bind_taken(at, &request, reply, bound);
            }
            let Acquire { owner, lease, want, .. } = request;
            let join = Join { owner, want, lease, timeout };
            let enqueue = |via| enqueue(&mut server.table, at, &join, via, bound);
            (how.settle(ctx, outcome, taken, enqueue), change)
        });
        Ok(joined?.answer(server))
    }
}

/// `SEM.RELEASE key owner [ALL | HOLDS n]`
pub(super) struct SemRelease;

impl Operation for SemRelease {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.release",
        flags: c"write fast",
        summary: c"Releases permits and grants them to the first waiters.",
        complexity: c"O(1); if clients wait, O(log N) where N is the number of waiters and observers on the server, and a search of expired holders",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::OptionalWordOrNumber { word: c"ALL", other: c"HOLDS", name: c"n" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, options @ ..] = args else { return Ok(Reply::Nil) };
        let name = arguments::owner(owner.bytes())?;
        let amount = arguments::amount(Options::split(options))?;
        let outcome = server.on_semaphore(ctx, *key, Some(*owner), None, |server, at| {
            server.table.release_permits(at, name, amount)
        });
        Ok(released(outcome))
    }
}

/// `SEM.RENEW key owner lease-ms`
pub(super) struct SemRenew;

impl Operation for SemRenew {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.renew",
        flags: c"write fast",
        summary: c"Renews the lease of an owner's permits.",
        complexity: c"O(1)",
        args: &[ArgSpec::Key, ArgSpec::Text(c"owner"), ArgSpec::Number(c"lease-ms")],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, lease] = args else { return Ok(Reply::Nil) };
        let name = arguments::owner(owner.bytes())?;
        let lease = arguments::lease(lease.bytes(), server.config.max_lease_ms)?;
        let outcome = server.on_semaphore(ctx, *key, Some(*owner), None, |server, at| {
            server.table.renew_permits(at, name, lease)
        });
        Ok(renewed(outcome))
    }
}

/// `SEM.INFO key [WAITERS count] [HOLDERS count]`
pub(super) struct SemInfo;

impl Operation for SemInfo {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.info",
        flags: c"readonly fast",
        summary: c"Returns the permits of a semaphore, their holders, and its waiters.",
        complexity: c"O(1), with WAITERS or HOLDERS O(count), and O(1) for each expired holder",
        args: SHOWS,
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, options @ ..] = args else { return Ok(Reply::Nil) };
        let (waiters_shown, holders_shown) = arguments::shown(Options::split(options))?;
        let now = server.now();
        let open = ctx.open_to_read(*key);
        let name = KeyRef::semaphore(ctx.db(), key.bytes());
        let (limit, used) = match semaphore::read(open.as_ref(), &server.strings, *key, None).0 {
            Ok(counts) => counts,
            Err(Semaphore::Unset) => return Err(UNSET),
            Err(Semaphore::Set(_) | Semaphore::NotASemaphore { .. }) => return Err(NOT_A_LOCK),
        };
        // One field has the counts. Each other field is a holder.
        let holders = open.as_ref().map_or(1, |key| key.fields()).saturating_sub(1);
        let mut fields = vec![
            ("permits", Reply::Number(limit)),
            ("used", Reply::Number(used)),
            ("holders", number(holders)),
            ("waiters", number(server.table.waiters_of(name))),
        ];
        fields.extend(quarantine(server, now));
        if let Some(shown) = waiters_shown {
            fields.push(("queue", queue(server, name, shown, now)));
        }
        if let (Some(shown), Some(key)) = (holders_shown, &open) {
            let living = server.holders.list(name, key, now.unix(), shown).living;
            let entries = living.iter().map(|(owner, share)| {
                let left = share.until.since(now.unix()).0;
                let (owner, holds) = (Reply::Bytes(owner.to_vec()), Reply::Number(share.holds));
                Reply::List(vec![owner, holds, Reply::Number(left)])
            });
            fields.push(("held-by", Reply::List(entries.collect())));
        }
        Ok(Reply::Map(fields))
    }
}
