//! `LOCK.WAIT key owner lease-ms timeout-ms [SHARED] [HOLDS n] [SESSION id] [BOUND] [WITH numkeys key …]
//! [UNDER numkeys key …] [UNLESS ready-key] [VALUE value]`

use kvlock_core::arguments::Options;
use kvlock_core::{Acquire, Join, KeyRef, WaitReply, arguments};

use super::join::{How, enqueue};
use super::operation::{Answer, Operation};
use super::{acquire, set};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::replies::{READY, acquired, is_granted};
use crate::server::Server;

pub(crate) struct LockWait;

impl Operation for LockWait {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.wait",
        flags: c"write deny-oom blocking getkeys-api",
        summary:
            c"Acquires a lock, or waits in its queue until it is granted or the timeout has passed.",
        complexity:
            c"O(log N) for each key, where N is the number of waiters and observers on the server",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::Number(c"lease-ms"),
            ArgSpec::Number(c"timeout-ms"),
            ArgSpec::OptionalWord { word: c"SHARED", name: c"shared" },
            ArgSpec::OptionalNumber { word: c"HOLDS", name: c"n" },
            ArgSpec::OptionalNamedText { word: c"SESSION", name: c"id" },
            ArgSpec::OptionalWord { word: c"BOUND", name: c"bound" },
            ArgSpec::OptionalKeys { word: c"WITH", name: c"with" },
            ArgSpec::OptionalKeys { word: c"UNDER", name: c"under" },
            ArgSpec::OptionalKey { word: c"UNLESS", name: c"ready-key" },
            ArgSpec::OptionalNamedText { word: c"VALUE", name: c"value" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, owner, lease, timeout, options @ ..] = args else { return Ok(Reply::Nil) };
        let mut options = Options::split(options);
        let further = options.further(*key)?;
        let (session, value) = (options.argument(b"SESSION")?, options.argument(b"VALUE")?);
        let unless = options.argument(b"UNLESS")?;
        let bound = options.word(b"BOUND")?;
        let most = server.config.max_lease_ms;
        let request = arguments::acquire(owner.bytes(), lease.bytes(), options, most)?;
        let value = arguments::value(value.as_ref(), request.want)?;
        let timeout = arguments::timeout(timeout.bytes())?;
        let how = How::find(server, ctx, *key, session, bound)?;
        let parts = further.map(|further| set::parts(*key, &further));
        set::check_ready_key(parts.as_deref().unwrap_or_default(), unless)?;
        if acquire::is_ready(server, ctx, (*key, *owner), unless)? {
            return Ok(READY);
        }
        if let Some(parts) = parts {
            let what = set::Wait { request, value, timeout, bound, unless };
            return set::wait(server, ctx, &parts, *owner, &what, how);
        }
        let Some(how) = how else {
            return Ok(acquire::run(server, ctx, *key, *owner, &request, value, None));
        };
        let at = KeyRef::lock(ctx.db(), key.bytes());
        let bound = how.bound_to(server, bound, at, request.owner)?;
        let need = acquire::need(&request);
        let joined = server.on_lock(ctx, *key, Some(*owner), need, |table, at| {
            let (outcome, change) = table.wait(at, &request, how.caller().clone());
            let granted = matches!(outcome, WaitReply::Now(reply) if is_granted(reply));
            if let WaitReply::Now(reply) = outcome {
                table.bind_granted(at, &request, reply, bound);
            }
            let Acquire { owner, want, lease, .. } = request;
            let join = Join { owner, want, lease, timeout };
            let change = change.with_value(value.filter(|_| granted));
            let enqueue = |via| {
                let (waiter, replaced) = enqueue(table, at, &join, via, bound);
                table.set_value(waiter, value);
                table.set_ready_key(waiter, unless.as_ref().map(|key| key.bytes()));
                (waiter, replaced)
            };
            (how.settle(ctx, outcome, acquired, enqueue), change)
        });
        Ok(joined?.answer(server))
    }
}
