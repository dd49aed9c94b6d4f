//! Writes a change of a lock to its key, and tells of it everyone who must know: replicas, the
//! append-only file, listeners.

use kvlock_core::{Bug, Mode, Share, Sharers, Token, UnixMillis};

use crate::config::RedissonChannel;
use crate::keyspace::Words;
use crate::redis::{Arg, Ctx, Key, KeyEventKind, Text};

/// What was at a key before a grant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Before<'a> {
    /// Nothing that would be in the way.
    Nothing,
    /// A lock that this owner held alone, and nothing else.
    One(&'a [u8]),
    /// Any number of fields, which must all go.
    Many,
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
    /// Makes `owner` the one holder of the lock.
    pub(crate) fn grant(
        &self,
        key: Key<'_>,
        before: Before<'_>,
        owner: Arg<'_>,
        token: Token,
        until: UnixMillis,
    ) {
        let (one, field) = (self.words.one.lend(), self.words.token_field.lend());
        let token = stored(token);
        if let Before::Many = before {
            key.unlink();
        }
        key.set_two((owner, one), (field, token.lend()));
        if let Before::One(before) = before
            && before != owner.bytes()
        {
            key.unset(Text::new(before).lend());
        }
        key.set_expires(until.0);
        drop(key);
        if !matches!(before, Before::Nothing) {
            self.tell_deletion();
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
        let token = token.map(stored);
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
    pub(crate) fn free(&self, key: Key<'_>, before: Before<'_>) {
        match before {
            // Thousands may have shared it: nobody waits until that memory is free.
            Before::Many => key.unlink(),
            Before::One(_) | Before::Nothing => key.delete(),
        }
        drop(key);
        self.tell_deletion();
    }

    /// Sets when the key ends, and nothing else.
    pub(crate) fn set_end(&self, key: Key<'_>, until: UnixMillis) {
        key.set_expires(until.0);
        drop(key);
        self.tell_expiry(until);
    }

    /// Lets the caller, `own`, and others share the lock.
    pub(crate) fn share<P>(
        &self,
        key: Key<'_>,
        before: Before<'_>,
        own: Arg<'_>,
        sharers: &Sharers<P>,
    ) {
        let replaces = sharers.begins && !matches!(before, Before::Nothing);
        if replaces {
            key.unlink();
        }
        let mut fields = Vec::with_capacity(sharers.joined.len() + 3);
        if sharers.begins {
            let (field, mode) = (self.words.mode_field.lend(), self.words.shared.lend());
            fields.push((Text::new(field.bytes()), Text::new(mode.bytes())));
        }
        if let Some(token) = sharers.token {
            let field = self.words.token_field.lend();
            fields.push((Text::new(field.bytes()), stored(token)));
        }
        if let Some(share) = sharers.own {
            fields.push((Text::new(own.bytes()), Text::new(share.text().as_bytes())));
        }
        for joined in &sharers.joined {
            let share = Share { holds: 1, until: joined.until };
            fields.push((Text::new(&joined.owner), Text::new(share.text().as_bytes())));
        }
        let mut args = Vec::with_capacity(2 * fields.len() + 1);
        args.push(self.key);
        for (field, value) in &fields {
            key.set(field.lend(), value.lend());
            args.extend([field.lend(), value.lend()]);
        }
        if let Some(until) = sharers.until {
            key.set_expires(until.0);
        }
        drop(key);
        if replaces {
            self.tell_deletion();
        }
        self.ctx.replicate(c"HSET", &args);
        self.ctx.notify(KeyEventKind::Hash, c"hset", self.key);
        if let Some(until) = sharers.until {
            self.tell_expiry(until);
        }
    }

    /// Takes fields out of a hash that keeps others.
    pub(crate) fn remove<'f>(&self, key: &Key<'_>, fields: impl IntoIterator<Item = Arg<'f>>) {
        let mut args = vec![self.key];
        for field in fields {
            key.unset(field);
            args.push(field);
        }
        if args.len() > 1 {
            self.ctx.replicate(c"HDEL", &args);
            self.ctx.notify(KeyEventKind::Hash, c"hdel", self.key);
        }
    }

    /// Writes how many shared holds the one holder has beside.
    pub(crate) fn beside(
        &self,
        key: Key<'_>,
        holds: u64,
        token: Option<Token>,
        until: Option<UnixMillis>,
    ) {
        let (field, token_field) = (self.words.mode_field.lend(), self.words.token_field.lend());
        let mode = (holds > 0).then(|| Text::new(Mode::Exclusive(holds).text().as_bytes()));
        let token = token.map(stored);
        let mut args = vec![self.key];
        match &mode {
            Some(mode) => args.extend([field, mode.lend()]),
            None => self.remove(&key, [field]),
        }
        args.extend(token.iter().flat_map(|token| [token_field, token.lend()]));
        if let Some(mode) = &mode {
            key.set(field, mode.lend());
        }
        if let Some(token) = &token {
            key.set(token_field, token.lend());
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

    fn tell_deletion(&self) {
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

fn stored(token: Token) -> Text {
    Text::new(token.text().as_bytes())
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
