//! Writes a change of a lock to its open key, and announces a free lock to Redisson's waiters.

use kvlock_core::{Mode, Share, Sharers, Token, UnixMillis, stored_value};

use crate::config::RedissonChannel;
use crate::keyspace::Strings;
use crate::redis::{Arg, Ctx, Key, KeyKind, Text};
use crate::server::Server;

impl Strings {
    /// Makes `owner` the only holder of the lock, and replaces all other content of the key. Pass a previous
    /// holder as `before` only if the key has no fields except this previous holder and the token. Then only
    /// the field of `before` is removed.
    pub(crate) fn grant(
        &self,
        key: &Key<'_>,
        (owner, before): (Arg<'_>, Option<Arg<'_>>),
        token: Token,
        until: UnixMillis,
        value: Option<&[u8]>,
    ) {
        let token = stored(token);
        let [owner, token] = [(owner, self.one.lend()), (self.token_field.lend(), token.lend())];
        let (until, strings) = (until.0, [self.replace.lend(), self.abs_ttl.lend()]);
        match (value, before) {
            (None, None) => key.replace([owner, token], None, until, strings),
            (None, before) => key.replace([token, owner], before, until, strings),
            (Some(value), before) => {
                let value = Text::new(&stored_value(value));
                let value = (self.value_field.lend(), value.lend());
                key.replace([token, owner, value], before, until, strings);
            }
        }
    }

    /// Writes the new `VALUE` of the holder. An empty value removes the field, and `None` changes nothing.
    pub(crate) fn write_value(&self, key: &Key<'_>, value: Option<&[u8]>) {
        let field = self.value_field.lend();
        match value {
            None => {}
            Some([]) if key.has(field) => key.unset(std::iter::once(field)),
            Some([]) => {}
            Some(value) => key.set(&[(field, Text::new(&stored_value(value)).lend())]),
        }
    }

    /// Updates an exclusively held lock. Each of `value`, `token` and `until` is optional. Stores `value` in
    /// `field`, `token` in the field of the token, and `until` as the expiry time of the key.
    pub(crate) fn update(
        &self,
        key: &Key<'_>,
        (field, value): (Arg<'_>, Option<&Text>),
        token: Option<Token>,
        until: Option<UnixMillis>,
    ) {
        let token = token.map(stored);
        let value = value.map(|value| (field, value.lend()));
        let token = token.as_ref().map(|token| (self.token_field.lend(), token.lend()));
        key.set(&Vec::from_iter(value.into_iter().chain(token)));
        if let Some(until) = until {
            key.set_expires(until.0);
        }
    }

    /// Writes the share of the requester `own`, and the shares of the waiters that joined, to a shared lock.
    pub(crate) fn share<P>(&self, key: &Key<'_>, own: Arg<'_>, sharers: &Sharers<P>) {
        if sharers.begins && key.kind() != KeyKind::Empty {
            key.delete();
        }
        let token = sharers.token.map(stored);
        let share = sharers.own.map(written);
        let joined = sharers.joined.iter().map(|joined| {
            let share = Share { holds: 1, until: joined.until };
            (Text::new(&joined.owner), written(share))
        });
        let joined: Vec<_> = joined.collect();
        let mode = sharers.begins.then(|| (self.mode_field.lend(), self.shared.lend()));
        let token = token.as_ref().map(|token| (self.token_field.lend(), token.lend()));
        let own = share.as_ref().map(|share| (own, share.lend()));
        let joined = joined.iter().map(|(owner, share)| (owner.lend(), share.lend()));
        key.set(&Vec::from_iter(mode.into_iter().chain(token).chain(own).chain(joined)));
        if let Some(until) = sharers.until {
            key.set_expires(until.0);
        }
    }

    /// Writes the number of shared holds of the exclusive holder; zero removes the field. Also writes the
    /// token and the expiry time, if they are given.
    pub(crate) fn write_shared_holds(
        &self,
        key: &Key<'_>,
        holds: u64,
        token: Option<Token>,
        until: Option<UnixMillis>,
    ) {
        let field = self.mode_field.lend();
        let mode = (holds > 0).then(|| Text::new(Mode::Exclusive(holds).text().as_bytes()));
        if mode.is_none() {
            key.unset([field].into_iter());
        }
        self.update(key, (field, mode.as_ref()), token, until);
    }
}

fn stored(token: Token) -> Text {
    Text::new(token.text().as_bytes())
}

/// Returns the stored form of a share.
pub(crate) fn written(share: Share) -> Text {
    Text::new(share.text().as_bytes())
}

impl Server {
    /// Announces to Redisson's waiters that a lock is free, or that its lease ends sooner than before. If
    /// `kvlock.redisson-channel` is `both`, the replicas get the message too: this function relays it, or in
    /// a cluster the server itself does.
    ///
    /// Returns the number of subscribers at this server. Each process of Redisson has one subscription for
    /// all its threads.
    pub(crate) fn announce(&mut self, ctx: &Ctx<'_>, key: Arg<'_>) -> u64 {
        let (how, in_cluster) = (self.config.redisson_channel, self.in_cluster);
        if how == RedissonChannel::No {
            return 0;
        }
        redisson_channel(key.bytes(), &mut self.channel);
        let channel = Text::new(&self.channel);
        let (channel, message) = (channel.lend(), self.strings.message.lend());
        let both = how == RedissonChannel::Both;
        let mut listeners = 0_u64;
        if both || !in_cluster {
            listeners += u64::from(ctx.publish(channel, message).unsigned_abs());
        }
        if both || in_cluster {
            listeners += u64::from(ctx.publish_in_shard(channel, message).unsigned_abs());
        }
        if both && self.has_replicas && !in_cluster {
            ctx.relay(c"PUBLISH", channel, message);
            ctx.relay(c"SPUBLISH", channel, message);
        }
        listeners
    }
}

/// Capacity, in bytes, to which a larger buffer for channel names is shrunk before its next use.
const KEPT: usize = 1_024;

/// Writes the name of the channel on which Redisson waits for a lock. A key that contains `{` is used as it
/// is. Any other key becomes the hash tag of the channel, so that lock and channel are in the same slot.
fn redisson_channel(key: &[u8], channel: &mut Vec<u8>) {
    let tagged = key.contains(&b'{');
    let (before, after): (&[u8], &[u8]) = if tagged { (b":", b"") } else { (b":{", b"}") };
    channel.clear();
    channel.shrink_to(KEPT);
    for part in [b"redisson_lock__channel", before, key, after] {
        channel.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_has_one_pair_of_braces() {
        let mut channel = Vec::new();
        redisson_channel(b"k", &mut channel);
        assert_eq!(channel, b"redisson_lock__channel:{k}");
        redisson_channel(b"a{k}b", &mut channel);
        assert_eq!(channel, b"redisson_lock__channel:a{k}b");
    }
}
