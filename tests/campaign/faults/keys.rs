//! Actions of strangers, and of a server without free memory, on keys.

use super::stranger::Stranger;
use super::{Fault, by_stranger};
use crate::workload::{CALM, CROWD, KeyKind, Lock, WILD, WIRE_PERMITS};
use harness::resp::ReceiveError;
use harness::{Value, cmd};
use std::thread::sleep;
use std::time::Duration;

pub(super) const FAULTS: &[Fault] = &[
    by_stranger("DEL by a stranger", 8, |it| it.on_key(|key| cmd!["DEL", key])),
    by_stranger("UNLINK by a stranger", 4, |it| it.on_key(|key| cmd!["UNLINK", key])),
    by_stranger("PEXPIRE by a stranger", 8, |it| it.let_expire()),
    by_stranger("SET by a stranger", 3, |it| it.on_key(|key| cmd!["SET", key, "x", "PX", 20])),
    by_stranger("HDEL by a stranger", 6, |it| it.delete_owner()),
    by_stranger("RENAME and COPY by a stranger", 2, |it| it.replace()),
    by_stranger("HPEXPIRE by a stranger", 1, |it| it.let_a_field_end()),
    by_stranger("FORCERELEASE", 4, |it| it.force_release()),
    by_stranger("FLUSHDB", 2, |it| it.on_keys_of(&[WILD], &[cmd!["FLUSHDB"]])),
    by_stranger("FLUSHDB ASYNC", 2, |it| it.on_keys_of(&[WILD], &[cmd!["FLUSHDB", "ASYNC"]])),
    by_stranger("FLUSHALL", 2, |it| it.on_keys_of(&[CALM, WILD], &[cmd!["FLUSHALL"]])),
    by_stranger("SWAPDB", 2, |it| it.swap()),
    by_stranger("eviction of keys", 3, |it| it.evict_keys()),
];

/// The eviction policies of a full server.
const POLICIES: [&str; 8] = [
    "noeviction",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

/// Lease, in milliseconds, of the second crowd of strangers: see [`Stranger::replace`].
const CROWD_MS: u64 = 30;
/// Time, with a margin, after which a server reads the owners of a key again, even if it did not notice that
/// the key was replaced or that one of its fields has expired.
const BELIEVED: Duration = Duration::from_millis(1_100);

impl Stranger<'_> {
    /// A random key of the wild database for which `is` returns true.
    fn one(&mut self, is: fn(&Lock) -> bool) -> String {
        let locks = self.round.keys.iter().map(|key| Lock::of(key));
        let locks: Vec<Lock> = locks.filter(|lock| lock.db == WILD && is(lock)).collect();
        self.random.pick(&locks).key.clone()
    }

    fn key(&mut self) -> String {
        self.one(|_| true)
    }

    /// The key of a random exclusive or shared lock in the wild database.
    pub(super) fn lock(&mut self) -> String {
        self.one(Lock::is_lock)
    }

    fn lock_or_semaphore(&mut self) -> String {
        self.one(|it| it.kind != KeyKind::Latch)
    }

    /// Runs a command on a random key, and records that this command may have ended holds.
    fn on_key(&mut self, command: impl FnOnce(&str) -> Vec<Vec<u8>>) -> Result<(), ReceiveError> {
        let key = self.key();
        self.breaks(&[&key], |it| it.ask(command(&key)))
    }

    fn force_release(&mut self) -> Result<(), ReceiveError> {
        let key = self.lock();
        self.breaks(&[&key], |it| it.ask(cmd!["LOCK.FORCERELEASE", key]))
    }

    /// Sets a key to expire in a millisecond, and waits until it has expired. Permits that are acquired until
    /// then are lost with the key, so the recorded break lasts until then.
    fn let_expire(&mut self) -> Result<(), ReceiveError> {
        let key = self.key();
        self.breaks(&[&key], |it| {
            // First a time in the far future: a timer for the end of a lease must follow the change.
            let far = it.ask(cmd!["PEXPIREAT", key, 1_u64 << 61, "XX"]);
            let reply = far.and_then(|_| it.ask(cmd!["PEXPIRE", key, 1, "LT"]));
            sleep(Duration::from_millis(5));
            reply
        })
    }

    /// Runs commands that may delete all locks of these databases, then lets the server write its floor
    /// of tokens (the key `kvlock:floor`) again in each.
    /// The wild database must be the last of `dbs`: the last one stays selected.
    fn on_keys_of(&mut self, dbs: &[u32], commands: &[Vec<Vec<u8>>]) -> Result<(), ReceiveError> {
        let round = self.round;
        let is_there = |key: &&String| dbs.contains(&Lock::of(key).db);
        let keys: Vec<&str> = round.keys.iter().filter(is_there).map(String::as_str).collect();
        self.breaks(&keys, |it| {
            for command in commands {
                let reply = it.ask(command.clone())?;
                if reply.is_error() {
                    let what = format!("what was done to all keys was refused: {reply}");
                    round.log.surprise(what);
                }
            }
            Ok(())
        })?;
        for db in dbs {
            // The floor may be deleted too. A grant writes it again, so that tokens also grow after a failover.
            self.send(cmd!["SELECT", db])?;
            self.send(cmd!["LOCK.ACQUIRE", "scratch", "stranger", 1])?;
        }
        Ok(())
    }

    /// Lets the server evict keys, with a random policy.
    fn evict_keys(&mut self) -> Result<(), ReceiveError> {
        let policy = *self.random.pick(&POLICIES);
        self.round.log.add(&format!("policy of eviction: {policy}"), 1);
        self.on_keys_of(
            &[CALM, WILD],
            &[
                cmd!["CONFIG", "SET", "maxmemory-policy", policy, "maxmemory", 1],
                // Before each command, a server with an eviction policy evicts keys.
                cmd!["PING"],
                cmd!["DEBUG", "SLEEP", "0.002"],
                cmd!["CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", 0],
            ],
        )
    }

    fn swap(&mut self) -> Result<(), ReceiveError> {
        // Delete the old locks, which are now in database 1: the next swap would bring them back.
        let flush = [cmd!["SELECT", 1], cmd!["FLUSHDB"], cmd!["SELECT", 0]];
        let swap = [cmd!["MULTI"], cmd!["SWAPDB", 0, 1]];
        self.on_keys_of(&[WILD], &[&swap[..], &flush, &[cmd!["EXEC"]]].concat())
    }

    /// Replaces a lock or a semaphore, twice: first with one that a crowd of strangers holds for a long time,
    /// then with one that they hold for a moment or no longer hold. A crowd has a few strangers, or two
    /// thousand, and all their leases end together.
    fn replace(&mut self) -> Result<(), ReceiveError> {
        let key = self.lock_or_semaphore();
        let is_semaphore = Lock::of(&key).kind == KeyKind::Semaphore;
        let count = if is_semaphore { WIRE_PERMITS } else { *self.random.pick(&[3, 2_000]) };
        self.breaks(&[&key], |it| {
            let mut replaced = Ok(());
            for ms in [600_000, CROWD_MS] {
                replaced = replaced.and_then(|()| it.put_crowd(&key, is_semaphore, ms, count));
                sleep(Duration::from_millis(CROWD_MS));
            }
            sleep(BELIEVED);
            replaced
        })
    }

    /// Replaces a key with a shared lock or a semaphore that a crowd of strangers holds. The new key has no
    /// token. With a token, owners that later share the lock would get that token, and it would be smaller
    /// than the tokens of earlier grants.
    fn put_crowd(
        &mut self,
        key: &str,
        is_semaphore: bool,
        ms: u64,
        count: u64,
    ) -> Result<(), ReceiveError> {
        let other = "scratch-of-strangers";
        let counts = format!("semaphore {WIRE_PERMITS} {WIRE_PERMITS}");
        let mode = if is_semaphore { &counts } else { "shared" };
        self.ask(cmd!["EVAL", CROWD, 1, other, mode, count, ms])?;
        if !is_semaphore {
            self.ask(cmd!["PEXPIRE", other, 700_000])?;
        }
        let (rename, copy) = (cmd!["RENAME", other, key], cmd!["COPY", other, key, "REPLACE"]);
        let command = if self.random.percent(50) { rename } else { copy };
        self.ask(command).map(drop)
    }

    /// Sets an expiry on an owner's field, which the server then removes from the hash.
    fn let_a_field_end(&mut self) -> Result<(), ReceiveError> {
        let key = self.lock_or_semaphore();
        let Some(owner) = self.owner_at(&key)? else { return Ok(()) };
        self.breaks(&[&key], |it| {
            // Not every server has this command.
            let reply = it.ask(cmd!["HPEXPIRE", key, 1, "FIELDS", 1, owner]);
            if reply.as_ref().is_ok_and(|reply| !reply.is_error()) {
                sleep(BELIEVED);
            }
            reply
        })
    }

    fn delete_owner(&mut self) -> Result<(), ReceiveError> {
        let key = self.lock();
        let Some(owner) = self.owner_at(&key)? else { return Ok(()) };
        self.breaks(&[&key], |it| it.ask(cmd!["HDEL", key, owner]))
    }

    /// One of the holders of a key; `None` if it has none.
    fn owner_at(&mut self, key: &str) -> Result<Option<String>, ReceiveError> {
        let fields = self.ask(cmd!["HKEYS", key])?;
        let Value::Array(fields) = fields else { return Ok(None) };
        let reserved = [&b"fencing-token"[..], b"lock-mode", b"lock-value"];
        let owners = fields.iter().filter(|field| !reserved.contains(&field.bytes()));
        let owners: Vec<String> = owners.map(Value::text).collect();
        let any = (!owners.is_empty()).then(|| self.random.pick(&owners).clone());
        Ok(any)
    }
}
