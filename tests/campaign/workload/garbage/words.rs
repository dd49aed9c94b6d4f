//! Words for arguments. There are few names, so that commands use the same keys. Now and then a word is
//! invalid.

use harness::random::Random;
use std::collections::VecDeque;
use std::sync::Mutex;

/// Keys. One of them is a name that belongs to the module.
pub(super) const KEYS: [&[u8]; 8] =
    [b"k1", b"k2", b"k3", b"{k1}x", b"s", b"l", b"\xff\0\r\nk", b"kvlock:floor"];

/// Owners, members, and fields of a lock's hash.
const OWNERS: [&[u8]; 7] =
    [b"ann", b"anna", b"bob", b"\0\xfe\r\n", b"fencing-token", b"lock-mode", b"lock-value"];

/// Values of the fields of a lock's hash, valid and invalid, separated by bars.
const VALUES: &str = "v10.0.0.7:80|v|1|2|0|-1|shared|exclusive 1|exclusive 99999999999|1 99999999999999|\
    3 1|semaphore 3 1|semaphore 2 4294967295|semaphore 0 0|latch 2|9007199254740991|\
    18446744073709551615|01";

/// Whole numbers, some of them written in an invalid form. None makes a command create a very long string.
const NUMBERS: &str = "0|1|1|2|3|5|30|100|1000|-1|-2|-0|+1|01|1e3|4294967295|4294967296|\
    9223372036854775807|-9223372036854775808|18446744073709551616";

/// A key for a command of the module. Each family of commands has its own keys.
pub(super) fn key_of(family: &[u8], random: &mut Random) -> Vec<u8> {
    match family.get(..2) {
        Some(b"LO") => random.pick(&KEYS[..4]).to_vec(),
        Some(b"SE") => b"s".to_vec(),
        _ => b"l".to_vec(),
    }
}

/// A word for an argument of the given kind and name, as `COMMAND DOCS` calls them.
pub(super) fn draw(kind: &str, name: &str, random: &mut Random) -> Vec<u8> {
    if random.percent(2) {
        return anything(random);
    }
    if name == "id"
        && random.percent(95)
        && let Some(session) = some_session(random)
    {
        return session;
    }
    let choices = match (kind, name) {
        ("key", _) => return random.pick(&KEYS).to_vec(),
        (_, "owner" | "participant") if random.percent(90) => {
            return random.pick(&OWNERS[..4]).to_vec();
        }
        (_, "lease-ms") if random.percent(90) => "1|5|20|100|1000|100000",
        (_, "lease-ms") => "86400000|86400001|0|-1|18446744073709551615",
        (_, "timeout-ms") => "1|5|5|20|20|100|1000|0",
        (_, "ttl-ms") => "100|100|300|1000",
        (_, "ack") => "0|0|0|1|3|100",
        (_, "lifetime-ms") => "1|10|100|100000",
        (_, "permits" | "n" | "count") if random.percent(90) => "1|1|2|3|5",
        (_, "permits" | "n" | "count") => "0|4294967294|4294967295|4294967296",
        (_, "numkeys") => "1|1|2|3",
        (_, "index" | "index1" | "index2" | "destination-db" | "db") => "0|1|2",
        // Timeouts of blocking commands, in seconds or milliseconds.
        (_, "timeout") => "0.01|1|2|10",
        (_, "milliseconds" | "unix-time-milliseconds") => "1|30|1000|2000000000000",
        (_, "seconds") => "1|10|100",
        ("integer" | "unix-time", _) => NUMBERS,
        ("double", _) => "0|1.5|-3|inf|nan|1e308",
        ("pattern", _) => "*|k*|[|\\|kvlock.*",
        (_, "value") => VALUES,
        (_, "field" | "member" | "element") => return random.pick(&OWNERS).to_vec(),
        ("string", _) if random.percent(50) => VALUES,
        _ => return random.pick(&OWNERS).to_vec(),
    };
    one_of(choices, random)
}

/// One of the words between bars.
pub(super) fn one_of(choices: &str, random: &mut Random) -> Vec<u8> {
    let choices: Vec<&str> = choices.split('|').collect();
    random.pick(&choices).as_bytes().to_vec()
}

/// Names of the last three sessions that were opened.
static SESSIONS: Mutex<VecDeque<Vec<u8>>> = Mutex::new(VecDeque::new());

/// Records a new session.
pub(super) fn note_session(name: &[u8]) {
    let mut sessions = SESSIONS.lock().unwrap();
    sessions.push_back(name.to_vec());
    if sessions.len() > 3 {
        sessions.pop_front();
    }
}

pub(super) fn some_session(random: &mut Random) -> Option<Vec<u8>> {
    let sessions = SESSIONS.lock().unwrap();
    let at = random.below(sessions.len().max(1) as u64) as usize;
    sessions.get(at).cloned()
}

/// A random word of any kind. Most do not fit the argument.
pub(super) fn anything(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => Vec::new(),
        1 => (0..random.below(20)).map(|_| random.below(256) as u8).collect(),
        2 => vec![b'x'; random.below(1 << 17) as usize],
        3 => vec![b'9'; 1 + random.below(40) as usize],
        4 => one_of(VALUES, random),
        5 => random.pick(&KEYS).to_vec(),
        6 => one_of(NUMBERS, random),
        _ => b"SHARED".to_vec(),
    }
}
