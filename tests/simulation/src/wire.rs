//! Messages between clients and servers: commands, replies, and the protocol.

use crate::client::Names;
use crate::redis::Reply;
use kvlock_core::SessionName;
use std::fmt;

/// A lock.
pub(crate) type Key = usize;
/// Number of a client.
pub(crate) type ClientId = usize;
/// Number of a server.
pub(crate) type ServerId = usize;
/// Number of a connection.
pub(crate) type ConnId = usize;
/// Number of a request.
pub(crate) type CallId = u64;

/// An owner, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner(pub(crate) usize);

impl Owner {
    /// Parses an owner's name.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        decimal(text.strip_prefix(b"o")?).map(Self)
    }

    pub(crate) fn text(self) -> Vec<u8> {
        format!("{self:?}").into_bytes()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "o{}", self.0)
    }
}

/// A lock, and an owner that holds it or waits for it.
pub(crate) type Place = (Key, Owner);

/// The key of a lock.
pub(crate) fn key_name(key: Key) -> String {
    format!("lock{key}")
}

/// The lock with the given key.
pub(crate) fn key_of(name: &[u8]) -> Option<Key> {
    decimal(name.strip_prefix(b"lock")?)
}

/// The key of the result for the given lock.
pub(crate) fn result_name(key: Key) -> String {
    format!("result{key}")
}

/// Returns whether a key holds a result.
pub(crate) fn is_result(name: &[u8]) -> bool {
    name.starts_with(b"result")
}

fn decimal<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A command.
#[derive(Clone)]
pub(crate) struct Request {
    words: Vec<Vec<u8>>,
    /// The client's value of `HOLDS`, even if a switched-off safeguard removed it from the command.
    pub(crate) holds: Option<u64>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The arguments of `CLIENT` contain random values that do not depend on the seed.
        let shown = if self.name() == b"CLIENT" { 1 } else { self.words.len() };
        f.write_str(&String::from_utf8_lossy(&self.words[..shown].join(&b' ')))
    }
}

impl Request {
    /// A client's command, with a name for the owner that depends only on the seed.
    pub(crate) fn new(mut words: Vec<Vec<u8>>, names: &mut Names) -> Self {
        if words[0].starts_with(b"LOCK.") {
            words[2] = names.owner(&words[2]).text();
        }
        let mut new = Self { words, holds: None };
        new.holds = new.option("HOLDS").and_then(decimal);
        new
    }

    pub(crate) fn words(&self) -> &[Vec<u8>] {
        &self.words
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.words[0]
    }

    /// Returns whether the server treats the command as a write.
    pub(crate) fn writes(&self) -> bool {
        self.name().starts_with(b"LOCK.")
    }

    /// Returns whether the command is an acquire or a renewal. Their leases count from before they were sent.
    pub(crate) fn sets_lease(&self) -> bool {
        [&b"LOCK.ACQUIRE"[..], b"LOCK.RENEW"].contains(&self.name())
    }

    /// The first lock of the request, with the owner.
    pub(crate) fn place(&self) -> Option<Place> {
        let owner = Owner::read(self.words.get(2)?)?;
        Some((key_of(&self.words[1])?, owner))
    }

    /// Returns whether the command names several locks.
    pub(crate) fn is_of_set(&self) -> bool {
        ["WITH", "UNDER"].iter().any(|word| self.option_at(word).is_some())
    }

    /// The locks of the request, and for each whether it is shared.
    pub(crate) fn locks(&self) -> Vec<(Key, bool)> {
        let shared = self.option_at("SHARED").is_some();
        let first = self.words.get(1).and_then(|name| key_of(name));
        let mut locks: Vec<_> = first.into_iter().map(|key| (key, shared)).collect();
        for (word, shared) in [("WITH", shared), ("UNDER", true)] {
            let Some(at) = self.option_at(word) else { continue };
            let names = self.words[at + 2..].iter().take(self.number(at + 1) as usize);
            locks.extend(names.filter_map(|name| key_of(name)).map(|key| (key, shared)));
        }
        locks
    }

    /// The locks of the request, each with the owner.
    pub(crate) fn places(&self) -> Vec<Place> {
        let owner = self.place().map(|(_, owner)| owner);
        let keys = self.locks().into_iter().map(|(key, _)| key);
        owner.into_iter().flat_map(|owner| keys.clone().map(move |key| (key, owner))).collect()
    }

    /// The argument at that position, as a number.
    ///
    /// # Panics
    ///
    /// If there is none, or it is not a number.
    pub(crate) fn number(&self, at: usize) -> u64 {
        decimal(&self.words[at]).expect("a number")
    }

    pub(crate) fn set_number(&mut self, at: usize, number: u64) {
        self.words[at] = number.to_string().into_bytes();
    }

    fn option_at(&self, word: &str) -> Option<usize> {
        self.words.iter().position(|said| said == word.as_bytes())
    }

    /// The argument after a keyword.
    pub(crate) fn option(&self, word: &str) -> Option<&[u8]> {
        self.words.get(self.option_at(word)? + 1).map(Vec::as_slice)
    }

    /// Removes a keyword and its argument.
    pub(crate) fn leave_out(&mut self, word: &str) {
        if let Some(at) = self.option_at(word) {
            self.words.drain(at..at + 2);
        }
    }

    /// The session of the request.
    pub(crate) fn session(&self) -> Option<SessionName> {
        let is_of_one = self.name().starts_with(b"SESSION.");
        let name =
            if is_of_one { self.words.get(1).map(Vec::as_slice) } else { self.option("SESSION") };
        name?.try_into().ok()
    }
}

/// Removes one complete command from the received bytes.
pub(crate) fn take(bytes: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut at = 0;
    let mut count = length(bytes, &mut at, b'*')?;
    let mut words = Vec::new();
    while count > 0 {
        let length = length(bytes, &mut at, b'$')?;
        words.push(bytes.get(at..at + length)?.to_vec());
        at += length + 2;
        count -= 1;
    }
    (at <= bytes.len()).then(|| bytes.drain(..at))?;
    Some(words)
}

fn length(bytes: &[u8], at: &mut usize, kind: u8) -> Option<usize> {
    let rest = bytes.get(*at..)?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    assert_eq!(rest[0], kind, "{}", rest.escape_ascii());
    *at += end + 2;
    decimal(&rest[1..end])
}

/// Writes a reply for a client, with the client's own names of owners.
pub(crate) fn write(to: &mut Vec<u8>, reply: &Reply, names: &Names) {
    match reply {
        Reply::Number(number) => to.extend(format!(":{number}\r\n").bytes()),
        Reply::Word("OK") => to.extend(b"+OK\r\n"),
        Reply::Word(word) => write(to, &Reply::Bytes(word.as_bytes().to_vec()), names),
        Reply::Bytes(bytes) => {
            let bytes = names.said(bytes);
            to.extend(format!("${}\r\n", bytes.len()).bytes());
            to.extend(bytes);
            to.extend(b"\r\n");
        }
        Reply::Pair(one, other) => {
            let both = [one, other].map(|number| Reply::Number(*number));
            write(to, &Reply::List(both.into()), names);
        }
        Reply::List(all) => {
            to.extend(format!("*{}\r\n", all.len()).bytes());
            all.iter().for_each(|one| write(to, one, names));
        }
        Reply::Error(error) => {
            to.push(b'-');
            to.extend(error.to_bytes());
            to.extend(b"\r\n");
        }
        Reply::Nil | Reply::Map(_) | Reply::Later => to.extend(b"$-1\r\n"),
    }
}

pub(crate) const OK: Reply = Reply::Word("OK");
pub(crate) const TRY_AGAIN: Reply = Reply::error(c"TRYAGAIN not now");
