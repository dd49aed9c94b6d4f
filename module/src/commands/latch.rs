//! The commands of latches, except `LATCH.CANCEL`.

use kvlock_core::arguments::Options;
use kvlock_core::{
    CountDownReply, Join, KeyRef, Latch, LatchAt, Millis, SetReply, Want, arguments,
};

use super::info::{number, queue};
use super::join::How;
use super::operation::{Answer, Operation};
use crate::latch;
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::replies::{NOT_A_LOCK, SYNTAX};
use crate::server::Server;

/// `LATCH.SET key count [PX lifetime-ms] [REPLACE]`
pub(super) struct LatchSet;

impl Operation for LatchSet {
    const SPEC: CommandSpec = CommandSpec {
        name: c"latch.set",
        flags: c"write deny-oom fast",
        summary: c"Sets a latch that opens when it has been counted down to zero.",
        complexity: c"O(1)",
        args: &[
            ArgSpec::Key,
            ArgSpec::Number(c"count"),
            ArgSpec::OptionalNumber { word: c"PX", name: c"lifetime-ms" },
            ArgSpec::OptionalWord { word: c"REPLACE", name: c"replace" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, count, options @ ..] = args else { return Ok(Reply::Nil) };
        let (count, lifetime, replace) = arguments::latch(count.bytes(), Options::split(options))?;
        let until = lifetime.map(|lifetime| server.now().unix().plus(lifetime));
        let outcome = server.on_latch(ctx, *key, None, |server, at| {
            server.table.set_latch(at, count, replace, until)
        });
        Ok(match outcome {
            SetReply::Set => Reply::Number(1),
            SetReply::Counting => Reply::Nil,
            SetReply::NotALatch => NOT_A_LOCK,
        })
    }
}

/// `LATCH.COUNTDOWN key [participant]`
pub(super) struct LatchCountDown;

impl Operation for LatchCountDown {
    const SPEC: CommandSpec = CommandSpec {
        name: c"latch.countdown",
        flags: c"write deny-oom fast",
        summary: c"Counts a latch down by one; at zero it opens.",
        complexity: c"O(1); if the latch opens, O(log N) where N is the number of waiters and observers on the server",
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

/// `LATCH.WAIT key waiter timeout-ms [SESSION id]`
pub(super) struct LatchWait;

impl Operation for LatchWait {
    const SPEC: CommandSpec = CommandSpec {
        name: c"latch.wait",
        flags: c"readonly deny-oom blocking",
        summary: c"Waits until a latch is open.",
        complexity: c"O(log N) where N is the number of waiters and observers on the server",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"waiter"),
            ArgSpec::Number(c"timeout-ms"),
            ArgSpec::OptionalNamedText { word: c"SESSION", name: c"id" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, waiter, timeout, options @ ..] = args else { return Ok(Reply::Nil) };
        let mut options = Options::split(options);
        let session = options.argument(b"SESSION")?;
        let owner = arguments::name("waiter", waiter.bytes())?;
        let timeout = arguments::timeout(timeout.bytes())?;
        options.end()?;
        let how = How::find(server, ctx, *key, session, false)?;
        let now = server.now();
        let seen = latch::read(ctx.open_to_read(*key).as_ref(), &server.strings, *key, None);
        let at = LatchAt { key: KeyRef::latch(ctx.db(), key.bytes()), seen, now };
        let reply = |is_open| if is_open { Reply::Number(0) } else { NOT_A_LOCK };
        let Some(how) = how else {
            let now = server.table.ask_for_latch(&at);
            return Ok(now.map_or(Reply::Nil, reply));
        };
        let outcome = server.table.wait_for_latch(&at, owner, how.caller().clone());
        let join = Join { owner, want: Want::LatchOpen, lease: Millis(0), timeout };
        let joined =
            how.settle(ctx, outcome, reply, |via| server.table.enqueue(&at, &join, via))?;
        Ok(joined.answer(server))
    }
}

/// `LATCH.INFO key [WAITERS count]`
pub(super) struct LatchInfo;

impl Operation for LatchInfo {
    const SPEC: CommandSpec = CommandSpec {
        name: c"latch.info",
        flags: c"readonly fast",
        summary: c"Returns the count of a latch, and its waiters.",
        complexity: c"O(1), with WAITERS O(count)",
        args: &[ArgSpec::Key, ArgSpec::OptionalNumber { word: c"WAITERS", name: c"count" }],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, options @ ..] = args else { return Ok(Reply::Nil) };
        let shown = arguments::count(Options::split(options), b"WAITERS")?;
        let now = server.now();
        let open = ctx.open_to_read(*key);
        let name = KeyRef::latch(ctx.db(), key.bytes());
        let (state, left, participants, until) =
            match latch::read(open.as_ref(), &server.strings, *key, None) {
                Latch::NotALatch { .. } => return Err(NOT_A_LOCK),
                Latch::Open => ("open", 0, 0, None),
                Latch::Counting { left, until, .. } => {
                    // One field has the count. Each other field is a participant.
                    let fields = open.as_ref().map_or(0, |key| key.fields());
                    ("counting", left, fields.saturating_sub(1), until)
                }
            };
        let left_of = |until: kvlock_core::UnixMillis| until.since(now.unix()).0;
        let mut fields = vec![
            ("state", Reply::Word(state)),
            ("count", Reply::Number(left)),
            ("participants", number(participants)),
            ("lifetime-left", Reply::or_nil(until.map(left_of), Reply::Number)),
            ("waiters", number(server.table.waiters_of(name))),
        ];
        if let Some(shown) = shown {
            fields.push(("queue", queue(server, name, shown, now)));
        }
        Ok(Reply::Map(fields))
    }
}
