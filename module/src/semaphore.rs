//! A semaphore in the keyspace: reads what a key says, and writes changes.

use kvlock_core::{KeyRef, Now, Permits, Semaphore, SemaphoreAt, Share, UnixMillis};

use crate::clock;
use crate::floor::FLOOR_PREFIX;
use crate::keyspace::Words;
use crate::redis::{Arg, Ctx, Key, KeyEventKind, KeyKind, Text};

/// A semaphore that is open, and what was read of it.
pub(crate) struct Open<'a> {
    pub(crate) ctx: &'a Ctx<'a>,
    pub(crate) name: Arg<'a>,
    pub(crate) at: KeyRef<'a>,
    pub(crate) now: Now,
    pub(crate) key: Option<Key<'a>>,
    /// How many permits there are, and how many are held; or what else is there.
    pub(crate) counts: Result<(u64, u64), Semaphore>,
    /// What the owner that was asked for has, dead or alive.
    pub(crate) own: Option<Share>,
    pub(crate) earliest: Option<UnixMillis>,
}

impl<'a> Open<'a> {
    pub(crate) fn read(
        ctx: &'a Ctx<'a>,
        words: &Words,
        at: KeyRef<'a>,
        name: Arg<'a>,
        asked: Option<Arg<'_>>,
        key: Option<Key<'a>>,
    ) -> Self {
        let now = clock::now();
        let (counts, own) = read(key.as_ref(), words, name, asked);
        Self { ctx, name, at, now, key, counts, own, earliest: None }
    }

    pub(crate) fn situation(&self) -> SemaphoreAt<'a> {
        let seen = match self.counts {
            Err(other) => other,
            Ok((limit, used)) => {
                let live = |share: &Share| share.is_live(self.now.unix());
                // Who died and comes again has nothing, and what it had is free.
                let lost = self.own.filter(|own| !live(own)).map_or(0, |own| own.holds);
                let used = used.saturating_sub(lost);
                let (own, earliest) = (self.own.filter(live), self.earliest);
                Semaphore::Set(Permits { limit, used, own, earliest })
            }
        };
        SemaphoreAt { key: self.at, seen, now: self.now }
    }

    pub(crate) fn write(
        &mut self,
        words: &Words,
        fields: &[(Text, Option<Text>)],
        counts: (u64, u64),
    ) {
        let Some(key) = &self.key else { return };
        let counted = Text::new(Permits::text(counts.0, counts.1).as_bytes());
        let mode_field = words.mode_field.lend();
        let mut args = vec![self.name, mode_field, counted.lend()];
        let mut gone = vec![self.name];
        key.set(mode_field, counted.lend());
        for (owner, share) in fields {
            if let Some(share) = share {
                key.set(owner.lend(), share.lend());
                args.extend([owner.lend(), share.lend()]);
            } else {
                key.unset(owner.lend());
                gone.push(owner.lend());
            }
        }
        if gone.len() > 1 {
            self.ctx.replicate(c"HDEL", &gone);
            self.ctx.notify(KeyEventKind::Hash, c"hdel", self.name);
        }
        self.ctx.replicate(c"HSET", &args);
        self.ctx.notify(KeyEventKind::Hash, c"hset", self.name);
        self.counts = Ok(counts);
    }
}

/// Reads how many permits there are and are held, and what one owner has.
pub(crate) fn read(
    key: Option<&Key<'_>>,
    words: &Words,
    name: Arg<'_>,
    asked: Option<Arg<'_>>,
) -> (Result<(u64, u64), Semaphore>, Option<Share>) {
    if name.bytes().starts_with(FLOOR_PREFIX) {
        return (Err(Semaphore::NotASemaphore { until: None }), None);
    }
    let Some(key) = key.filter(|key| key.kind() != KeyKind::Empty) else {
        return (Err(Semaphore::Unset), None);
    };
    let other = Semaphore::NotASemaphore { until: key.expires().map(UnixMillis) };
    if key.kind() != KeyKind::Hash {
        return (Err(other), None);
    }
    let mode_field = words.mode_field.lend();
    let [mode, own] = key.get_two(mode_field, asked.unwrap_or(mode_field));
    let Some(counts) = mode.and_then(|mode| Permits::read(mode.lend().bytes())) else {
        return (Err(other), None);
    };
    let own = own.filter(|_| asked.is_some());
    let share = own.as_ref().and_then(|own| Share::read(own.lend().bytes()));
    if own.is_some() && share.is_none() {
        return (Err(other), None);
    }
    (Ok(counts), share)
}
