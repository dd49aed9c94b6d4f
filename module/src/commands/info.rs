//! `LOCK.INFO key [WAITERS count]`

use kvlock_core::{KeyRef, Now, Observed, Table, Token};

use super::{NOT_A_LOCK, parse};
use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::{self, Server, Waiting};
use crate::{clock, keyspace};

pub(crate) struct LockInfo;

impl Command for LockInfo {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.info",
        flags: c"readonly fast",
        arity: -2,
        key: Some(KeyUse::Read),
        acl: c"read fast",
        summary: c"Says who holds a lock, for how long, and who waits for it.",
        complexity: c"O(1), with WAITERS O(count)",
        args: &[ArgSpec::Key, ArgSpec::OptionalNumber { word: c"WAITERS", name: c"count" }],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [key, options @ ..] = args.all() else {
            return Reply::Nil;
        };
        let shown = match parse::count(b"WAITERS", options) {
            Ok(shown) => shown,
            Err(trouble) => return trouble,
        };
        server::with(|server| {
            let now = clock::now();
            let open = ctx.open_to_read(*key);
            let seen = keyspace::read(open.as_ref(), &server.words, *key, None);
            let name = KeyRef { db: ctx.db(), name: key.bytes() };
            let at = seen.situation(name, b"", now, None);
            let Some(mut fields) = describe(&server.table, &at.seen, now) else {
                return NOT_A_LOCK;
            };
            fields.push(("waiters", number(server.table.waiters_of(name))));
            if let Some(shown) = shown {
                fields.push(("queue", queue(server, name, shown, now)));
            }
            Reply::Map(fields)
        })
    }
}

/// What the key says; `None` if it is not a lock.
fn describe(
    table: &Table<Waiting>,
    seen: &Observed<'_>,
    now: Now,
) -> Option<Vec<(&'static str, Reply)>> {
    let (state, owner, holds, token, until) = match seen {
        Observed::NotALock { .. } => return None,
        Observed::Free { .. } => ("free", None, 0, None, None),
        Observed::Held(h) => ("held", Some(h.owner), h.holds, h.token, h.until),
    };
    Some(vec![
        ("state", Reply::Word(state)),
        ("owner", Reply::or_nil(owner, |owner| Reply::Bytes(owner.to_vec()))),
        ("holds", Reply::Number(holds)),
        ("token", Reply::or_nil(table.believe(token).map(Token::value), Reply::Number)),
        ("lease-left", Reply::or_nil(until, |until| Reply::Number(until.since(now.unix()).0))),
    ])
}

fn queue(server: &Server, key: KeyRef<'_>, shown: usize, now: Now) -> Reply {
    let waiters = server.table.queue_of(key).take(shown).map(|waiter| {
        Reply::List(vec![
            Reply::Bytes(waiter.owner.to_vec()),
            Reply::Number(now.mono.since(waiter.since).0),
            Reply::Number(waiter.client.client_id),
        ])
    });
    Reply::List(waiters.collect())
}

/// A count as a reply.
pub(super) fn number(count: usize) -> Reply {
    Reply::Number(u64::try_from(count).unwrap_or(u64::MAX))
}
