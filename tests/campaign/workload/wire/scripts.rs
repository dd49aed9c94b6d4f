//! Clients that take locks with scripts, as Redisson's do: they know no line, are told by a
//! message that a lock is free, and try again.

use super::client::ANSWER;
use super::locks::{LEASES_MS, ms};
use super::{KeyKind, Lock, MAILBOXES, Scene};
use harness::history::{CallId, Outcome, Request};
use harness::random::Random;
use harness::resp::ReceiveError;
use harness::{Connection, Value, cmd};
use std::thread::sleep;

const TRY: &str = "if redis.call('EXISTS', KEYS[1]) == 0 then \
    redis.call('HINCRBY', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], ARGV[2]) return nil end \
    return redis.call('PTTL', KEYS[1])";

const GIVE_BACK: &str = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end \
    redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[2], '0') return 1";

/// How long one waits for a message at most.
const PATIENCE_MS: [u64; 3] = [5, 20, 100];

/// Works until the round is over, and listens until nobody waits any more: nothing but what the
/// servers do by themselves serves those who are left.
pub(super) fn work(scene: &Scene<'_>, number: usize, random: Random) {
    let locks = scene.locks.iter().filter(|it| it.is_lock());
    let heard =
        scene.locks.iter().filter(|it| !matches!(it.kind, KeyKind::Semaphore | KeyKind::Latch));
    let (locks, heard) = (locks.collect(), heard.collect());
    let mut client = Client { scene, number, random, locks, heard, turn: 0 };
    let moments = || scene.pair.sum("kvlock_redisson_turns");
    let before = moments();
    while !scene.is_done() {
        let Some(connection) = scene.pair.connect() else { return };
        let Some(listener) = scene.pair.connect() else { return };
        // The connection is broken off, or the primary is another by now.
        let _broken = client.work(connection, listener);
    }
    if number == MAILBOXES {
        let count = moments().saturating_sub(before);
        scene.notes.add("moments in which locks were left to scripts", count);
    }
}

struct Client<'a> {
    scene: &'a Scene<'a>,
    number: usize,
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
            listener.ask(cmd!["SUBSCRIBE", channel(&lock.key)])?;
        }
        while !self.scene.is_done() {
            if self.scene.is_over() {
                sleep(ms(5));
                continue;
            }
            let lock = *self.random.pick(&self.locks);
            self.turn += 1;
            let owner = format!("script{}:{}", self.number, self.turn);
            connection.ask(cmd!["SELECT", lock.db])?;
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
                    Ok(_) => self.scene.notes.add("scripts: messages", 1),
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
        let call = self.scene.recorder.sent(key, owner, Request::Foreign { lease: ms(lease) });
        let commands = [
            cmd!["MULTI"],
            cmd!["EVAL", TRY, 1, key, owner, lease],
            cmd!["LOCK.ACQUIRE", key, owner, lease, "HOLDS", 1],
        ];
        commands.into_iter().for_each(|command| connection.send(command));
        let replies = (0..3).map(|_| connection.receive(ANSWER));
        let queued: Result<Vec<Value>, _> = replies.collect();
        let reply = queued.and_then(|_| connection.ask(cmd!["EXEC"]));
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
        if is_granted {
            self.scene.granted("scripts: grants");
        }
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
        let call = self.scene.recorder.sent(key, owner, Request::Release);
        let reply = connection.ask(cmd!["EVAL", GIVE_BACK, 2, key, channel(key), owner]);
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
        self.scene.recorder.answered(call, outcome);
    }

    fn is_replica(&self, connection: &mut Connection) -> Result<bool, ReceiveError> {
        let role = connection.ask(cmd!["ROLE"])?;
        Ok(!matches!(&role, Value::Array(role) if role[0].text() == "master"))
    }
}
