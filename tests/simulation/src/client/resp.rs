//! The protocol of the server, as far as the crate speaks it.

use super::Names;
use crate::wire::{Key, Reply, Request, Wish};
use kvlock_core::{SessionName, arguments};

/// The longest lease, in milliseconds.
const MOST: u64 = 315_360_000_000;

/// Takes a whole command off what has come.
pub(super) fn take(bytes: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut at = 0;
    let mut count = number(bytes, &mut at, b'*')?;
    let mut words = Vec::new();
    while count > 0 {
        let length = number(bytes, &mut at, b'$')?;
        words.push(bytes.get(at..at + length)?.to_vec());
        at += length + 2;
        count -= 1;
    }
    (at <= bytes.len()).then(|| bytes.drain(..at))?;
    Some(words)
}

fn number(bytes: &[u8], at: &mut usize, kind: u8) -> Option<usize> {
    let rest = bytes.get(*at..)?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    assert_eq!(rest[0], kind, "{}", rest.escape_ascii());
    *at += end + 2;
    std::str::from_utf8(&rest[1..end]).ok()?.parse().ok()
}

/// What a command asks for. The module's own reading of arguments decides what they mean.
///
/// # Panics
///
/// If the crate says what nobody has taught this.
pub(super) fn request(words: &[Vec<u8>], names: &mut Names) -> Request {
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let (name, args) = words.split_first().expect("a command has a name");
    match *name {
        b"LOCK.ACQUIRE" => {
            let ([key, owner, lease], options) = head(args);
            let (session, options) = arguments::session(options).expect("options");
            let (bound, options) = arguments::bound(&options).expect("options");
            Request::Acquire(wish(names, [key, owner, lease], &options, session.filter(|_| bound)))
        }
        b"LOCK.WAIT" => {
            let ([key, owner, lease, timeout], options) = head(args);
            let (session, options) = arguments::session(options).expect("options");
            let timeout_ms = arguments::timeout(timeout).expect("a timeout").map(|time| time.0);
            let wish = wish(names, [key, owner, lease], &options, session);
            Request::Wait { wish, timeout_ms }
        }
        b"LOCK.RELEASE" => {
            let ([key, owner], options) = head(args);
            let (want, options) = arguments::want(options);
            let amount = arguments::amount(options).expect("an amount");
            Request::Release { key: names.key(key), owner: names.owner(owner), want, amount }
        }
        b"LOCK.RENEW" => {
            let ([key, owner, lease], options) = head(args);
            let renewal = arguments::renewal(owner, lease, options, MOST).expect("a renewal");
            let (lease_ms, token) = (renewal.0.0, renewal.1.map(|token| token.value()));
            let (key, owner) = (names.key(key), names.owner(owner));
            Request::Renew { key, owner, lease_ms, token }
        }
        b"LOCK.CANCEL" => {
            let ([key, owner], _) = head(args);
            Request::Cancel { key: names.key(key), owner: names.owner(owner) }
        }
        b"SESSION.OPEN" if args.is_empty() => Request::Incomplete,
        b"SESSION.OPEN" => {
            let ([ttl], _) = head(args);
            Request::Open { ttl_ms: arguments::ttl(ttl).expect("a ttl").0 }
        }
        b"SESSION.NEXT" => {
            let ([session, ack, timeout], options) = head(args);
            let (ack, timeout, most) = arguments::next(ack, timeout, options).expect("a read");
            Request::Next { session: session_name(session), ack, timeout_ms: timeout.0, most }
        }
        b"SESSION.CLOSE" => {
            let ([session], _) = head(args);
            Request::Close { session: session_name(session) }
        }
        b"ROLE" => Request::Role,
        b"WAIT" => {
            let ([wanted, timeout], _) = head(args);
            Request::Replicas { wanted: count(wanted) as usize, timeout_ms: count(timeout) }
        }
        b"INFO" => Request::Info,
        b"CLIENT" | b"HELLO" | b"PING" | b"SELECT" => Request::Ping,
        other => panic!("{} is not known here", other.escape_ascii()),
    }
}

/// What is wanted of a lock: its name, the owner, the lease.
fn wish(
    names: &mut Names,
    [key, owner, lease]: [&[u8]; 3],
    options: &[&[u8]],
    session: Option<&[u8]>,
) -> Wish {
    let asked = arguments::acquire(owner, lease, options, MOST).expect("what to acquire");
    let (want, lease_ms, holds) = (asked.want, asked.lease.0, asked.holds);
    let (key, owner) = (names.key(key), names.owner(owner));
    Wish { key, owner, want, lease_ms, holds, session: session.map(session_name) }
}

fn count(digits: &[u8]) -> u64 {
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).expect("a number")
}

fn head<'a, 'b, const N: usize>(args: &'b [&'a [u8]]) -> ([&'a [u8]; N], &'b [&'a [u8]]) {
    let (head, rest) = args.split_first_chunk::<N>().expect("enough arguments");
    (*head, rest)
}

fn session_name(name: &[u8]) -> SessionName {
    name.try_into().expect("the name of a session")
}

/// An answer as bytes.
pub(crate) fn encode(reply: &Reply) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, reply);
    bytes
}

fn write(to: &mut Vec<u8>, reply: &Reply) {
    match reply {
        Reply::Int(number) => to.extend(format!(":{number}\r\n").bytes()),
        Reply::Text(text) => {
            to.extend(format!("${}\r\n", text.len()).bytes());
            to.extend(text);
            to.extend(b"\r\n");
        }
        Reply::List(all) => {
            to.extend(format!("*{}\r\n", all.len()).bytes());
            all.iter().for_each(|one| write(to, one));
        }
        Reply::Nil => to.extend(b"$-1\r\n"),
        Reply::Fine => to.extend(b"+OK\r\n"),
        Reply::Error(error) => to.extend(format!("-{error}\r\n").bytes()),
    }
}

/// What clients call a lock.
pub(crate) fn key_name(key: Key) -> String {
    format!("lock{key}")
}

impl Names {
    fn key(&self, name: &[u8]) -> Key {
        let text = String::from_utf8_lossy(name);
        text.strip_prefix("lock").and_then(|number| number.parse().ok()).expect("a lock")
    }
}
