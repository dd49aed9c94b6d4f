//! `LOCK.LIST [COUNT count]`

use kvlock_core::Observed;

use super::info::number;
use super::parse;
use crate::keyspace::{self, Depth};
use crate::redis::{ArgSpec, Args, Command, CommandSpec, Ctx, Reply, Text};
use crate::{clock, server};

/// How many locks are shown unless the caller says so.
const SHOWN: usize = 10;

pub(crate) struct LockList;

impl Command for LockList {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.list",
        flags: c"readonly",
        arity: -1,
        key: None,
        acl: c"read slow dangerous",
        summary: c"Lists the locks of the database that most clients wait for.",
        complexity: c"O(N) where N is the number of locks that are waited for",
        args: &[ArgSpec::OptionalNumber { word: c"COUNT", name: c"count" }],
    };

    fn run(ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let shown = match parse::count(b"COUNT", args.all()) {
            Ok(shown) => shown.unwrap_or(SHOWN),
            Err(trouble) => return trouble,
        };
        server::with(|server| {
            let now = clock::now();
            let locks = server.table.most_waited_for(ctx.db(), shown);
            let entries = locks.iter().map(|lock| {
                let name = Text::new(&lock.key.name);
                let open = ctx.open_to_read(name.lend());
                let seen =
                    keyspace::read(open.as_ref(), &server.words, name.lend(), None, Depth::Full);
                let is_held = matches!(seen, Observed::Held(_));
                let holder = open.as_ref().filter(|_| is_held).and_then(keyspace::holder);
                let owner = Reply::or_nil(holder, Reply::Bytes);
                Reply::Map(vec![
                    ("key", Reply::Bytes(lock.key.name.to_vec())),
                    ("owner", owner),
                    ("waiters", number(lock.waiters)),
                    (
                        "longest-wait",
                        Reply::or_nil(lock.since, |since| Reply::Number(now.mono.since(since).0)),
                    ),
                ])
            });
            Reply::List(entries.collect())
        })
    }
}
