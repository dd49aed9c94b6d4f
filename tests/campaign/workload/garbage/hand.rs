//! What `COMMAND DOCS` does not tell how to do: scripts, options, payloads, other clients.

use super::grammar::Grammar;
use super::words::{self, KEYS};
use harness::random::Random;
use harness::{Connection, cmd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Options, and what they are set to, with bars between. All are put back when a round is over.
const OPTIONS: [(&str, &str); 28] = [
    ("kvlock.max-lease-ms", "1|20|1000|86400000"),
    ("kvlock.max-waiters", "0|1|3|10000|-1"),
    ("kvlock.max-waiters-per-key", "0|1|3|10000"),
    ("kvlock.redisson-channel", "auto|both|no|x"),
    ("kvlock.drain", "yes|no|no|no"),
    ("maxmemory", "0|0|0|1|3mb|100mb"),
    ("maxmemory-policy", "noeviction|allkeys-lru|volatile-ttl|allkeys-random"),
    ("maxmemory-clients", "0|0|100kb|2mb"),
    ("maxmemory-samples", "1|5|64"),
    ("min-replicas-to-write", "0|0|1"),
    ("notify-keyspace-events", "|KEA|Kh|KEx"),
    ("hz", "1|10|500"),
    ("dynamic-hz", "yes|no"),
    ("active-expire-effort", "1|10"),
    ("lazyfree-lazy-expire", "yes|no"),
    ("lazyfree-lazy-server-del", "yes|no"),
    ("lazyfree-lazy-eviction", "yes|no"),
    ("lazyfree-lazy-user-flush", "yes|no"),
    ("hash-max-listpack-entries", "0|1|2|512"),
    ("hash-max-listpack-value", "0|1|64"),
    ("appendonly", "yes|no|no"),
    ("appendfsync", "always|everysec|no"),
    ("timeout", "0|0|1"),
    ("tracking-table-max-keys", "1|1000000"),
    ("slowlog-log-slower-than", "0|10000|-1"),
    ("latency-monitor-threshold", "0|1"),
    ("client-output-buffer-limit", "normal 0 0 0|normal 20000 0 0"),
    ("activerehashing", "yes|no"),
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
pub(crate) const CROWD: &str = "\
    local till = string.format('1 %.0f', redis.call('TIME')[1] * 1000 + ARGV[3]) \
    redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'lock-mode', ARGV[1]) \
    for n = 1, tonumber(ARGV[2]) do redis.call('HSET', KEYS[1], 'h' .. n, till) end";

/// What commands by hand need to know of a server.
#[derive(Debug)]
pub(crate) struct Hand {
    grammar: Grammar,
    /// Values as `DUMP` gives them.
    payloads: Vec<Vec<u8>>,
    /// Options that this server has, and what they were at the beginning.
    options: Vec<(&'static str, &'static str, String)>,
    /// Whether clients are paused, or else unblocked. Every server that we support crashes, with no
    /// module at all, on `CLIENT UNBLOCK` of a client that a pause holds up. Redis 8 did, with
    /// kvlock loaded, when it waited for the end of a flush.
    pub(super) pauses: AtomicBool,
    /// About how many clients the server has had.
    pub(super) clients: AtomicU64,
    /// How many values were damaged before they were to be restored.
    pub(crate) damaged: AtomicU64,
}

pub(super) type Words = Vec<Vec<u8>>;

impl Hand {
    /// Asks the server for its commands and its options. These are values to restore.
    pub(crate) fn at(server: &mut Connection, payloads: Vec<Vec<u8>>) -> Self {
        let grammar = Grammar::of(server);
        // Not each server has each.
        let option = |(name, values)| {
            let pair = server.call(cmd!["CONFIG", "GET", name]);
            Some((name, values, pair.elements().get(1)?.text()))
        };
        Self {
            grammar,
            payloads,
            options: OPTIONS.into_iter().filter_map(option).collect(),
            pauses: AtomicBool::default(),
            clients: AtomicU64::default(),
            damaged: AtomicU64::default(),
        }
    }

    /// Another round, in which clients are paused if they were unblocked in the last one. The server has
    /// had that many clients.
    pub(crate) fn begin(&self, clients: i64) {
        self.clients.store(clients.cast_unsigned(), Ordering::SeqCst);
        self.pauses.fetch_xor(true, Ordering::SeqCst);
    }

    /// A command of the module.
    pub(super) fn ours(&self, random: &mut Random) -> Words {
        self.grammar.one_of_ours(random)
    }

    /// Some, fewer than that.
    fn some_of_ours(&self, end: u64, random: &mut Random) -> Vec<Words> {
        (0..random.below(end)).map(|_| self.ours(random)).collect()
    }

    /// Any other command.
    pub(super) fn other(&self, random: &mut Random) -> Words {
        self.grammar.other(random)
    }

    fn any(&self, ours: u64, random: &mut Random) -> Words {
        if random.percent(ours) { self.ours(random) } else { self.other(random) }
    }

    /// A few commands that belong together.
    pub(super) fn draw(&self, random: &mut Random) -> Vec<Words> {
        let key = random.pick(&KEYS).to_vec();
        let pauses = self.pauses.load(Ordering::SeqCst);
        let say = |line: &str, random: &mut Random| -> Words {
            line.split(' ').map(|word| words::one_of(word, random)).collect()
        };
        let one = match random.below(100) {
            0..=14 => return self.transaction(random),
            15..=19 => return crowd(random),
            20..=29 => {
                let script = cmd!["EVAL", *random.pick(&SCRIPTS), 1, key];
                [script, self.any(80, random)].concat()
            }
            30..=33 => cmd!["FUNCTION", "LOAD", "REPLACE", FUNCTIONS],
            34..=38 => {
                let name = if random.percent(70) { "f" } else { "g" };
                [cmd!["FCALL", name, 1, key], self.ours(random)].concat()
            }
            39..=50 => return self.restore_and_use(random),
            51..=62 => return self.configure(random),
            63 if random.percent(20) => say("CLIENT KILL TYPE normal SKIPME yes|no", random),
            64 if random.percent(20) => cmd!["CLIENT", "KILL", "ID", words::anything(random)],
            63..=66 => cmd!["CLIENT", "KILL", "ID", self.client(random)],
            67..=70 => cmd!["WATCH", key],
            // Holds all clients up, and sends what is to be held up.
            71..=75 if pauses => {
                let kind = *random.pick(&["WRITE", "WRITE", "ALL"]);
                let pause = cmd!["CLIENT", "PAUSE", 1 + random.below(20), kind];
                return [vec![pause], self.some_of_ours(4, random)].concat();
            }
            76..=79 if pauses => cmd!["CLIENT", "UNPAUSE"],
            71..=79 => {
                let how = *random.pick(&["TIMEOUT", "ERROR"]);
                cmd!["CLIENT", "UNBLOCK", self.client(random), how]
            }
            80 => say("CLIENT REPLY OFF|SKIP|ON", random),
            81..=82 => cmd!["CLIENT", "REPLY", "SKIP"],
            83..=84 => say("CLIENT NO-EVICT on|off", random),
            85..=86 => say("CLIENT TRACKING ON BCAST|OPTIN|NOLOOP", random),
            87..=88 => say("DEBUG SLEEP 0.001|0.03", random),
            89 => cmd!["DEBUG", "RELOAD"],
            90 if random.percent(50) => cmd!["PEXPIREAT", key, far_end(random)],
            90 => say("SWAPDB 0 1|2", random),
            91 => return self.condemn(random),
            92 => [say("DEBUG OBJECT|LISTPACK|HTSTATS-KEY", random), vec![key]].concat(),
            93..=94 => say("DEBUG SET-ACTIVE-EXPIRE 0|1", random),
            95 => cmd!["DEBUG", "STRINGMATCH-LEN", 10, "*"],
            96 => {
                let first = vec![cmd!["REPLICAOF", "127.0.0.1", 1]];
                let last = vec![cmd!["REPLICAOF", "NO", "ONE"]];
                return [first, self.some_of_ours(4, random), last].concat();
            }
            _ => say("SELECT 0|1|2", random),
        };
        vec![one]
    }

    /// The number of a client that is connected, most likely.
    fn client(&self, random: &mut Random) -> u64 {
        self.clients.load(Ordering::SeqCst).saturating_sub(random.below(40))
    }

    /// A user that is deleted while its connections wait, and while they are served.
    fn condemn(&self, random: &mut Random) -> Vec<Words> {
        if random.percent(50) {
            let (first, some) = (self.ours(random), self.some_of_ours(3, random));
            let last = vec![cmd!["ACL", "DELUSER", "guest"], cmd!["EXEC"]];
            return [vec![cmd!["MULTI"], first], some, last].concat();
        }
        vec![
            cmd!["ACL", "SETUSER", "guest", "on", "nopass", "~*", "&*", "+@all"],
            cmd!["AUTH", "guest", "x"],
        ]
    }

    /// Changes an option, does something, and puts it back, unless the connection breaks: then
    /// others do it, sooner or later.
    fn configure(&self, random: &mut Random) -> Vec<Words> {
        let (name, values, was) = random.pick(&self.options);
        let set = cmd!["CONFIG", "SET", name, words::one_of(values, random)];
        let back = cmd!["CONFIG", "SET", name, was];
        [vec![set], self.some_of_ours(6, random), vec![back]].concat()
    }

    /// Commands after which the server serves everybody again.
    pub(crate) fn put_all_back(&self) -> Vec<Words> {
        let options = self.options.iter().map(|(name, _, was)| cmd!["CONFIG", "SET", name, was]);
        options.chain([cmd!["REPLICAOF", "NO", "ONE"], cmd!["CLIENT", "UNPAUSE"]]).collect()
    }

    fn transaction(&self, random: &mut Random) -> Vec<Words> {
        let mut words = Vec::new();
        if random.percent(40) {
            words.push(cmd!["WATCH", *random.pick(&KEYS)]);
        }
        words.push(cmd!["MULTI"]);
        for _ in 0..random.below(5) {
            words.push(self.any(75, random));
        }
        if random.percent(20) {
            words.push(self.restore(random.pick(&KEYS).to_vec(), random));
        }
        words.push(if random.percent(90) { cmd!["EXEC"] } else { cmd!["DISCARD"] });
        words
    }

    /// Values of locks, or nearly so, and what the module makes of them.
    fn restore_and_use(&self, random: &mut Random) -> Vec<Words> {
        let times = 1 + random.below(12);
        let both = |_| {
            let ours = self.ours(random);
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
        self.damaged.fetch_add(u64::from(payload != *whole), Ordering::SeqCst);
        let mut words = cmd!["RESTORE", key, random.pick(&[0_u64, 1, 30, 10_000]), payload];
        if random.percent(80) {
            words.push(b"REPLACE".to_vec());
        }
        words
    }
}

/// The end of a key that nobody will live to see, near where numbers wrap around when milliseconds
/// become microseconds, and far from it.
fn far_end(random: &mut Random) -> u64 {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() * 1000);
    let ages_ms = [18_446_744_073_709_552, 9_223_372_036_854_775, 1 << 61, (1 << 62) + 1];
    (now_ms + random.pick(&ages_ms)).saturating_sub(random.below(3))
}

/// Puts one with many holders, live, expired or about to expire together, at a key of locks or
/// semaphores; or first at another, and in the place of that one. Of some the server lets fields end.
fn crowd(random: &mut Random) -> Vec<Words> {
    let family = *random.pick(&[b"LOCK", b"SEM."]);
    let key = words::key_of(family, random);
    let (at, replace) = match random.below(4) {
        0 => (&b"crowd"[..], Some(cmd!["RENAME", "crowd", key])),
        1 => (&b"crowd"[..], Some(cmd!["COPY", "crowd", key, "REPLACE"])),
        2 => (&key[..], Some(cmd!["SWAPDB", 0, 1])),
        _ => (&key[..], None),
    };
    let mode = *random.pick(&["shared", "semaphore 3 3", "semaphore 2000 2000"]);
    let (count, ends) = (*random.pick(&[3, 200, 1_500]), *random.pick(&[-1_000, 5, 30, 100_000]));
    let mut all = vec![cmd!["EVAL", CROWD, 1, at, mode, count, ends]];
    all.extend(replace);
    if random.percent(30) {
        let count = random.below(20);
        let mut end = cmd!["HPEXPIRE", key, *random.pick(&[1, 50]), "FIELDS", count];
        end.extend((0..count).map(|n| format!("h{n}").into_bytes()));
        all.push(end);
    }
    all
}
