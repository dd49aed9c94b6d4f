//! Commands whose use `COMMAND DOCS` does not describe well enough: scripts, options, payloads, other clients.

use super::grammar::Grammar;
use super::words::{self, KEYS};
use harness::random::Random;
use harness::resp::split;
use harness::{Connection, cmd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Sequences of commands and their weights. Of words separated by bars, one is drawn. Words in angle brackets
/// are replaced by [`CommandSource::words`]. A command after a number is repeated at random: after `5*` it is sent up
/// to four times, or not at all.
const SEQUENCES: [(u64, &str); 43] = [
    (250, "DEL <its-key>; <it>"),
    (80, "DEL s; SEM.SET s 5; <it>"),
    (390, "RESTORE <its-key> 0|1|30|10000 <payload> REPLACE|REPLACE|REPLACE|ABSTTL; <it>"),
    (30, "MULTI; 5*<any>; EXEC|EXEC|EXEC|EXEC|DISCARD"),
    (30, "WATCH <key>; MULTI; 5*<any>; EXEC|EXEC|EXEC|EXEC|DISCARD"),
    (15, "MULTI; 5*<any>; RESTORE <key> 0|1|30|10000 <payload> REPLACE; EXEC"),
    (20, "WATCH <key>"),
    // A key with up to 1,500 holders: all live, all expired, or all about to expire. `HPEXPIRE` gives some of
    // their fields a TTL.
    (6, "<crowd>; RENAME crowd k1|k2|k3|s"),
    (6, "<crowd>; COPY crowd k1|k2|k3|s REPLACE"),
    (3, "<crowd>; RENAME crowd s; SWAPDB 0 1"),
    (3, "<crowd>; HPEXPIRE crowd 1|50 FIELDS 3 h1 h2 h3; RENAME crowd k1|k2|k3|s"),
    (3, "<crowd>; RENAME crowd <key>; HPEXPIRE <key> 1|50 FIELDS 2 h2 h17"),
    (50, "EVAL <script> 1 <key> <any>"),
    (20, "FUNCTION LOAD REPLACE <functions>"),
    (25, "FCALL f|f|g 1 <key> <ours>"),
    // The last command restores the option. If the connection breaks first, the end of the round restores it at
    // the latest.
    (60, "CONFIG SET <option> <value>; 6*<ours>; CONFIG SET <option> <was>"),
    (1, "CLIENT KILL TYPE normal SKIPME yes|no"),
    (1, "CLIENT KILL ID <junk>"),
    (18, "CLIENT KILL ID <client>"),
    // Pauses clients, and sends commands that the pause may delay.
    (25, "CLIENT PAUSE 1|3|8|20 WRITE|WRITE|ALL; 4*<ours>"),
    (20, "CLIENT UNPAUSE"),
    (45, "CLIENT UNBLOCK <client> TIMEOUT|ERROR"),
    (5, "CLIENT REPLY OFF|SKIP|ON"),
    (10, "CLIENT REPLY SKIP"),
    (10, "CLIENT NO-EVICT on|off"),
    (10, "CLIENT TRACKING ON BCAST|OPTIN|NOLOOP"),
    (10, "DEBUG SLEEP 0.001|0.03"),
    (5, "DEBUG RELOAD"),
    (5, "DEBUG OBJECT|LISTPACK|HTSTATS-KEY <key>"),
    (10, "DEBUG SET-ACTIVE-EXPIRE 0|1"),
    (5, "DEBUG STRINGMATCH-LEN 10 *"),
    (3, "PEXPIREAT <key> <ages>"),
    (3, "SWAPDB 0 1|2"),
    // A user that is deleted while its connections wait, and while they are served.
    (3, "ACL SETUSER guest on nopass ~* &* +@all; AUTH guest x"),
    (3, "MULTI; <ours>; 3*<ours>; ACL DELUSER guest; EXEC"),
    (5, "REPLICAOF 127.0.0.1 1; 4*<ours>; REPLICAOF NO ONE"),
    (
        3,
        "REPLICAOF 127.0.0.1 1; REPLICAOF NO ONE; 4*<ours>; REPLICAOF 127.0.0.1 1; REPLICAOF NO ONE",
    ),
    // Up to thousands of waits of one session.
    (6, "<waits>"),
    (4, "<waits>; DEL k1 k2 k3"),
    (4, "<waits>; SESSION.CLOSE <session>"),
    (15, "SESSION.NEXT <session> 0 0; SESSION.CLOSE <session>"),
    // A user that may only observe locks, through a session.
    (
        3,
        "ACL SETUSER reader on nopass %R~* -@all +lock.observe +session.open +session.next; AUTH reader x; 9*<ours>",
    ),
    (15, "SELECT 0|1|2"),
];

/// Options and the values to set, separated by bars. All options are restored at the end of a round.
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

/// Scripts that call a command.
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

/// Script that makes many owners hold a key. The arguments are the mode, the number of owners, and the end of their
/// leases, in milliseconds from now.
pub(crate) const CROWD: &str = "\
    local now = redis.call('TIME') \
    local till = string.format('1 %.0f', now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[3]) \
    redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'lock-mode', ARGV[1]) \
    for n = 1, tonumber(ARGV[2]) do redis.call('HSET', KEYS[1], 'h' .. n, till) end";

/// Script that queues many owners. The arguments are their number, the timeout in milliseconds, and the session.
const WAITS: &str = "for n = 1, tonumber(ARGV[1]) do \
    redis.pcall('LOCK.WAIT', KEYS[1], 'w' .. n, 50, ARGV[2], 'SESSION', ARGV[3]) end";

/// Data about a server, from which random commands are made.
#[derive(Debug)]
pub(crate) struct CommandSource {
    grammar: Grammar,
    /// Values in the format of `DUMP`.
    payloads: Vec<Vec<u8>>,
    /// Options that this server has, with the values to set and the initial value.
    options: Vec<(&'static str, &'static str, String)>,
    /// `true` if this round pauses clients; otherwise it unblocks them. All supported servers crash, also without
    /// modules, on `CLIENT UNBLOCK` of a client that a pause delays. Redis 8 with kvlock can also crash on `CLIENT
    /// UNBLOCK` while a client waits for the end of a flush.
    pub(super) pauses: AtomicBool,
    /// Approximate number of clients that the server has had.
    pub(super) clients: AtomicU64,
    /// Number of values damaged before `RESTORE`.
    pub(crate) damaged: AtomicU64,
}

pub(super) type Words = Vec<Vec<u8>>;

impl CommandSource {
    /// Reads the commands and options from the server. The payloads are values to restore.
    pub(crate) fn at(server: &mut Connection, payloads: Vec<Vec<u8>>) -> Self {
        let grammar = Grammar::of(server);
        // A server may lack some of the options.
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

    /// Starts a round. Rounds that pause clients alternate with rounds that unblock them. `clients` is the
    /// number of clients that the server has had.
    pub(crate) fn begin(&self, clients: i64) {
        self.clients.store(clients.cast_unsigned(), Ordering::SeqCst);
        self.pauses.fetch_xor(true, Ordering::SeqCst);
    }

    /// A command of the module.
    pub(super) fn ours(&self, random: &mut Random) -> Words {
        self.grammar.one_of_ours(random)
    }

    /// A command that is not one of the module's.
    pub(super) fn other(&self, random: &mut Random) -> Words {
        self.grammar.other(random)
    }

    /// A few commands that belong together.
    pub(super) fn draw(&self, random: &mut Random) -> Vec<Words> {
        let never = if self.pauses.load(Ordering::SeqCst) { "UNBLOCK" } else { "PAUSE" };
        let mut sequences = SEQUENCES.to_vec();
        sequences.retain(|(_, sequence)| !sequence.contains(never));
        let (_, sequence) = random.weighted(&sequences, |(weight, _)| *weight);
        let same = Same {
            it: self.ours(random),
            key: random.pick(&KEYS).to_vec(),
            option: random.pick(&self.options),
        };
        let mut commands = Vec::new();
        for command in sequence.split("; ") {
            let (times, command) = match command.split_once("*<") {
                Some((end, _)) => (random.below(end.parse().expect("a number")), &command[2..]),
                None => (1, command),
            };
            for _ in 0..times {
                let words = split(command).expect("no quotes");
                commands
                    .push(words.iter().flat_map(|word| self.words(word, &same, random)).collect());
            }
        }
        commands
    }

    /// Draws the replacement of a word in a sequence.
    fn words(&self, word: &[u8], same: &Same<'_>, random: &mut Random) -> Words {
        let (option, values, was) = same.option;
        let one = match word {
            b"<it>" => return same.it.clone(),
            b"<ours>" => return self.ours(random),
            b"<any>" if random.percent(80) => return self.ours(random),
            b"<any>" => return self.other(random),
            b"<crowd>" => return crowd(random),
            b"<waits>" => return waits(random),
            b"<session>" => words::some_session(random).unwrap_or_else(|| words::anything(random)),
            b"<its-key>" => same.it.get(1).unwrap_or(&same.key).clone(),
            b"<key>" => same.key.clone(),
            b"<option>" => option.as_bytes().to_vec(),
            b"<value>" => words::one_of(values, random),
            b"<was>" => was.clone().into_bytes(),
            b"<script>" => random.pick(&SCRIPTS).as_bytes().to_vec(),
            b"<functions>" => FUNCTIONS.as_bytes().to_vec(),
            b"<payload>" => self.payload(random),
            b"<junk>" => words::anything(random),
            b"<ages>" => far_end(random).to_string().into_bytes(),
            // A recent client identifier, which probably belongs to a connected client.
            b"<client>" => {
                let last = self.clients.load(Ordering::SeqCst);
                last.saturating_sub(random.below(40)).to_string().into_bytes()
            }
            choices => words::one_of(std::str::from_utf8(choices).expect("text"), random),
        };
        vec![one]
    }

    /// Commands that restore all options, make the server a primary, and end a pause of clients.
    pub(crate) fn put_all_back(&self) -> Vec<Words> {
        let options = self.options.iter().map(|(name, _, was)| cmd!["CONFIG", "SET", name, was]);
        options.chain([cmd!["REPLICAOF", "NO", "ONE"], cmd!["CLIENT", "UNPAUSE"]]).collect()
    }

    /// A payload for `RESTORE`: one of the values, often damaged.
    fn payload(&self, random: &mut Random) -> Vec<u8> {
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
        payload
    }
}

/// Words that are the same in all commands of a sequence.
struct Same<'a> {
    /// A command of the module.
    it: Words,
    key: Vec<u8>,
    option: &'a (&'static str, &'static str, String),
}

/// An expiry far in the future, in milliseconds. Some are near a limit above which the number of microseconds
/// overflows; others are far above it.
fn far_end(random: &mut Random) -> u64 {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() * 1000);
    let ages_ms = [18_446_744_073_709_552, 9_223_372_036_854_775, 1 << 61, (1 << 62) + 1];
    (now_ms + random.pick(&ages_ms)).saturating_sub(random.below(3))
}

/// A command that queues many owners for a key, through a session.
fn waits(random: &mut Random) -> Words {
    let Some(session) = words::some_session(random) else { return cmd!["PING"] };
    let (key, count) = (*random.pick(&["k1", "k2", "k3"]), *random.pick(&[100, 1_000, 3_000]));
    cmd!["EVAL", WAITS, 1, key, count, random.pick(&[1, 20, 300]), session]
}

/// A command that makes a key with many holders.
fn crowd(random: &mut Random) -> Words {
    let mode = *random.pick(&["shared", "semaphore 3 3", "semaphore 2000 2000"]);
    let (count, ends) = (*random.pick(&[3, 200, 1_500]), *random.pick(&[-1_000, 5, 30, 100_000]));
    cmd!["EVAL", CROWD, 1, "crowd", mode, count, ends]
}
