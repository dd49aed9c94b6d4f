//! Clients that take locks with scripts, as Redisson does. They have no queue: they try again after a message
//! that announces a free lock, or after a while.

use super::client::{Client, Ending};
use super::locks::{LEASES_MS, ms};
use super::{Lock, Scene};
use harness::history::{Outcome, Request};
use harness::random::Random;
use harness::resp::ReceiveError;
use harness::{Connection, Value, cmd};
use std::thread::sleep;

const TRY: &str = "if redis.call('EXISTS', KEYS[1]) == 0 then \
    redis.call('HINCRBY', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], ARGV[2]) return nil end \
    return redis.call('PTTL', KEYS[1])";

const GIVE_BACK: &str = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end \
    redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[2], '0') return 0";

/// Longest waits for a message. One of them is chosen for each wait.
const PATIENCE_MS: [u64; 3] = [5, 20, 100];

/// Takes locks until the round is over, then stays subscribed until no client waits.
pub(super) fn work(scene: &Scene<'_>, number: usize, mut random: Random) {
    let locks: Vec<&Lock> = scene.locks.iter().filter(|it| it.is_lock()).collect();
    let (mut client, mut listener, mut turn) = (Client::new(scene), None, 0);
    while !scene.is_done() {
        let Some(mut hears) = listener.take().or_else(|| listen(scene)) else { return };
        let lock = *random.pick(&locks);
        turn += 1;
        client.db = lock.db;
        let owner = format!("script{number}:{turn}");
        let heard = acquire(&mut client, &mut hears, lock, &owner, &mut random);
        // If the subscribed connection broke, the next turn makes a new one.
        listener = heard.is_ok().then_some(hears);
    }
}

fn channel(key: &str) -> String {
    format!("redisson_lock__channel:{{{key}}}")
}

/// A connection that is subscribed to the messages about all locks that scripts take. The server leaves a
/// lock free for scripts only if a connection is subscribed to the lock's channel.
fn listen(scene: &Scene<'_>) -> Option<Connection> {
    loop {
        let mut listener = scene.connect()?;
        let mut heard = scene.locks.iter().filter(|it| it.is_lock());
        if heard.all(|lock| listener.ask(cmd!["SUBSCRIBE", channel(&lock.key)]).is_ok()) {
            return Some(listener);
        }
    }
}

/// Tries up to eight times to get the lock, holds it briefly, and releases it or lets its lease end.
fn acquire(
    client: &mut Client<'_>,
    listener: &mut Connection,
    lock: &Lock,
    owner: &str,
    random: &mut Random,
) -> Result<(), ReceiveError> {
    for _ in 0..8 {
        if client.scene.is_over() {
            sleep(ms(5));
            return Ok(());
        }
        let ending = take(client, &lock.key, owner, *random.pick(&LEASES_MS));
        if ending == Ending::Done {
            client.scene.granted("scripts: grants");
            sleep(ms(random.below(4)));
            if random.percent(90) {
                give_back(client, &lock.key, owner);
            }
            return Ok(());
        }
        match listener.receive(ms(*random.pick(&PATIENCE_MS))) {
            Ok(_) => client.scene.log.add("scripts: messages", 1),
            Err(ReceiveError::Timeout) => {}
            Err(broken) => return Err(broken),
        }
    }
    Ok(())
}

/// Tries once to get the lock. If the script gets it, `LOCK.ACQUIRE` in the same transaction adds a token, by
/// which the checker identifies the hold.
fn take(client: &mut Client<'_>, key: &str, owner: &str, lease: u64) -> Ending {
    client.connection();
    let call = client.scene.recorder.sent(key, owner, Request::Foreign { lease: ms(lease) });
    let replies = client.transact(&[
        cmd!["EVAL", TRY, 1, key, owner, lease],
        cmd!["LOCK.ACQUIRE", key, owner, lease, "HOLDS", 1],
    ]);
    let outcome = match replies.as_deref() {
        Ok([_, Value::Array(granted)]) => Outcome::Granted {
            token: granted[0].integer().cast_unsigned(),
            holds: granted[1].integer().cast_unsigned(),
        },
        // The owner has the lock with an unknown token, or the outcome is unknown.
        Ok([Value::Nil, _]) | Err(_) => Outcome::Unknown,
        Ok([Value::Integer(_), Value::Nil]) => Outcome::Refused,
        Ok(_) => Outcome::Failed,
    };
    if outcome == Outcome::Failed {
        // The primary may have changed.
        client.reconnect();
    }
    client.ended(call, outcome)
}

fn give_back(client: &mut Client<'_>, key: &str, owner: &str) {
    let command = cmd!["EVAL", GIVE_BACK, 2, key, channel(key), owner];
    client.call(key, owner, &Request::Release, &command);
}
