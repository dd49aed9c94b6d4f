//! The data behind the locks: counters in a separate Redis, which client processes read and increment.
//!
//! Each lock has two counters. One checks tokens and refuses any token smaller than one it has seen; the
//! other accepts every write. An increment that was acknowledged and is missing from the number at the end is
//! lost.

use super::messages::Tenure;
use harness::{Connection, Value, cmd};

/// A script. `KEYS[1]` is the hash with a lock's counters. The arguments are a token and, for a write, the new
/// values of both counters. Returns both values, and whether the checking counter accepted the token.
const STEP: &str = "\
    local token, sheet = tonumber(ARGV[1]), KEYS[1] \
    local add = function(field) redis.call('HINCRBY', sheet, field, 1) end \
    local get = function(field) return tonumber(redis.call('HGET', sheet, field) or 0) end \
    local stale = token < get('largest') \
    if not stale then redis.call('HSET', sheet, 'largest', ARGV[1]) end \
    if ARGV[2] then \
        redis.call('HSET', sheet, 'takes', ARGV[3]) add('takes acknowledged') \
        if stale then add('takes stale') add('looks refused') \
        else redis.call('HSET', sheet, 'looks', ARGV[2]) add('looks acknowledged') end \
    end \
    return {get('looks'), get('takes'), stale and 0 or 1}";

/// The values of the counter that checks tokens, and of the other one.
pub(super) type Numbers = [i64; 2];

pub(super) fn next(numbers: Numbers) -> Numbers {
    numbers.map(|number| number + 1)
}

/// A connection to a store.
#[derive(Debug)]
pub(super) struct Counters(Connection);

impl Counters {
    pub(super) fn open(port: u16) -> Self {
        Self(Connection::open(port).expect("the store is there"))
    }

    /// Reads both counters. After that, the checking counter refuses tokens smaller than this tenure's.
    pub(super) fn read(&mut self, by: &Tenure) -> Numbers {
        let reply = self.0.call(cmd!["EVAL", STEP, 1, by.key, by.token]);
        [0, 1].map(|counter| reply[counter].integer())
    }

    /// Writes both values. Returns whether the counter that checks tokens accepted the write; the other
    /// always does.
    pub(super) fn write(&mut self, by: &Tenure, [looks, takes]: Numbers) -> bool {
        let step = cmd!["EVAL", STEP, 1, by.key, by.token, looks, takes];
        self.0.call(step)[2] == Value::Integer(1)
    }

    /// Writes `times` further increments without a check of the guard. Returns the number of writes that the
    /// checking counter accepted.
    pub(super) fn write_on(&mut self, by: &Tenure, mut numbers: Numbers, times: u64) -> u64 {
        let one_more = |_: &u64| {
            numbers = next(numbers);
            self.write(by, numbers)
        };
        (0..times).filter(one_more).count() as u64
    }

    /// A number in a lock's hash in the store; 0 if the field is missing.
    pub(super) fn show(&mut self, key: &str, field: &str) -> u64 {
        let number = self.0.call(cmd!["HGET", key, field]);
        if number.is_nil() { 0 } else { number.text().parse().expect("a number") }
    }
}
