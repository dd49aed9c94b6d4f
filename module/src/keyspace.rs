//! A lock in the keyspace: reads what a key says, writes a change to it, and tells of the change
//! everyone who must know: replicas, the append-only file, listeners.

use kvlock_core::{
    Bug, Holding, KeyRef, Now, Observed, RELEASE_MESSAGE, Situation, TOKEN_FIELD, Token, UnixMillis,
};

use crate::config::RedissonChannel;
use crate::floor::FLOOR_PREFIX;
use crate::redis::{Arg, Ctx, Key, KeyEventKind, KeyKind, Text};

/// Strings that are used again and again.
#[derive(Debug)]
pub(crate) struct Words {
    token_field: Text,
    one: Text,
    message: Text,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            token_field: Text::new(TOKEN_FIELD),
            one: Text::new(b"1"),
            message: Text::new(RELEASE_MESSAGE),
        }
    }
}

/// What a key said when it was read.
#[derive(Debug)]
pub(crate) enum Seen {
    Free {
        stored: Option<Token>,
    },
    /// The owner that was asked for holds it.
    Own {
        holds: u64,
        token: Option<Token>,
        until: Option<UnixMillis>,
    },
    Other {
        owner: Vec<u8>,
        holds: u64,
        token: Option<Token>,
        until: Option<UnixMillis>,
    },
    NotALock {
        until: Option<UnixMillis>,
    },
}

impl Seen {
    /// The same for the lock table. `asked` is the owner that was asked for.
    fn observed<'a>(&'a self, asked: &'a [u8]) -> Observed<'a> {
        match self {
            Self::Free { stored } => Observed::Free { stored: *stored },
            Self::Own { holds, token, until } => Observed::Held(Holding {
                owner: asked,
                holds: *holds,
                token: *token,
                until: *until,
            }),
            Self::Other { owner, holds, token, until } => {
                Observed::Held(Holding { owner, holds: *holds, token: *token, until: *until })
            }
            Self::NotALock { until } => Observed::NotALock { until: *until },
        }
    }

    /// Everything the lock table wants to know.
    pub(crate) fn situation<'a>(
        &'a self,
        key: KeyRef<'a>,
        asked: &'a [u8],
        now: Now,
        floor: Option<u64>,
    ) -> Situation<'a> {
        Situation { key, seen: self.observed(asked), now, floor }
    }
}

/// A hash with more fields than this is no lock; it is not read any further.
const FIELDS_MAX: usize = 3;

/// More digits than a number of 64 bits has.
const NUMBER_MAX: usize = 21;

/// Reads a lock from its key. If its holder is `asked`, that takes no copy of anything.
pub(crate) fn read(
    key: Option<&Key<'_>>,
    words: &Words,
    name: Arg<'_>,
    asked: Option<Arg<'_>>,
) -> Seen {
    if name.bytes().starts_with(FLOOR_PREFIX) {
        return Seen::NotALock { until: None };
    }
    let Some(key) = key else { return Seen::Free { stored: None } };
    match key.kind() {
        KeyKind::Empty => Seen::Free { stored: None },
        KeyKind::Hash if key.fields() <= FIELDS_MAX => {
            let until = key.expires().map(UnixMillis);
            let own = asked.and_then(|asked| read_own(key, words, asked, until));
            own.unwrap_or_else(|| read_fields(key, until))
        }
        KeyKind::Hash | KeyKind::String | KeyKind::Other => {
            Seen::NotALock { until: key.expires().map(UnixMillis) }
        }
    }
}

/// Reads the lock as one that `asked` holds; `None` if that is not all there is to it.
fn read_own(
    key: &Key<'_>,
    words: &Words,
    asked: Arg<'_>,
    until: Option<UnixMillis>,
) -> Option<Seen> {
    let [holds, token] = key.get_two(asked, words.token_field.lend());
    let holds = Observed::read_holds(holds?.lend().bytes())?;
    let alone = key.fields() == 1 + usize::from(token.is_some());
    let token = token.and_then(|token| Observed::read_token(token.lend().bytes()));
    alone.then_some(Seen::Own { holds, token, until })
}

fn read_fields(key: &Key<'_>, until: Option<UnixMillis>) -> Seen {
    let mut fields = Vec::with_capacity(FIELDS_MAX);
    key.for_each(&mut |field, value| {
        // No number is longer; of anything that is, the beginning is enough to see it.
        let value = value.get(..NUMBER_MAX).unwrap_or(value);
        fields.push((field.to_vec(), value.to_vec()));
    });
    let fields = fields.iter().map(|(field, value)| (field.as_slice(), value.as_slice()));
    match Observed::from_fields(fields, until) {
        Observed::Free { stored } => Seen::Free { stored },
        Observed::NotALock { until } => Seen::NotALock { until },
        Observed::Held(Holding { owner, holds, token, until }) => {
            Seen::Other { owner: owner.to_vec(), holds, token, until }
        }
    }
}

/// To whom a lock that became free is announced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Audience {
    pub(crate) how: RedissonChannel,
    pub(crate) in_cluster: bool,
    pub(crate) has_replicas: bool,
}

/// Writes changes of one lock and tells of them. All that one callback writes is one transaction
/// for the replicas.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) ctx: &'a Ctx<'a>,
    pub(crate) words: &'a Words,
    pub(crate) key: Arg<'a>,
}

impl Writer<'_> {
    /// Makes `owner` the one holder of the lock, which nobody holds or `before` does.
    pub(crate) fn grant(
        &self,
        key: Key<'_>,
        before: Option<&[u8]>,
        owner: Arg<'_>,
        token: Token,
        until: UnixMillis,
    ) {
        let (one, field) = (self.words.one.lend(), self.words.token_field.lend());
        let token = Text::number(token.value());
        key.set_two((owner, one), (field, token.lend()));
        if let Some(before) = before.filter(|before| *before != owner.bytes()) {
            key.unset(Text::new(before).lend());
        }
        key.set_expires(until.0);
        drop(key);
        if before.is_some() {
            self.ctx.replicate(c"DEL", &[self.key]);
            self.ctx.notify(KeyEventKind::Generic, c"del", self.key);
        }
        self.ctx.replicate(c"HSET", &[self.key, owner, one, field, token.lend()]);
        self.ctx.notify(KeyEventKind::Hash, c"hset", self.key);
        self.tell_expiry(until);
    }

    /// Changes what is given of the holder's fields and lease.
    pub(crate) fn update(
        &self,
        key: Key<'_>,
        owner: Arg<'_>,
        holds: Option<u64>,
        token: Option<Token>,
        until: Option<UnixMillis>,
    ) {
        let holds = holds.map(Text::number);
        let token = token.map(|token| Text::number(token.value()));
        let mut args = vec![self.key];
        if let Some(holds) = &holds {
            key.set(owner, holds.lend());
            args.extend([owner, holds.lend()]);
        }
        if let Some(token) = &token {
            let field = self.words.token_field.lend();
            key.set(field, token.lend());
            args.extend([field, token.lend()]);
        }
        if let Some(until) = until {
            key.set_expires(until.0);
        }
        drop(key);
        if args.len() > 1 {
            self.ctx.replicate(c"HSET", &args);
            self.ctx.notify(KeyEventKind::Hash, c"hset", self.key);
        }
        if let Some(until) = until {
            self.tell_expiry(until);
        }
    }

    /// Deletes the key.
    pub(crate) fn free(&self, key: Key<'_>) {
        key.delete();
        drop(key);
        self.ctx.replicate(c"DEL", &[self.key]);
        self.ctx.notify(KeyEventKind::Generic, c"del", self.key);
    }

    /// Tells those who wait with Redisson that the lock is free, on the replicas too. In a cluster
    /// the server does that itself.
    pub(crate) fn announce(&self, to: Audience) {
        if to.how == RedissonChannel::No || Bug::PublishMissing.is_planted() {
            return;
        }
        let channel = Text::new(&redisson_channel(self.key.bytes()));
        let (channel, message) = (channel.lend(), self.words.message.lend());
        let both = to.how == RedissonChannel::Both;
        let relays = to.has_replicas && !to.in_cluster && !Bug::PublishNotRelayed.is_planted();
        if both || !to.in_cluster {
            self.ctx.publish(channel, message);
            if relays {
                self.ctx.relay(c"PUBLISH", channel, message);
            }
        }
        if both || to.in_cluster {
            self.ctx.publish_in_shard(channel, message);
            if relays {
                self.ctx.relay(c"SPUBLISH", channel, message);
            }
        }
    }

    fn tell_expiry(&self, until: UnixMillis) {
        if Bug::LeaseNotReplicated.is_planted() {
            return;
        }
        self.ctx.replicate_number(c"PEXPIREAT", self.key, until.0);
        self.ctx.notify(KeyEventKind::Generic, c"expire", self.key);
    }
}

/// The channel on which Redisson waits for a lock. A name with a hash tag keeps it; any other
/// becomes one, so that lock and channel are in the same slot.
fn redisson_channel(key: &[u8]) -> Vec<u8> {
    let tagged = key.contains(&b'{');
    let (before, after): (&[u8], &[u8]) = if tagged { (b":", b"") } else { (b":{", b"}") };
    [b"redisson_lock__channel", before, key, after].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_has_one_pair_of_braces() {
        assert_eq!(redisson_channel(b"k"), b"redisson_lock__channel:{k}");
        assert_eq!(redisson_channel(b"a{k}b"), b"redisson_lock__channel:a{k}b");
    }
}
