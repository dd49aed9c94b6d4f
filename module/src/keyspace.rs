//! A lock in the keyspace: reads what a key says.

use kvlock_core::{
    Bug, COUNTED, Holding, KeyRef, MODE_FIELD, Mode, Now, OWNER_BYTES_MAX, Observed,
    RELEASE_MESSAGE, Share, Sharing, Situation, TOKEN_FIELD, Token, UnixMillis,
};

use crate::floor::FLOOR_PREFIX;
use crate::redis::{Arg, Key, KeyKind, Text};

/// Strings that are used again and again.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) token_field: Text,
    pub(crate) mode_field: Text,
    pub(crate) shared: Text,
    pub(crate) one: Text,
    pub(crate) counted: Text,
    pub(crate) redisson_mode: Text,
    pub(crate) message: Text,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            token_field: Text::new(TOKEN_FIELD),
            mode_field: Text::new(MODE_FIELD),
            shared: Text::new(Mode::Shared.text().as_bytes()),
            one: Text::new(b"1"),
            counted: Text::new(COUNTED),
            redisson_mode: Text::new(b"mode"),
            message: Text::new(RELEASE_MESSAGE),
        }
    }
}

/// What a key said when it was read.
#[derive(Debug)]
pub(crate) enum Seen {
    Free {
        stored: Option<Token>,
        /// Whether there is something at the key that must go before a lock can be there.
        remnant: bool,
    },
    /// The owner that was asked for holds it.
    Own {
        holds: u64,
        shared: u64,
        token: Option<Token>,
        until: Option<UnixMillis>,
    },
    Other {
        owner: Vec<u8>,
        holds: u64,
        shared: u64,
        token: Option<Token>,
        until: Option<UnixMillis>,
    },
    Shared(Shared),
    NotALock {
        until: Option<UnixMillis>,
    },
}

/// A shared lock as it was read; see [`Sharing`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    pub(crate) own: Option<Share>,
    pub(crate) token: Option<Token>,
    pub(crate) until: Option<UnixMillis>,
    pub(crate) holders: usize,
    pub(crate) living: Option<UnixMillis>,
}

impl Seen {
    const NOTHING: Self = Self::Free { stored: None, remnant: false };

    /// The same for the lock table. `asked` is the owner that was asked for.
    pub(crate) fn observed<'a>(&'a self, asked: &'a [u8]) -> Observed<'a> {
        match self {
            Self::Free { stored, .. } => Observed::Free { stored: *stored },
            Self::Own { holds, shared, token, until } => {
                let (holds, shared, token, until) = (*holds, *shared, *token, *until);
                Observed::Held(Holding { owner: asked, holds, shared, token, until })
            }
            Self::Other { owner, holds, shared, token, until } => {
                let (holds, shared, token, until) = (*holds, *shared, *token, *until);
                Observed::Held(Holding { owner, holds, shared, token, until })
            }
            Self::Shared(Shared { own, token, until, holders, living }) => {
                let (own, token, until, holders) = (*own, *token, *until, *holders);
                Observed::Shared(Sharing { asked, own, token, until, holders, living: *living })
            }
            Self::NotALock { until } => Observed::NotALock { until: *until },
        }
    }

    /// Says whether there is something at the key of a free lock.
    pub(crate) fn is_remnant(&self) -> bool {
        matches!(self, Self::Free { remnant: true, .. })
    }

    /// Everything the lock table wants to know.
    pub(crate) fn situation<'a>(
        &'a self,
        key: KeyRef<'a>,
        asked: &'a [u8],
        now: Now,
        floor: Option<u64>,
    ) -> Situation<'a> {
        Situation { key, seen: self.observed(asked), now, floor }
    }
}

/// The most fields that a lock has while one owner holds it and nothing else.
const PLAIN_MAX: usize = 2;

/// The most fields that a lock has while one owner holds it alone, and shares it beside.
const FIELDS_MAX: usize = 3;

/// More bytes than a value of ours has: two numbers of 64 bits and a space.
const VALUE_MAX: usize = 42;

/// Reads a lock from its key. If `asked` holds it alone, that takes no copy of anything.
pub(crate) fn read(
    key: Option<&Key<'_>>,
    words: &Words,
    name: Arg<'_>,
    asked: Option<Arg<'_>>,
) -> Seen {
    if name.bytes().starts_with(FLOOR_PREFIX) {
        return Seen::NotALock { until: None };
    }
    let Some(key) = key else { return Seen::NOTHING };
    match key.kind() {
        KeyKind::Empty => Seen::NOTHING,
        KeyKind::Hash => {
            let (fields, until) = (key.fields(), key.expires().map(UnixMillis));
            if fields > PLAIN_MAX {
                return read_moded(key, words, asked, fields, until);
            }
            let own = asked.and_then(|asked| read_own(key, words, asked, fields, until));
            own.unwrap_or_else(|| read_fields(key, words, asked, until))
        }
        KeyKind::String | KeyKind::Other => Seen::NotALock { until: key.expires().map(UnixMillis) },
    }
}

/// Reads the lock as one that `asked` holds; `None` if that is not all there is to it.
fn read_own(
    key: &Key<'_>,
    words: &Words,
    asked: Arg<'_>,
    fields: usize,
    until: Option<UnixMillis>,
) -> Option<Seen> {
    let [holds, token] = key.get_two(asked, words.token_field.lend());
    let holds = Observed::read_holds(holds?.lend().bytes())?;
    let alone = fields == 1 + usize::from(token.is_some());
    let token = token.and_then(|token| Token::read(token.lend().bytes()));
    alone.then_some(Seen::Own { holds, shared: 0, token, until })
}

/// Reads a hash whose fields may be those of many, or of one in both modes.
fn read_moded(
    key: &Key<'_>,
    words: &Words,
    asked: Option<Arg<'_>>,
    fields: usize,
    until: Option<UnixMillis>,
) -> Seen {
    let (mode_field, token_field) = (words.mode_field.lend(), words.token_field.lend());
    let asked_for = asked.unwrap_or(token_field);
    let theirs = words.redisson_mode.lend();
    let [mode, token, own, theirs] = key.get_four([mode_field, token_field, asked_for, theirs]);
    // A read-write lock of Redisson has moved in, which does not look at what is there.
    let is_theirs =
        theirs.is_some_and(|mode| [&b"read"[..], b"write"].contains(&mode.lend().bytes()));
    if is_theirs {
        return Seen::NotALock { until };
    }
    let own = own.filter(|_| asked.is_some());
    let mode = mode.and_then(|mode| Mode::read(mode.lend().bytes()));
    let others = fields - 1 - usize::from(token.is_some());
    let token = token.and_then(|token| Token::read(token.lend().bytes()));
    match (mode, own) {
        (Some(Mode::Shared), _) if others == 0 => Seen::Free { stored: token, remnant: true },
        (Some(Mode::Shared), own) => {
            let share = own.as_ref().and_then(|own| Share::read(own.lend().bytes()));
            if own.is_some() && share.is_none() {
                return Seen::NotALock { until };
            }
            Seen::Shared(Shared { own: share, token, until, holders: others, living: None })
        }
        (Some(Mode::Exclusive(shared)), Some(own)) if others == 1 => {
            let holds = Observed::read_holds(own.lend().bytes());
            holds.map_or(Seen::NotALock { until }, |holds| Seen::Own {
                holds,
                shared,
                token,
                until,
            })
        }
        (Some(Mode::Exclusive(_)), None) if fields <= FIELDS_MAX => {
            read_fields(key, words, asked, until)
        }
        _ if Bug::DiesOfHashes.is_planted() => std::process::abort(),
        _ => Seen::NotALock { until },
    }
}

/// Reads a small hash whose fields may be anything.
fn read_fields(
    key: &Key<'_>,
    words: &Words,
    asked: Option<Arg<'_>>,
    until: Option<UnixMillis>,
) -> Seen {
    let mut fields = Vec::with_capacity(FIELDS_MAX);
    key.for_each(&mut |field, value| {
        // No name or value is longer; of anything that is, the beginning is enough to see it.
        let field = field.get(..=OWNER_BYTES_MAX).unwrap_or(field);
        let value = value.get(..VALUE_MAX).unwrap_or(value);
        fields.push((field.to_vec(), value.to_vec()));
    });
    let all = fields.iter().map(|(field, value)| (field.as_slice(), value.as_slice()));
    match Observed::from_fields(all, until) {
        Observed::Free { stored } => Seen::Free { stored, remnant: true },
        Observed::NotALock { until } => Seen::NotALock { until },
        Observed::Shared(_) => read_moded(key, words, asked, fields.len(), until),
        Observed::Held(Holding { owner, holds, shared, token, until }) => {
            Seen::Other { owner: owner.to_vec(), holds, shared, token, until }
        }
    }
}
