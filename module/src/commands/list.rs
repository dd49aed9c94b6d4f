//! `LOCK.LIST [COUNT count]`, `LOCK.PROFILE [COUNT count] [RESET]`

use kvlock_core::arguments::Options;
use kvlock_core::{Cost, LockKey, Observed, arguments};

use super::info::number;
use super::operation::{Answer, Operation, SHOWN};
use crate::keyspace;
use crate::keyspace::Depth;
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply, Text};
use crate::server::Server;

pub(crate) struct LockList;

impl Operation for LockList {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.list",
        flags: c"readonly",
        summary: c"Lists the locks of the database with the most waiters.",
        complexity:
            c"O(N) where N is the number of keys with waiters or observers, in all databases",
        args: &[ArgSpec::OptionalNumber { word: c"COUNT", name: c"count" }],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let shown = arguments::count(Options::split(args), b"COUNT")?.unwrap_or(SHOWN);
        let now = server.now();
        let locks = server.table.most_waited_for(ctx.db(), shown).into_iter();
        let locks: Vec<_> =
            locks.map(|lock| (lock.key.clone(), lock.waiters, lock.since, lock.set)).collect();
        let entries = locks.into_iter().map(|(key, waiters, since, set)| {
            let name = Text::new(&key.name);
            let open = ctx.open_to_read(name.lend());
            let seen = keyspace::read(open.as_ref(), &server.strings, &key.name, None, Depth::Full);
            let is_held = matches!(seen, Observed::Held(_));
            let holder = open.as_ref().filter(|_| is_held).and_then(keyspace::holder);
            let owner = Reply::or_nil(holder, |(owner, _)| Reply::Bytes(owner));
            drop(open);
            let mut fields = vec![
                ("key", Reply::Bytes(key.name.to_vec())),
                ("owner", owner),
                ("waiters", number(waiters)),
                (
                    "longest-wait",
                    Reply::or_nil(since, |since| Reply::Number(now.mono.since(since).0)),
                ),
            ];
            let held_up = set.and_then(|set| server.table.set_is_held_up_at(set));
            let other = held_up.filter(|held_up| held_up.name != key.name);
            let other = other.map(|other| Reply::Bytes(other.name.to_vec()));
            fields.extend(other.map(|other| ("first-waits-for", other)));
            Reply::Map(fields)
        });
        Ok(Reply::List(entries.collect()))
    }
}

/// `LOCK.PROFILE [COUNT count] [RESET]`
pub(crate) struct LockProfile;

impl Operation for LockProfile {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.profile",
        flags: c"readonly",
        summary: c"Lists the locks of the database by their total waiting time.",
        complexity: c"O(1): at most 128 locks are looked at",
        args: &[
            ArgSpec::OptionalNumber { word: c"COUNT", name: c"count" },
            ArgSpec::OptionalWord { word: c"RESET", name: c"reset" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let (shown, reset) = arguments::profile(Options::split(args))?;
        let found = server.table.profile(ctx.db(), shown.unwrap_or(SHOWN));
        let entries = found.into_iter().map(|(key, cost)| entry(key, cost)).collect();
        if reset {
            server.table.reset_profile();
        }
        Ok(Reply::List(entries))
    }
}

fn entry(key: &LockKey, cost: Cost) -> Reply {
    Reply::Map(vec![
        ("key", Reply::Bytes(key.name.to_vec())),
        ("kind", Reply::Word(key.kind.word())),
        ("waited", Reply::Number(cost.waited.0)),
        ("longest-wait", Reply::Number(cost.longest.0)),
        ("hand-offs", Reply::Number(cost.hand_offs)),
        ("held", Reply::Number(cost.held_us / 1000)),
        ("missed", Reply::Number(cost.missed.0)),
    ])
}
