//! Those who take locks with scripts, as Redisson's clients do: they know no line, are told by a
//! message that a lock is free, and try again.

use crate::load::{LEASES_MS, ms};
use crate::pair::ask;
use crate::{Lock, Round, Sort};
use harness::history::{CallId, Outcome, Request};
use harness::random::Random;
use harness::resp::ReceiveError;
use harness::{Connection, Value, cmd};
use std::thread::sleep;

/// So many at a time.
pub(crate) const SCRIPTS: u64 = 2;

const TRY: &str = "if redis.call('EXISTS', KEYS[1]) == 0 then \
    redis.call('HINCRBY', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], ARGV[2]) return nil end \
    return redis.call('PTTL', KEYS[1])";

const GIVE_BACK: &str = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end \
    redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[2], '0') return 1";

/// How long one waits for a message at most.
const PATIENCE_MS: [u64; 3] = [5, 20, 100];

/// Works until the round is over, and listens until nobody waits any more: nothing but what the
/// servers do by themselves serves those who are left.
pub(crate) fn work(round: &Round, number: u64, random: Random) {
    let locks = round.locks.iter().filter(|it| matches!(it.sort, Sort::Lock | Sort::Shared));
    let heard = round.locks.iter().filter(|it| !matches!(it.sort, Sort::Semaphore | Sort::Latch));
    let (locks, heard) = (locks.collect(), heard.collect());
    let mut client = Client { round, number, random, locks, heard, turn: 0 };
    while !round.is_done() {
        let Some(connection) = round.pair.connect() else { return };
        let Some(listener) = round.pair.connect() else { return };
        // The connection is broken off, or the primary is another by now.
        let _broken = client.work(connection, listener);
    }
}

struct Client<'a> {
    round: &'a Round,
    number: u64,
    random: Random,
    /// Those that it takes, and those of which it wants to hear.
    locks: Vec<&'a Lock>,
    heard: Vec<&'a Lock>,
    turn: u64,
}

fn channel(key: &str) -> String {
    format!("redisson_lock__channel:{{{key}}}")
}

impl Client<'_> {
    fn work(
        &mut self,
        mut connection: Connection,
        mut listener: Connection,
    ) -> Result<(), ReceiveError> {
        for lock in &self.heard {
            ask(&mut listener, cmd!["SUBSCRIBE", channel(&lock.key)])?;
        }
        while !self.round.is_done() {
            if self.round.is_over() {
                sleep(ms(5));
                continue;
            }
            let lock = *self.random.pick(&self.locks);
            self.turn += 1;
            let owner = format!("script{}:{}", self.number, self.turn);
            ask(&mut connection, cmd!["SELECT", lock.db])?;
            for _ in 0..8 {
                if self.take(&mut connection, &lock.key, &owner)? {
                    sleep(ms(self.random.below(4)));
                    // Now and then the lease ends it.
                    if self.random.percent(90) {
                        self.give_back(&mut connection, &lock.key, &owner)?;
                    }
                    break;
                }
                let patience = ms(*self.random.pick(&PATIENCE_MS));
                match listener.receive(patience) {
                    Ok(_) => self.round.tally.add("scripts: messages", 1),
                    Err(ReceiveError::Timeout) => {}
                    Err(broken) => return Err(broken),
                }
            }
        }
        Ok(())
    }

    /// Tries once. A command of ours gives it the token by which the checker knows it, in the same
    /// turn of the server, and changes nothing else.
    fn take(
        &mut self,
        connection: &mut Connection,
        key: &str,
        owner: &str,
    ) -> Result<bool, ReceiveError> {
        let lease = *self.random.pick(&LEASES_MS);
        let call = self.round.recorder.sent(key, owner, Request::Foreign { lease: ms(lease) });
        let commands = [
            cmd!["MULTI"],
            cmd!["EVAL", TRY, 1, key, owner, lease],
            cmd!["LOCK.ACQUIRE", key, owner, lease, "HOLDS", 1],
        ];
        commands.into_iter().for_each(|command| connection.send(command));
        let replies = (0..3).map(|_| connection.receive(crate::client::ANSWER));
        let queued: Result<Vec<Value>, _> = replies.collect();
        let reply = queued.and_then(|_| ask(connection, cmd!["EXEC"]));
        let outcome = match &reply {
            Ok(Value::Array(replies)) => match &replies[..] {
                [_, Value::Array(granted)] => Outcome::Granted {
                    token: granted[0].integer().cast_unsigned(),
                    holds: granted[1].integer().cast_unsigned(),
                },
                // It has it, and its token is not known.
                [Value::Nil, _] => Outcome::Unknown,
                [Value::Integer(_), Value::Nil] => Outcome::Refused,
                _ => Outcome::Failed,
            },
            Ok(_) => Outcome::Failed,
            Err(_) => Outcome::Unknown,
        };
        self.end(call, outcome);
        reply?;
        let is_granted = matches!(outcome, Outcome::Granted { .. });
        self.round.tally.add("scripts: grants", u64::from(is_granted));
        if outcome == Outcome::Failed && self.is_replica(connection)? {
            return Err(ReceiveError::Closed);
        }
        Ok(is_granted)
    }

    fn give_back(
        &self,
        connection: &mut Connection,
        key: &str,
        owner: &str,
    ) -> Result<(), ReceiveError> {
        let call = self.round.recorder.sent(key, owner, Request::Release);
        let reply = ask(connection, cmd!["EVAL", GIVE_BACK, 2, key, channel(key), owner]);
        let outcome = match &reply {
            Ok(Value::Integer(_)) => Outcome::Released { left: 0 },
            Ok(Value::Nil) => Outcome::Refused,
            Ok(_) => Outcome::Failed,
            Err(_) => Outcome::Unknown,
        };
        self.end(call, outcome);
        reply.map(drop)
    }

    fn end(&self, call: CallId, outcome: Outcome) {
        self.round.recorder.answered(call, outcome);
    }

    fn is_replica(&self, connection: &mut Connection) -> Result<bool, ReceiveError> {
        let role = ask(connection, cmd!["ROLE"])?;
        Ok(!matches!(&role, Value::Array(role) if role[0].text() == "master"))
    }
}
