//! What stands in the place of an argument: few names, so that everything meets everything, and
//! now and then what nobody expects.

use harness::random::Random;
use std::collections::VecDeque;
use std::sync::Mutex;

/// Keys. One of them is a name that belongs to the module.
pub(super) const KEYS: [&[u8]; 8] =
    [b"k1", b"k2", b"k3", b"{k1}x", b"s", b"l", b"\xff\0\r\nk", b"kvlock:floor"];

/// Owners, members, and fields of a lock's hash.
const OWNERS: [&[u8]; 7] =
    [b"ann", b"anna", b"bob", b"\0\xfe\r\n", b"fencing-token", b"lock-mode", b"lock-value"];

/// Values of such fields, good and bad.
const VALUES: [&[u8]; 18] = [
    b"v10.0.0.7:80",
    b"v",
    b"1",
    b"2",
    b"0",
    b"-1",
    b"shared",
    b"exclusive 1",
    b"exclusive 99999999999",
    b"1 99999999999999",
    b"3 1",
    b"semaphore 3 1",
    b"semaphore 2 4294967295",
    b"semaphore 0 0",
    b"latch 2",
    b"9007199254740991",
    b"18446744073709551615",
    b"01",
];

/// Whole numbers. None so large, and yet allowed, that a string of that length would be made.
const NUMBERS: [&[u8]; 20] = [
    b"0",
    b"1",
    b"1",
    b"2",
    b"3",
    b"5",
    b"30",
    b"100",
    b"1000",
    b"-1",
    b"-2",
    b"-0",
    b"+1",
    b"01",
    b"1e3",
    b"4294967295",
    b"4294967296",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551616",
];

/// A key for a command of the module: each family has its own.
pub(super) fn key_of(family: &[u8], random: &mut Random) -> Vec<u8> {
    match family.get(..2) {
        Some(b"LO") => random.pick(&KEYS[..4]).to_vec(),
        Some(b"SE") => b"s".to_vec(),
        _ => b"l".to_vec(),
    }
}

/// A word for an argument of that kind and name, as `COMMAND DOCS` calls them.
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
    let short: &[&[u8]] = match (kind, name) {
        ("key", _) => &KEYS,
        (_, "owner" | "participant") if random.percent(90) => &OWNERS[..4],
        (_, "lease-ms") if random.percent(90) => &[b"1", b"5", b"20", b"100", b"1000", b"100000"],
        (_, "lease-ms") => &[b"86400000", b"86400001", b"0", b"-1", b"18446744073709551615"],
        (_, "timeout-ms") => &[b"1", b"5", b"5", b"20", b"20", b"100", b"1000", b"0"],
        (_, "ttl-ms") => &[b"100", b"100", b"300", b"1000"],
        (_, "ack") => &[b"0", b"0", b"0", b"1", b"3", b"100"],
        (_, "lifetime-ms") => &[b"1", b"10", b"100", b"100000"],
        (_, "permits" | "n" | "count") if random.percent(90) => &[b"1", b"1", b"2", b"3", b"5"],
        (_, "permits" | "n" | "count") => &[b"0", b"4294967294", b"4294967295", b"4294967296"],
        (_, "numkeys") => &[b"1", b"1", b"2", b"3"],
        (_, "index" | "index1" | "index2" | "destination-db" | "db") => &[b"0", b"1", b"2"],
        // Of a command that blocks; in seconds or milliseconds.
        (_, "timeout") => &[b"0.01", b"1", b"2", b"10"],
        (_, "milliseconds" | "unix-time-milliseconds") => &[b"1", b"30", b"1000", b"2000000000000"],
        (_, "seconds") => &[b"1", b"10", b"100"],
        ("integer" | "unix-time", _) => &NUMBERS,
        ("double", _) => &[b"0", b"1.5", b"-3", b"inf", b"nan", b"1e308"],
        ("pattern", _) => &[b"*", b"k*", b"[", b"\\", b"kvlock.*"],
        (_, "field" | "member" | "element") => &OWNERS,
        (_, "value") => &VALUES,
        ("string", _) if random.percent(50) => &VALUES,
        _ => &OWNERS,
    };
    random.pick(short).to_vec()
}

/// The sessions that were opened last.
static SESSIONS: Mutex<VecDeque<Vec<u8>>> = Mutex::new(VecDeque::new());

/// A session was opened.
pub(super) fn note_session(name: &[u8]) {
    let mut sessions = SESSIONS.lock().unwrap();
    sessions.push_back(name.to_vec());
    if sessions.len() > 3 {
        sessions.pop_front();
    }
}

fn some_session(random: &mut Random) -> Option<Vec<u8>> {
    let sessions = SESSIONS.lock().unwrap();
    let at = random.below(sessions.len().max(1) as u64) as usize;
    sessions.get(at).cloned()
}

/// A word that nobody expects there.
pub(super) fn anything(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => Vec::new(),
        1 => (0..random.below(20)).map(|_| random.below(256) as u8).collect(),
        2 => vec![b'x'; random.below(1 << 17) as usize],
        3 => vec![b'9'; 1 + random.below(40) as usize],
        4 => random.pick(&VALUES).to_vec(),
        5 => random.pick(&KEYS).to_vec(),
        6 => random.pick(&NUMBERS).to_vec(),
        _ => b"SHARED".to_vec(),
    }
}
