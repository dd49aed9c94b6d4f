//! `LOCK.LIST [COUNT count]`

use kvlock_core::{Observed, arguments};

use super::info::number;
use super::{Answer, Operation};
use crate::clock;
use crate::keyspace::{self, Depth};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply, Text};
use crate::server::Server;

/// How many locks are shown unless the caller says so.
const SHOWN: usize = 10;

pub(crate) struct LockList;

impl Operation for LockList {
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

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let shown = arguments::count(b"COUNT", args)?.unwrap_or(SHOWN);
        let now = clock::now();
        let locks = server.table.most_waited_for(ctx.db(), shown);
        let entries = locks.iter().map(|lock| {
            let name = Text::new(&lock.key.name);
            let open = ctx.open_to_read(name.lend());
            let seen = keyspace::read(open.as_ref(), &server.words, name.lend(), None, Depth::Full);
            let is_held = matches!(seen, Observed::Held(_));
            let holder = open.as_ref().filter(|_| is_held).and_then(keyspace::holder);
            let owner = Reply::or_nil(holder, |(owner, _)| Reply::Bytes(owner));
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
        Ok(Reply::List(entries.collect()))
    }
}
