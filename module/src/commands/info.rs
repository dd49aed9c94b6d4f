//! `LOCK.INFO key [WAITERS count] [HOLDERS count]`

use std::collections::BTreeMap;

use kvlock_core::arguments::Options;
use kvlock_core::{
    Holding, KeyRef, LockKey, Now, Observed, Share, Sharing, Token, UnixMillis, WaiterView,
    arguments,
};

use super::operation::{Answer, Operation};
use crate::keyspace::Depth;
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Key, Reply, Text};
use crate::replies::NOT_A_LOCK;
use crate::server::Server;
use crate::waiting::Waiting;
use crate::{keyspace, sessions};

/// Arguments of `LOCK.INFO` and `SEM.INFO`: a key, and how many of its waiters and holders to list.
pub(super) const SHOWS: &[ArgSpec] = &[
    ArgSpec::Key,
    ArgSpec::OptionalNumber { word: c"WAITERS", name: c"count" },
    ArgSpec::OptionalNumber { word: c"HOLDERS", name: c"count" },
];

pub(crate) struct LockInfo;

impl Operation for LockInfo {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.info",
        flags: c"readonly fast",
        summary: c"Returns the holder of a lock, the rest of its lease, and its waiters.",
        complexity: c"O(1), with WAITERS or HOLDERS O(count), and O(1) for each expired holder",
        args: SHOWS,
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [key, options @ ..] = args else { return Ok(Reply::Nil) };
        let (waiters_shown, holders_shown) = arguments::shown(Options::split(options))?;
        let now = server.now();
        let name = KeyRef::lock(ctx.db(), key.bytes());
        let open = ctx.open_to_read(*key);
        let shown = holders_shown.unwrap_or(1);
        let Some(mut held) = Held::read(server, open.as_ref(), name, shown, now.unix()) else {
            return Err(NOT_A_LOCK);
        };
        let mut fields = held.describe(server, now);
        fields.push(("waiters", number(server.table.waiters_of(name))));
        fields.extend(held.describe_mode());
        fields.extend(held.value.take().map(|value| ("value", Reply::Bytes(value))));
        let observers = server.table.observers_of(name);
        fields.extend((observers > 0).then(|| ("observers", number(observers))));
        fields.extend(quarantine(server, now));
        fields.extend(held.bound(server, name));
        if let Some(shown) = waiters_shown {
            fields.push(("queue", queue_with_sets(server, ctx, name, shown, now)));
        }
        if holders_shown.is_some() {
            fields.push(("held-by", held.list(now)));
        }
        Ok(Reply::Map(fields))
    }
}

/// State of a lock, as read for the reply.
struct Held {
    /// Exclusive owner, with the numbers of its exclusive and its shared holds.
    alone: Option<(Vec<u8>, u64, u64)>,
    /// The `VALUE` of the exclusive owner.
    value: Option<Vec<u8>>,
    /// Number of sharers, including expired ones that were not removed yet.
    sharers: usize,
    /// Shares of some of the sharers that are alive.
    living: BTreeMap<Box<[u8]>, Share>,
    token: Option<Token>,
    until: Option<UnixMillis>,
}

impl Held {
    /// Reads the lock and at most `shown` of its sharers. `None` if the key is not a lock.
    fn read(
        server: &mut Server,
        open: Option<&Key<'_>>,
        at: KeyRef<'_>,
        shown: usize,
        now: UnixMillis,
    ) -> Option<Self> {
        let living = BTreeMap::new();
        let free = Self { alone: None, value: None, sharers: 0, living, token: None, until: None };
        Some(match keyspace::read(open, &server.strings, at.name, None, Depth::Full) {
            Observed::NotALock { .. } => return None,
            Observed::Free { .. } => free,
            Observed::Held(Holding { holds, shared, token, until, .. }) => {
                let (owner, value) = open.and_then(keyspace::holder)?;
                Self { alone: Some((owner, holds, shared)), value, token, until, ..free }
            }
            Observed::Shared(Sharing { token, until, holders, .. }) => {
                let listed = server.holders.list(at, open?, now, shown);
                if listed.has_others {
                    return None;
                }
                // An incomplete list does not prove that all sharers have expired.
                if listed.living.is_empty() && listed.is_all {
                    free
                } else {
                    Self { sharers: holders, living: listed.living, token, until, ..free }
                }
            }
        })
    }

    fn describe(&self, server: &Server, now: Now) -> Vec<(&'static str, Reply)> {
        let is_free = self.alone.is_none() && self.sharers == 0;
        let holds = self.alone.as_ref().map_or(0, |(_, holds, _)| *holds);
        let owner = self.alone.as_ref().map(|(owner, ..)| owner.clone());
        let token = server.table.believe(self.token).map(Token::value);
        vec![
            ("state", Reply::Word(if is_free { "free" } else { "held" })),
            ("owner", Reply::or_nil(owner, Reply::Bytes)),
            ("holds", Reply::Number(holds)),
            ("token", Reply::or_nil(token, Reply::Number)),
            ("lease-left", Reply::or_nil(self.until, |until| left(until, now))),
        ]
    }

    /// Returns the session that the exclusive owner has bound the lock to.
    fn bound(&self, server: &Server, at: KeyRef<'_>) -> Option<(&'static str, Reply)> {
        let (owner, ..) = self.alone.as_ref()?;
        let session = server.table.bound_to(at, owner, self.token)?;
        Some(("bound", sessions::short_name(session)))
    }

    fn describe_mode(&self) -> [(&'static str, Reply); 2] {
        let (mode, holders) = match (&self.alone, self.sharers) {
            (Some(_), _) => (Reply::Word("exclusive"), 1),
            (None, 0) => (Reply::Nil, 0),
            (None, sharers) => (Reply::Word("shared"), sharers),
        };
        [("mode", mode), ("holders", number(holders))]
    }

    /// Lists the owners, each with its exclusive holds, its shared holds, and the rest of its lease.
    fn list(&self, now: Now) -> Reply {
        let entry = |owner: &[u8], holds, shared, until: Option<UnixMillis>| {
            Reply::List(vec![
                Reply::Bytes(owner.to_vec()),
                Reply::Number(holds),
                Reply::Number(shared),
                Reply::or_nil(until, |until| left(until, now)),
            ])
        };
        if let Some((owner, holds, shared)) = &self.alone {
            return Reply::List(vec![entry(owner, *holds, *shared, self.until)]);
        }
        // Every lease ends at the latest when the key expires.
        let end = |until: UnixMillis| self.until.map_or(until, |end| end.min(until));
        let entries =
            self.living.iter().map(|(o, share)| entry(o, 0, share.holds, Some(end(share.until))));
        Reply::List(entries.collect())
    }
}

/// Returns the field with the remaining time of the quarantine. `None` outside a quarantine.
pub(super) fn quarantine(server: &Server, now: Now) -> Option<(&'static str, Reply)> {
    let left = server.table.quarantine_left(now)?;
    Some(("quarantine-left", Reply::Number(left.0)))
}

fn left(until: UnixMillis, now: Now) -> Reply {
    Reply::Number(until.since(now.unix()).0)
}

pub(super) fn queue(server: &Server, key: KeyRef<'_>, shown: usize, now: Now) -> Reply {
    let waiters = server.table.queue_of(key).take(shown);
    Reply::List(waiters.map(|waiter| Reply::List(entry(&waiter, now))).collect())
}

/// Lists the first waiters like [`queue`]. The entry of a waiter for several locks also has the names of its
/// keys, and of the key that prevents its grant.
fn queue_with_sets(
    server: &mut Server,
    ctx: &Ctx<'_>,
    asked: KeyRef<'_>,
    shown: usize,
    now: Now,
) -> Reply {
    let waiters = server.table.queue_of(asked).take(shown);
    let waiters: Vec<_> = waiters.map(|waiter| (entry(&waiter, now), waiter.set)).collect();
    let waiters = waiters.into_iter().map(|(mut entry, set)| {
        if let Some(set) = set {
            let keys = server.table.set_of(set).into_iter();
            let keys = keys.map(|key| named(ctx, asked, &key.key)).collect();
            let held_up = server.table.set_is_held_up_at(set);
            let held_up = Reply::or_nil(held_up, |at| named(ctx, asked, at));
            entry.extend([Reply::List(keys), held_up]);
        }
        Reply::List(entry)
    });
    Reply::List(waiters.collect())
}

/// Returns the name of a key, or nil if the caller's user may not read the key.
fn named(ctx: &Ctx<'_>, asked: KeyRef<'_>, key: &LockKey) -> Reply {
    let may = *key.name == *asked.name || ctx.may_read(Text::new(&key.name).lend());
    if may { Reply::Bytes(key.name.to_vec()) } else { Reply::Nil }
}

fn entry(waiter: &WaiterView<'_, Waiting>, now: Now) -> Vec<Reply> {
    vec![
        Reply::Bytes(waiter.owner.to_vec()),
        Reply::Number(now.mono.since(waiter.since).0),
        match (waiter.client, waiter.session) {
            (Some(client), _) => Reply::Number(client.client_id),
            (None, Some(session)) => sessions::short_name(session),
            (None, None) => Reply::Nil,
        },
    ]
}

pub(super) fn number(count: usize) -> Reply {
    Reply::Number(u64::try_from(count).unwrap_or(u64::MAX))
}
