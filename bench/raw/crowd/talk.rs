//! Requests of a crowd: kvlock's commands, or Redisson's scripts and messages.

use super::line::{Line, Probe};
use super::{KEY, LEASE_MS, Member};
use crate::family::{self, LEAVE, SHARE, channel, outcome};
use crate::wire::{Reply, request};

const WRITE: &str = "\
local lock, lease, writer = KEYS[1], ARGV[1], ARGV[2]
local mode = redis.call('hget', lock, 'mode')
if mode == false then
    redis.call('hset', lock, 'mode', 'write')
    redis.call('hset', lock, writer, 1)
    redis.call('pexpire', lock, lease)
    return nil
end
if mode == 'write' and redis.call('hexists', lock, writer) == 1 then
    redis.call('hincrby', lock, writer, 1)
    redis.call('pexpire', lock, redis.call('pttl', lock) + lease)
    return nil
end
return redis.call('pttl', lock)";

const STOP_WRITING: &str = "\
local lock, channel, outcome = KEYS[1], KEYS[2], KEYS[3]
local message, lease, writer, publish, outcome_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local before = redis.call('get', outcome)
if before ~= false then
    return tonumber(before)
end
local mode = redis.call('hget', lock, 'mode')
if mode == false then
    redis.call(publish, channel, message)
    redis.call('set', outcome, 1, 'px', outcome_ms)
    return nil
end
if mode ~= 'write' or redis.call('hexists', lock, writer) == 0 then
    return nil
end
if redis.call('hincrby', lock, writer, -1) > 0 then
    redis.call('pexpire', lock, lease)
    redis.call('set', outcome, 0, 'px', outcome_ms)
    return 0
end
redis.call('hdel', lock, writer)
if redis.call('hlen', lock) == 1 then
    redis.call('del', lock)
    redis.call(publish, channel, message)
else
    redis.call('hset', lock, 'mode', 'read')
end
redis.call('set', outcome, 1, 'px', outcome_ms)
return 1";

pub(super) enum Talk {
    Native,
    Scripts { share: String, leave: String, write: String, stop_writing: String },
}

impl Talk {
    pub(super) fn new(proto: &str, line: &mut Line, probe: &mut Probe) -> Self {
        let mut load = |script| match line.call(&request(&["SCRIPT", "LOAD", script]), probe) {
            Reply::Text(sha) => String::from_utf8(sha).unwrap(),
            other @ (Reply::Nil | Reply::Integer(_) | Reply::Array(_)) => panic!("{other:?}"),
        };
        match proto {
            "kvlock" => Self::Native,
            _ => Self::Scripts {
                share: load(SHARE),
                leave: load(LEAVE),
                write: load(WRITE),
                stop_writing: load(STOP_WRITING),
            },
        }
    }

    pub(super) fn subscribes(&self) -> bool {
        matches!(self, Self::Scripts { .. })
    }

    fn sharing(&self, owner: &str) -> Vec<u8> {
        match self {
            Self::Native => request(&["LOCK.WAIT", KEY, owner, LEASE_MS, "0", "SHARED"]),
            Self::Scripts { share, .. } => family::share(share, KEY, owner, LEASE_MS),
        }
    }

    fn leaving(&self, owner: &str) -> Vec<u8> {
        match self {
            Self::Native => request(&["LOCK.RELEASE", KEY, owner, "SHARED"]),
            Self::Scripts { leave, .. } => family::leave(leave, KEY, owner),
        }
    }

    fn writing(&self, owner: &str) -> Vec<u8> {
        match self {
            Self::Native => request(&["LOCK.WAIT", KEY, owner, LEASE_MS, "0"]),
            Self::Scripts { write, .. } => request(&["EVALSHA", write, "1", KEY, LEASE_MS, owner]),
        }
    }

    fn releasing(&self, owner: &str) -> Vec<u8> {
        let Self::Scripts { stop_writing, .. } = self else {
            return request(&["LOCK.RELEASE", KEY, owner]);
        };
        let (channel, outcome) = (channel(KEY), outcome(KEY, owner));
        let keys = ["EVALSHA", stop_writing, "3", KEY, &channel, &outcome];
        request(&[keys.as_slice(), &["1", LEASE_MS, owner, "PUBLISH", "13500"]].concat())
    }

    /// Returns whether a reply is a grant.
    fn granted(&self, reply: &Reply) -> bool {
        match self {
            Self::Native => matches!(reply, Reply::Array(_)),
            Self::Scripts { .. } => matches!(reply, Reply::Nil),
        }
    }

    /// Acquires the free lock.
    pub(super) fn write(&self, writer: &mut Member, probe: &mut Probe) {
        let reply = writer.line.call(&self.writing(&writer.owner), probe);
        assert!(self.granted(&reply), "{reply:?}");
    }

    /// Makes all readers wait for the writer.
    pub(super) fn line_up(&self, readers: &mut [Member], probe: &mut Probe) {
        for reader in readers {
            self.join_queue(reader, &self.sharing(&reader.owner), probe);
        }
        probe.settle();
    }

    pub(super) fn line_up_to_write(&self, writer: &mut Member, probe: &mut Probe) {
        self.join_queue(writer, &self.writing(&writer.owner), probe);
        probe.settle();
    }

    /// Starts to wait. With pub/sub, the member tries before and after the subscription, because the lock may
    /// become free in between.
    fn join_queue(&self, member: &mut Member, command: &[u8], probe: &mut Probe) {
        let Some(news) = &mut member.news else { return member.line.send(command) };
        let first = member.line.call(command, probe);
        news.call(&request(&["SUBSCRIBE", &channel(KEY)]), probe);
        let second = member.line.call(command, probe);
        assert!(![first, second].iter().any(|reply| self.granted(reply)), "nobody is let in yet");
    }

    /// Releases the writer's lock, and returns when the last reader has its share.
    pub(super) fn release_to(
        &self,
        writer: &mut Member,
        readers: &mut [Member],
        probe: &mut Probe,
    ) {
        writer.line.send(&self.releasing(&writer.owner));
        for reader in readers.iter_mut() {
            self.hear(reader, &self.sharing(&reader.owner), probe);
        }
        for reader in readers {
            let reply = reader.line.take(probe);
            assert!(self.granted(&reply), "{reply:?}");
        }
        let released = writer.line.take(probe);
        assert!(matches!(released, Reply::Integer(_)), "{released:?}");
    }

    /// With pub/sub, waits for a message and sends the request again. Otherwise the client is already blocked
    /// in its request.
    fn hear(&self, member: &mut Member, command: &[u8], probe: &mut Probe) {
        if let Some(news) = &mut member.news {
            news.take(probe);
            member.line.send(command);
        }
    }

    /// Releases the shares of these readers, all at once.
    pub(super) fn leave(&self, readers: &mut [Member], probe: &mut Probe) {
        for reader in readers.iter_mut() {
            reader.line.send(&self.leaving(&reader.owner));
            probe.look();
        }
        for reader in readers {
            let reply = reader.line.take(probe);
            assert!(matches!(reply, Reply::Integer(0)), "{reply:?}");
        }
    }

    /// Releases the last reader's share, and returns when the writer has the lock.
    pub(super) fn leave_to(&self, last: &mut Member, writer: &mut Member, probe: &mut Probe) {
        last.line.send(&self.leaving(&last.owner));
        self.hear(writer, &self.writing(&writer.owner), probe);
        let reply = writer.line.take(probe);
        assert!(self.granted(&reply), "{reply:?}");
        let left = last.line.take(probe);
        assert!(matches!(left, Reply::Integer(_)), "{left:?}");
    }

    /// Cleans up after a release, outside the measurement.
    pub(super) fn tidy(&self, writer: &mut Member, readers: &mut [Member], probe: &mut Probe) {
        self.forget(writer, probe);
        for reader in readers {
            unsubscribe(reader, probe);
        }
    }

    pub(super) fn tidy_readers(
        &self,
        readers: &mut [Member],
        writer: &mut Member,
        probe: &mut Probe,
    ) {
        for reader in readers {
            self.forget(reader, probe);
        }
        unsubscribe(writer, probe);
    }

    fn forget(&self, member: &mut Member, probe: &mut Probe) {
        if self.subscribes() {
            member.line.call(&family::forget(KEY, &member.owner), probe);
        }
    }
}

fn unsubscribe(member: &mut Member, probe: &mut Probe) {
    if let Some(news) = &mut member.news {
        news.call(&request(&["UNSUBSCRIBE", &channel(KEY)]), probe);
    }
}
