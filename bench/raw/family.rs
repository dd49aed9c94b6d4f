//! Scripts that do the same as the scripts of Redisson's read-write lock and semaphores, for comparison with
//! `LOCK.* … SHARED` and `SEM.*`. Also encodes the commands of one acquisition and release of a share or
//! permit.
//!
//! - Each hold of each reader is a separate key that expires. The script for a release reads the keys of all
//!   other readers, to find the longest lease.
//! - A permit with a lease is a member of a sorted set. Expired members are removed before a permit is
//!   taken.
//! - Permits without leases are a counter. Such a permit has no owner, and is lost when its holder dies.

use crate::floors::load;
use crate::wire::{Wire, request};
use std::time::{Duration, SystemTime};

/// Time for which the outcome of a release is stored for a repeated call.
const OUTCOME_MS: &str = "13500";
/// More permits than one task can use, so no task ever waits.
const PERMITS: &str = "10";

pub(crate) const SHARE: &str = "\
local lock, expiry = KEYS[1], KEYS[2]
local lease, reader, as_writer = ARGV[1], ARGV[2], ARGV[3]
local mode = redis.call('hget', lock, 'mode')
if mode == false then
    redis.call('hset', lock, 'mode', 'read')
    redis.call('hset', lock, reader, 1)
    redis.call('set', expiry .. ':1', 1)
    redis.call('pexpire', expiry .. ':1', lease)
    redis.call('pexpire', lock, lease)
    return nil
end
if mode == 'read' or (mode == 'write' and redis.call('hexists', lock, as_writer) == 1) then
    local hold = expiry .. ':' .. redis.call('hincrby', lock, reader, 1)
    redis.call('set', hold, 1)
    redis.call('pexpire', hold, lease)
    local left = redis.call('pttl', lock)
    redis.call('pexpire', lock, math.max(left, lease))
    return nil
end
return redis.call('pttl', lock)";

pub(crate) const LEAVE: &str = "\
local lock, channel, expiry, prefix, outcome = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local message, reader, publish, outcome_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
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
if redis.call('hexists', lock, reader) == 0 then
    return nil
end
local holds = redis.call('hincrby', lock, reader, -1)
if holds == 0 then
    redis.call('hdel', lock, reader)
end
redis.call('del', expiry .. ':' .. (holds + 1))
if redis.call('hlen', lock) > 1 then
    local longest = -3
    for _, field in ipairs(redis.call('hkeys', lock)) do
        local count = tonumber(redis.call('hget', lock, field))
        if type(count) == 'number' then
            for hold = count, 1, -1 do
                local key = prefix .. ':' .. field .. ':rwlock_timeout:' .. hold
                longest = math.max(redis.call('pttl', key), longest)
            end
        end
    end
    if longest > 0 then
        redis.call('pexpire', lock, longest)
        redis.call('set', outcome, 0, 'px', outcome_ms)
        return 0
    end
    if mode == 'write' then
        redis.call('set', outcome, 0, 'px', outcome_ms)
        return 0
    end
end
redis.call('del', lock)
redis.call(publish, channel, message)
redis.call('set', outcome, 1, 'px', outcome_ms)
return 1";

const TAKE_PERMIT: &str = "\
local semaphore, leases, channel = KEYS[1], KEYS[2], KEYS[3]
local wanted, ends, now, never, publish = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local over = redis.call('zrangebyscore', leases, 0, now, 'limit', 0, wanted)
if #over > 0 then
    redis.call('zrem', leases, unpack(over))
    local free = redis.call('incrby', semaphore, #over)
    if tonumber(free) > 0 then
        redis.call(publish, channel, free)
    end
end
local free = redis.call('get', semaphore)
if free ~= false and tonumber(free) >= tonumber(wanted) then
    redis.call('decrby', semaphore, wanted)
    for place = 6, #ARGV do
        redis.call('zadd', leases, ends, ARGV[place])
    end
    local left = redis.call('pttl', semaphore)
    if left > 0 then
        redis.call('pexpire', leases, left)
    end
    return 'OK'
end
local first = redis.call('zrange', leases, 0, 0, 'WITHSCORES')
if first[1] ~= nil and first[2] ~= never then
    return ':' .. tostring(first[2])
end
return nil";

const GIVE_PERMIT: &str = "\
local semaphore, channel, leases = KEYS[1], KEYS[2], KEYS[3]
local permit, permits, now, publish = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local ends = redis.call('zscore', leases, permit)
if tonumber(redis.call('zrem', leases, permit)) ~= 1 then
    return 0
end
redis.call(publish, channel, redis.call('incrby', semaphore, permits))
if tonumber(ends) <= tonumber(now) then
    return 0
end
return 1";

const COUNT_DOWN: &str = "\
local free = redis.call('get', KEYS[1])
if free ~= false and tonumber(free) >= tonumber(ARGV[1]) then
    redis.call('decrby', KEYS[1], ARGV[1])
    return 1
end
return 0";

const COUNT_UP: &str = "redis.call(ARGV[2], KEYS[2], redis.call('incrby', KEYS[1], ARGV[1]))";

pub(crate) fn share(sha: &str, key: &str, owner: &str, lease_ms: &str) -> Vec<u8> {
    let as_writer = format!("{owner}:write");
    request(&["EVALSHA", sha, "2", key, &expiry(key, owner), lease_ms, owner, &as_writer])
}

pub(crate) fn leave(sha: &str, key: &str, owner: &str) -> Vec<u8> {
    let (channel, prefix, outcome) = (channel(key), format!("{{{key}}}"), outcome(key, owner));
    let keys = [key, &channel, &expiry(key, owner), &prefix, &outcome];
    let arguments = ["0", owner, "PUBLISH", OUTCOME_MS];
    request(&[["EVALSHA", sha, "5"].as_slice(), &keys, &arguments].concat())
}

/// The command that deletes the stored outcome of a release.
pub(crate) fn forget(key: &str, owner: &str) -> Vec<u8> {
    request(&["DEL", &outcome(key, owner)])
}

fn expiry(key: &str, owner: &str) -> String {
    format!("{{{key}}}:{owner}:rwlock_timeout")
}

pub(crate) fn outcome(key: &str, owner: &str) -> String {
    format!("redisson_unlock_latch:{{{key}}}:{owner}")
}

/// The channel on which a free read-write lock is announced.
pub(crate) fn channel(key: &str) -> String {
    format!("redisson_rwlock:{{{key}}}")
}

/// The commands of one acquisition and release of a share.
pub(crate) async fn shares(
    wire: &mut Wire,
    proto: &str,
    [key, owner, lease_ms]: [&str; 3],
) -> Vec<Vec<u8>> {
    if proto == "kvlock" {
        return vec![
            request(&["LOCK.ACQUIRE", key, owner, lease_ms, "SHARED"]),
            request(&["LOCK.RELEASE", key, owner, "SHARED"]),
        ];
    }
    let (take, give_back) = (load(wire, SHARE).await, load(wire, LEAVE).await);
    vec![share(&take, key, owner, lease_ms), leave(&give_back, key, owner), forget(key, owner)]
}

/// Creates the semaphore. Returns the commands that acquire and release one permit.
pub(crate) async fn permits(
    wire: &mut Wire,
    proto: &str,
    [key, owner, lease_ms]: [&str; 3],
) -> Vec<Vec<u8>> {
    if proto == "kvlock" {
        wire.exchange(&request(&["SEM.SET", key, PERMITS])).await;
        return vec![
            request(&["SEM.ACQUIRE", key, owner, "1", lease_ms]),
            request(&["SEM.RELEASE", key, owner]),
        ];
    }
    wire.exchange(&request(&["SET", key, PERMITS])).await;
    let channel = format!("redisson_sc:{{{key}}}");
    if proto == "counter" {
        let (down, up) = (load(wire, COUNT_DOWN).await, load(wire, COUNT_UP).await);
        return vec![
            request(&["EVALSHA", &down, "1", key, "1"]),
            request(&["EVALSHA", &up, "2", key, &channel, "1", "PUBLISH"]),
        ];
    }
    let (take, give) = (load(wire, TAKE_PERMIT).await, load(wire, GIVE_PERMIT).await);
    let leases = format!("{{{key}}}:timeout");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let ends = now + Duration::from_millis(lease_ms.parse().unwrap());
    let [now, ends] = [now, ends].map(|moment| moment.as_millis().to_string());
    // As long as a permit id of Redisson.
    let permit: String = owner.chars().rev().take(16).collect();
    let never = "922337203685477";
    let arguments = ["1", &ends, &now, never, "PUBLISH", &permit];
    let keys = ["EVALSHA", &take, "3", key, &leases, &channel];
    vec![
        request(&[keys, arguments].concat()),
        request(&["EVALSHA", &give, "3", key, &channel, &leases, &permit, "1", &now, "PUBLISH"]),
    ]
}
