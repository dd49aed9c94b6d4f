//! What goes through the fence, as values: replies, events and the kinds of keys. Nothing here sees a pointer.

use std::borrow::Cow;
use std::ffi::CStr;

/// What a command answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Nil: not held, not granted.
    Nil,
    /// A number.
    Number(u64),
    /// Two numbers: a token and the number of holds.
    Pair(u64, u64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Fixed text.
    Word(&'static str),
    /// A list.
    List(Vec<Self>),
    /// Names and values; a flat list in RESP2.
    Map(Vec<(&'static str, Self)>),
    /// Trouble: a code and a sentence.
    Error(Cow<'static, CStr>),
    /// None yet: the client is parked.
    Later,
}

impl Reply {
    /// An error with fixed text.
    pub(crate) const fn error(text: &'static CStr) -> Self {
        Self::Error(Cow::Borrowed(text))
    }

    /// A value, or nil.
    pub(crate) fn or_nil<T>(value: Option<T>, reply: impl FnOnce(T) -> Self) -> Self {
        value.map_or(Self::Nil, reply)
    }
}

/// What kind of value a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// No value.
    Empty,
    /// A string.
    String,
    /// A hash.
    Hash,
    /// Anything else.
    Other,
}

/// Something happened to a key. Nothing may be written in answer to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyEvent<'a> {
    /// The database it is in.
    pub(crate) db: i32,
    /// Its name.
    pub(crate) key: &'a [u8],
    /// Whether the key expired, rather than being changed by a client.
    pub(crate) expired: bool,
}

/// Something happened to the server. Nothing may be written in answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerEvent {
    /// It is a primary now.
    BecamePrimary,
    /// It is a replica now.
    BecameReplica,
    /// A replica came or went.
    ReplicasChanged,
    /// A database was emptied; all of them if `None`.
    Flushed(Option<i32>),
    /// Two databases changed places.
    Swapped(i32, i32),
    /// A data set was loaded.
    Loaded,
    /// The server's regular round, about ten times a second.
    Cron,
    /// The connection of the client with this number is being closed.
    ClientClosed(u64),
}
