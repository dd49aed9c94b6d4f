//! What `COMMAND DOCS` does not tell how to do: scripts, options, payloads, other clients.

use super::grammar::Grammar;
use super::words::{self, KEYS};
use harness::cmd;
use harness::random::Random;
use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

/// Options, and what they are set to. All are put back when a round is over.
pub(super) const OPTIONS: [(&str, &[&str]); 28] = [
    ("kvlock.max-lease-ms", &["1", "20", "1000", "86400000"]),
    ("kvlock.max-waiters", &["0", "1", "3", "10000", "-1"]),
    ("kvlock.max-waiters-per-key", &["0", "1", "3", "10000"]),
    ("kvlock.redisson-channel", &["auto", "both", "no", "x"]),
    ("kvlock.drain", &["yes", "no", "no", "no"]),
    ("maxmemory", &["0", "0", "0", "1", "3mb", "100mb"]),
    ("maxmemory-policy", &["noeviction", "allkeys-lru", "volatile-ttl", "allkeys-random"]),
    ("maxmemory-clients", &["0", "0", "100kb", "2mb"]),
    ("maxmemory-samples", &["1", "5", "64"]),
    ("min-replicas-to-write", &["0", "0", "1"]),
    ("notify-keyspace-events", &["", "KEA", "Kh", "KEx"]),
    ("hz", &["1", "10", "500"]),
    ("dynamic-hz", &["yes", "no"]),
    ("active-expire-effort", &["1", "10"]),
    ("lazyfree-lazy-expire", &["yes", "no"]),
    ("lazyfree-lazy-server-del", &["yes", "no"]),
    ("lazyfree-lazy-eviction", &["yes", "no"]),
    ("lazyfree-lazy-user-flush", &["yes", "no"]),
    ("hash-max-listpack-entries", &["0", "1", "2", "512"]),
    ("hash-max-listpack-value", &["0", "1", "64"]),
    ("appendonly", &["yes", "no", "no"]),
    ("appendfsync", &["always", "everysec", "no"]),
    ("timeout", &["0", "0", "1"]),
    ("tracking-table-max-keys", &["1", "1000000"]),
    ("slowlog-log-slower-than", &["0", "10000", "-1"]),
    ("latency-monitor-threshold", &["0", "1"]),
    ("client-output-buffer-limit", &["normal 0 0 0", "normal 20000 0 0"]),
    ("activerehashing", &["yes", "no"]),
];

/// Scripts that pass a command on.
const SCRIPTS: [&str; 5] = [
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "redis.setresp(3) return redis.pcall(unpack(ARGV))",
    "local a = redis.pcall(unpack(ARGV)) redis.pcall('DEL', KEYS[1]) return redis.pcall(unpack(ARGV))",
    "redis.pcall(unpack(ARGV)) redis.pcall('PEXPIRE', KEYS[1], 1) return redis.error_reply('x')",
];

const FUNCTIONS: &str = "#!lua name=fuzz\n\
    redis.register_function('f', function(keys, args) return redis.pcall(unpack(args)) end)\n\
    redis.register_function{function_name='g', flags={'no-writes', 'allow-oom'},\n\
    callback=function(keys, args) return redis.pcall(unpack(args)) end}";

/// Lets many hold a key: the mode, how many, and for how many milliseconds from now.
const CROWD: &str = "\
    local till = string.format('1 %.0f', redis.call('TIME')[1] * 1000 + ARGV[3]) \
    redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'lock-mode', ARGV[1]) \
    for n = 1, tonumber(ARGV[2]) do redis.call('HSET', KEYS[1], 'h' .. n, till) end";

/// What commands by hand need to know.
pub(super) struct Hand {
    /// Values as `DUMP` gives them.
    pub(super) payloads: Vec<Vec<u8>>,
    /// What the options were at the beginning.
    pub(super) options: Vec<(String, String)>,
    /// Whether clients are paused, or else unblocked. Every server that we support crashes, with no
    /// module at all, on `CLIENT UNBLOCK` of a client that a pause holds up. Redis 8 did, with
    /// kvlock loaded, when it waited for the end of a flush.
    pub(super) pauses: bool,
    /// How many values were damaged before they were to be restored.
    pub(super) damaged: Cell<u64>,
}

type Words = Vec<Vec<u8>>;

/// The end of a key that nobody will live to see, near where numbers wrap around when milliseconds
/// become microseconds, and far from it.
fn far_end(random: &mut Random) -> u64 {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() * 1000);
    let ages_ms = [18_446_744_073_709_552, 9_223_372_036_854_775, 1 << 61, (1 << 62) + 1];
    (now_ms + random.pick(&ages_ms)).saturating_sub(random.below(3))
}

impl Hand {
    /// A few commands that belong together.
    pub(super) fn draw(&self, grammar: &Grammar, id: u64, random: &mut Random) -> Vec<Words> {
        let key = random.pick(&KEYS).to_vec();
        let one = match random.below(100) {
            0..=14 => return self.transaction(grammar, random),
            15..=19 => return crowd(random),
            20..=29 => script(grammar, key, random),
            30..=33 => cmd!["FUNCTION", "LOAD", "REPLACE", FUNCTIONS],
            34..=38 => {
                let name = if random.percent(70) { "f" } else { "g" };
                let mut words = cmd!["FCALL", name, 1, key];
                words.extend(grammar.one_of_ours(random));
                words
            }
            39..=50 => return self.restore_and_use(grammar, random),
            51..=62 => return self.configure(grammar, random),
            63..=66 => kill(id, random),
            67..=70 => cmd!["WATCH", *random.pick(&KEYS)],
            71..=75 if self.pauses => return pause(grammar, random),
            76..=79 if self.pauses => cmd!["CLIENT", "UNPAUSE"],
            71..=79 => {
                cmd!["CLIENT", "UNBLOCK", near(id, random), *random.pick(&["TIMEOUT", "ERROR"])]
            }
            80 => cmd!["CLIENT", "REPLY", *random.pick(&["OFF", "SKIP", "ON"])],
            81..=82 => cmd!["CLIENT", "REPLY", "SKIP"],
            83..=84 => cmd!["CLIENT", "NO-EVICT", *random.pick(&["on", "off"])],
            85..=86 => {
                cmd!["CLIENT", "TRACKING", "ON", *random.pick(&["BCAST", "OPTIN", "NOLOOP"])]
            }
            87..=88 => cmd!["DEBUG", "SLEEP", *random.pick(&["0.001", "0.03"])],
            89 => cmd!["DEBUG", "RELOAD"],
            90 if random.percent(50) => cmd!["PEXPIREAT", key, far_end(random)],
            90 => cmd!["SWAPDB", 0, 1 + random.below(2)],
            91 => return self.condemn(grammar, random),
            92 => cmd!["DEBUG", *random.pick(&["OBJECT", "LISTPACK", "HTSTATS-KEY"]), key],
            93..=94 => cmd!["DEBUG", "SET-ACTIVE-EXPIRE", random.below(2)],
            95 => cmd!["DEBUG", "STRINGMATCH-LEN", 10, "*"],
            96 => return self.change_roles(grammar, random),
            _ => cmd!["SELECT", random.below(3)],
        };
        vec![one]
    }

    /// A user that is deleted while its connections wait, and while they are served.
    fn condemn(&self, grammar: &Grammar, random: &mut Random) -> Vec<Words> {
        let mut all = vec![
            cmd!["ACL", "SETUSER", "guest", "on", "nopass", "~*", "&*", "+@all"],
            cmd!["AUTH", "guest", "x"],
        ];
        if random.percent(50) {
            all = vec![cmd!["MULTI"]];
            all.extend((0..1 + random.below(3)).map(|_| grammar.one_of_ours(random)));
            all.extend([cmd!["ACL", "DELUSER", "guest"], cmd!["EXEC"]]);
        }
        all
    }

    /// Changes an option, does something, and puts it back, unless the connection breaks: then
    /// others do it, sooner or later.
    fn configure(&self, grammar: &Grammar, random: &mut Random) -> Vec<Words> {
        // Not each server has each.
        let here: Vec<_> = OPTIONS
            .iter()
            .filter(|(name, _)| self.options.iter().any(|(option, _)| option == name))
            .collect();
        let (name, values) = random.pick(&here);
        let mut all = vec![cmd!["CONFIG", "SET", *name, **random.pick(values)]];
        all.extend((0..random.below(6)).map(|_| grammar.one_of_ours(random)));
        all.push(self.put_back(name));
        all
    }

    /// The command that puts an option back.
    fn put_back(&self, name: &str) -> Words {
        let was = self.options.iter().find(|(option, _)| option == name);
        cmd!["CONFIG", "SET", name, was.map_or("", |(_, value)| value.as_str())]
    }

    /// Commands after which the server serves everybody again.
    pub(super) fn put_all_back(&self) -> Vec<Words> {
        let options = self.options.iter().map(|(name, _)| self.put_back(name));
        options.chain([cmd!["REPLICAOF", "NO", "ONE"], cmd!["CLIENT", "UNPAUSE"]]).collect()
    }

    fn change_roles(&self, grammar: &Grammar, random: &mut Random) -> Vec<Words> {
        let mut all = vec![cmd!["REPLICAOF", "127.0.0.1", 1]];
        all.extend((0..random.below(4)).map(|_| grammar.one_of_ours(random)));
        all.push(cmd!["REPLICAOF", "NO", "ONE"]);
        all
    }

    fn transaction(&self, grammar: &Grammar, random: &mut Random) -> Vec<Words> {
        let mut words = Vec::new();
        if random.percent(40) {
            words.push(cmd!["WATCH", *random.pick(&KEYS)]);
        }
        words.push(cmd!["MULTI"]);
        for _ in 0..random.below(5) {
            let ours = random.percent(75);
            words.push(if ours { grammar.one_of_ours(random) } else { grammar.other(random) });
        }
        if random.percent(20) {
            words.push(self.restore(random.pick(&KEYS).to_vec(), random));
        }
        words.push(if random.percent(90) { cmd!["EXEC"] } else { cmd!["DISCARD"] });
        words
    }

    /// Values of locks, or nearly so, and what the module makes of them.
    fn restore_and_use(&self, grammar: &Grammar, random: &mut Random) -> Vec<Words> {
        let times = 1 + random.below(12);
        let both = |_| {
            let ours = grammar.one_of_ours(random);
            let key = ours.get(1).cloned().unwrap_or_else(|| random.pick(&KEYS).to_vec());
            [self.restore(key, random), ours]
        };
        (0..times).flat_map(both).collect()
    }

    /// A value of some lock, or nearly one.
    fn restore(&self, key: Vec<u8>, random: &mut Random) -> Words {
        let whole = random.pick(&self.payloads);
        let mut payload = whole.clone();
        if random.percent(60) {
            for _ in 0..1 + random.below(4) {
                let at = random.below(payload.len() as u64) as usize;
                payload[at] = random.below(256) as u8;
            }
        }
        if random.percent(10) {
            payload.truncate(random.below(payload.len() as u64) as usize);
        }
        self.damaged.set(self.damaged.get() + u64::from(payload != *whole));
        let mut words = cmd!["RESTORE", key, random.pick(&[0_u64, 1, 30, 10_000]), payload];
        if random.percent(80) {
            words.push(b"REPLACE".to_vec());
        }
        words
    }
}

fn script(grammar: &Grammar, key: Vec<u8>, random: &mut Random) -> Words {
    let mut words = cmd!["EVAL", *random.pick(&SCRIPTS), 1, key];
    let ours = random.percent(80);
    words.extend(if ours { grammar.one_of_ours(random) } else { grammar.other(random) });
    words
}

/// Puts one with many holders, live, expired or about to expire together, at a key of locks or
/// semaphores; or first at another, and in the place of that one. Of some the server lets fields end.
fn crowd(random: &mut Random) -> Vec<Words> {
    let family = *random.pick(&[b"LOCK", b"SEM."]);
    let key = words::key_of(family, random);
    let replaces = *random.pick(&["", "RENAME", "COPY", "SWAPDB"]);
    let at = if ["RENAME", "COPY"].contains(&replaces) { b"crowd".to_vec() } else { key.clone() };
    let mode = *random.pick(&["shared", "semaphore 3 3", "semaphore 2000 2000"]);
    let (count, ends) = (*random.pick(&[3, 200, 1_500]), *random.pick(&[-1_000, 5, 30, 100_000]));
    let mut all = vec![cmd!["EVAL", CROWD, 1, at, mode, count, ends]];
    all.extend(match replaces {
        "RENAME" => Some(cmd!["RENAME", at, key]),
        "COPY" => Some(cmd!["COPY", at, key, "REPLACE"]),
        "SWAPDB" => Some(cmd!["SWAPDB", 0, 1]),
        _ => None,
    });
    if random.percent(30) {
        let count = random.below(20);
        let mut end = cmd!["HPEXPIRE", key, *random.pick(&[1, 50]), "FIELDS", count];
        end.extend((0..count).map(|n| format!("h{n}").into_bytes()));
        all.push(end);
    }
    all
}

/// Holds all clients up, and sends what is to be held up.
fn pause(grammar: &Grammar, random: &mut Random) -> Vec<Words> {
    let kind = *random.pick(&["WRITE", "WRITE", "ALL"]);
    let mut all = vec![cmd!["CLIENT", "PAUSE", 1 + random.below(20), kind]];
    all.extend((0..random.below(4)).map(|_| grammar.one_of_ours(random)));
    all
}

fn kill(id: u64, random: &mut Random) -> Words {
    match random.below(20) {
        0 => cmd!["CLIENT", "KILL", "TYPE", "normal", "SKIPME", *random.pick(&["yes", "no"])],
        1 => cmd!["CLIENT", "KILL", "ID", words::anything(random)],
        _ => cmd!["CLIENT", "KILL", "ID", near(id, random)],
    }
}

/// The number of a client that is connected, most likely.
fn near(id: u64, random: &mut Random) -> u64 {
    id.saturating_sub(random.below(40))
}
