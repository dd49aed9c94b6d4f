//! The protocol of Redisson's locks, with scripts and pub/sub, as a process with one waiter uses it. The
//! scripts are rewritten, with the same effect.
//!
//! - An acquire is a script: it writes the hash, or returns the rest of the lease.
//! - A client that was refused subscribes to the lock's channel, tries again (the lock may have become free
//!   in between), and then tries once for each message and at the expected end of the lease.
//! - A release is a script that deletes the hash, publishes a message, and stores its outcome under a
//!   separate key for a repeated call; a `DEL` removes that key.

use crate::Connect;
use crate::floors::load;
use crate::native::owner;
use crate::wire::{Reply, Wire};
use driver::{Args, Session};
use std::time::Duration;

pub(crate) const TAKE: &str = "\
local lock, lease, owner = KEYS[1], ARGV[1], ARGV[2]
local free = redis.call('exists', lock) == 0
if free or redis.call('hexists', lock, owner) == 1 then
    redis.call('hincrby', lock, owner, 1)
    redis.call('pexpire', lock, lease)
    return nil
end
return redis.call('pttl', lock)";

pub(crate) const GIVE_BACK: &str = "\
local lock, channel, outcome = KEYS[1], KEYS[2], KEYS[3]
local message, lease, owner, publish, outcome_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local before = redis.call('get', outcome)
if before ~= false then
    return tonumber(before)
end
if redis.call('hexists', lock, owner) == 0 then
    return nil
end
if redis.call('hincrby', lock, owner, -1) > 0 then
    redis.call('pexpire', lock, lease)
    redis.call('set', outcome, 0, 'px', outcome_ms)
    return 0
end
redis.call('del', lock)
redis.call(publish, channel, message)
redis.call('set', outcome, 1, 'px', outcome_ms)
return 1";

pub(crate) struct Lua {
    wire: Wire,
    subscriber: Wire,
    task: usize,
    acquired: u64,
    lease_ms: String,
    take: String,
    give_back: String,
}

impl Connect for Lua {
    async fn connect(args: &Args, task: usize) -> Self {
        let url = args.text("url");
        let (mut wire, subscriber) = (Wire::connect(url).await, Wire::connect(url).await);
        let (take, give_back) = (load(&mut wire, TAKE).await, load(&mut wire, GIVE_BACK).await);
        let lease_ms = args.text("lease_ms").to_owned();
        Self { wire, subscriber, task, acquired: 0, lease_ms, take, give_back }
    }
}

impl Session for Lua {
    type Held = [String; 2];

    async fn acquire(&mut self, key: &str) -> Self::Held {
        self.acquired += 1;
        let owner = owner(self.task, self.acquired);
        if self.attempt(key, &owner).await.is_some() {
            self.wait(key, &owner).await;
        }
        [key.to_owned(), owner]
    }

    async fn release(&mut self, [key, owner]: Self::Held) {
        let (channel, outcome) = (channel(&key), outcome(&key, &owner));
        let eval = give_back(&self.give_back, &key, &channel, &outcome, &self.lease_ms, &owner);
        let reply = self.wire.call(&eval.map(str::as_bytes)).await;
        assert!(matches!(reply, Reply::Integer(1)), "{reply:?}");
        self.wire.call(&[b"DEL", outcome.as_bytes()]).await;
    }

    fn abandon(&mut self, _: Self::Held) {}
}

impl Lua {
    /// Tries once. Returns the rest of the lease if another owner has the lock.
    async fn attempt(&mut self, key: &str, owner: &str) -> Option<Duration> {
        let eval = ["EVALSHA", &self.take, "1", key, &self.lease_ms, owner].map(str::as_bytes);
        match self.wire.call(&eval).await {
            Reply::Nil => None,
            Reply::Integer(left) => Some(Duration::from_millis(left.try_into().unwrap_or(1))),
            other @ (Reply::Text(_) | Reply::Array(_)) => panic!("{other:?}"),
        }
    }

    async fn wait(&mut self, key: &str, owner: &str) {
        let channel = channel(key);
        self.subscriber.call(&[b"SUBSCRIBE", channel.as_bytes()]).await;
        while let Some(left) = self.attempt(key, owner).await {
            // After a message, and after the end of the lease, the client tries again.
            let _ended = tokio::time::timeout(left, self.subscriber.message()).await;
        }
        let unsubscribe = crate::wire::encode(&[b"UNSUBSCRIBE", channel.as_bytes()]);
        self.subscriber.send(&unsubscribe).await;
        self.subscriber.reply_between_messages().await;
        self.subscriber.forget_messages();
    }
}

pub(crate) fn channel(key: &str) -> String {
    format!("redisson_lock__channel:{{{key}}}")
}

pub(crate) fn outcome(key: &str, owner: &str) -> String {
    format!("redisson_unlock_latch:{{{key}}}:{owner}")
}

pub(crate) fn give_back<'a>(
    sha: &'a str,
    key: &'a str,
    channel: &'a str,
    outcome: &'a str,
    lease_ms: &'a str,
    owner: &'a str,
) -> [&'a str; 11] {
    ["EVALSHA", sha, "3", key, channel, outcome, "0", lease_ms, owner, "PUBLISH", "13500"]
}
