//! `SEM.INFO key [WAITERS count] [HOLDERS count]`

use kvlock_core::{KeyRef, Semaphore, arguments};

use crate::commands::info::{number, quarantine, queue};
use crate::commands::{Answer, NOT_A_LOCK, Operation, UNSET};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, KeyUse, Reply};
use crate::server::Server;
use crate::{clock, semaphore};

pub(crate) struct SemInfo;

impl Operation for SemInfo {
    const SPEC: CommandSpec = CommandSpec {
        name: c"sem.info",
        flags: c"readonly fast",
        arity: -2,
        key: Some(KeyUse::Read),
        acl: c"read fast",
        summary: c"Says how many permits a semaphore has, who holds them and who waits.",
        complexity: c"O(1), with WAITERS or HOLDERS O(count), and O(1) for each dead holder",
        args: &[
            ArgSpec::Key,
            ArgSpec::OptionalNumber { word: c"WAITERS", name: c"count" },
            ArgSpec::OptionalNumber { word: c"HOLDERS", name: c"count" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, options @ ..] = args else { return Ok(Reply::Nil) };
        let (waiters_shown, holders_shown) = arguments::counts(b"WAITERS", b"HOLDERS", options)?;
        let now = clock::now();
        let open = ctx.open_to_read(*key);
        let name = KeyRef::semaphore(ctx.db(), key.bytes());
        let (limit, used) = match semaphore::read(open.as_ref(), &server.words, *key, None).0 {
            Ok(counts) => counts,
            Err(Semaphore::Unset) => return Err(UNSET),
            Err(Semaphore::Set(_) | Semaphore::NotASemaphore { .. }) => return Err(NOT_A_LOCK),
        };
        // All fields but the one with the counts.
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
