//! Values that pass through the fence: replies, events and the kinds of keys. They contain no raw pointers.

use std::borrow::Cow;
use std::ffi::CStr;

/// Reply of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Nil, for example if a lock is not granted or not held.
    Nil,
    Number(u64),
    /// Two numbers: a token and the number of holds.
    Pair(u64, u64),
    Bytes(Vec<u8>),
    /// Fixed text.
    Word(&'static str),
    List(Vec<Self>),
    /// Names and values; a flat list in RESP2.
    Map(Vec<(&'static str, Self)>),
    /// An error: a code and a sentence.
    Error(Cow<'static, CStr>),
    /// No reply at this time: the client is blocked, or the server only asked which arguments are keys.
    Later,
}

impl Reply {
    pub(crate) const fn error(text: &'static CStr) -> Self {
        Self::Error(Cow::Borrowed(text))
    }

    pub(crate) fn or_nil<T>(value: Option<T>, reply: impl FnOnce(T) -> Self) -> Self {
        value.map_or(Self::Nil, reply)
    }
}

/// Type of the value at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Empty,
    String,
    Hash,
    Other,
}

/// A change of a key. The module must not write while it handles the event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyEvent<'a> {
    pub(crate) db: i32,
    pub(crate) key: &'a [u8],
    /// `true` if the key expired, `false` for any other change.
    pub(crate) expired: bool,
}

/// An event of the server. The module must not write while it handles the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerEvent {
    BecamePrimary,
    BecameReplica,
    /// A replica connected or disconnected.
    ReplicasChanged,
    /// A database was flushed. `None` if all databases were flushed.
    Flushed(Option<i32>),
    /// Two databases were swapped.
    Swapped(i32, i32),
    /// A data set was loaded.
    Loaded,
    /// The server's cron ran, by default about ten times per second.
    Cron,
    /// The connection of the client with this id is being closed.
    ClientClosed(u64),
}
