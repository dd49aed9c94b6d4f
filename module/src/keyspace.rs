//! Reads the state of a lock from its key.

use kvlock_core::{
    COUNTED, HeldBy, Holding, MODE_FIELD, Mode, OWNER_BYTES_MAX, Observed, RELEASE_MESSAGE,
    RESERVED_FIELDS, Share, Sharing, TOKEN_FIELD, Token, UnixMillis, VALUE_FIELD, value_of,
};

use crate::floor::FLOOR_PREFIX;
use crate::redis::{Arg, Key, KeyKind, Text};

/// Strings that the module often passes to the server, created once.
#[derive(Debug)]
pub(crate) struct Strings {
    pub(crate) token_field: Text,
    pub(crate) mode_field: Text,
    pub(crate) value_field: Text,
    pub(crate) shared: Text,
    pub(crate) one: Text,
    pub(crate) counted: Text,
    pub(crate) redisson_mode: Text,
    pub(crate) message: Text,
    pub(crate) replace: Text,
    pub(crate) abs_ttl: Text,
}

impl Default for Strings {
    fn default() -> Self {
        Self {
            token_field: Text::new(TOKEN_FIELD),
            mode_field: Text::new(MODE_FIELD),
            value_field: Text::new(VALUE_FIELD),
            shared: Text::new(Mode::Shared.text().as_bytes()),
            one: Text::new(b"1"),
            counted: Text::new(COUNTED),
            redisson_mode: Text::new(b"mode"),
            message: Text::new(RELEASE_MESSAGE),
            replace: Text::new(b"REPLACE"),
            abs_ttl: Text::new(b"ABSTTL"),
        }
    }
}

/// Amount of a lock's state to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The whole state, but without the names of owners other than the requesting owner. The hold count of
    /// another exclusive holder may be wrong. [`holder`] reads the name of the exclusive holder.
    Full,
    /// Only the hold count, if the requesting owner is the exclusive holder. The token is not read, so the
    /// hold time is not recorded.
    Holds,
}

/// Largest number of fields of a lock with one exclusive holder and no further state: the holder and the
/// token.
pub(crate) const PLAIN_MAX: usize = 2;

/// Largest number of fields of a lock with one exclusive holder: with its token, its value, and its shared
/// holds.
const FIELDS_MAX: usize = 4;

/// One byte more than the longest value of an owner's field, which is two 64-bit numbers and a space.
const VALUE_MAX: usize = 42;

/// Stands for a holder whose name is not read. No owner has this empty name.
const SOMEBODY: &[u8] = b"";

/// Reads a lock from its key, as seen by the owner `asked`.
pub(crate) fn read<'a>(
    key: Option<&Key<'_>>,
    strings: &Strings,
    name: &[u8],
    asked: Option<Arg<'a>>,
    depth: Depth,
) -> Observed<'a> {
    if name.starts_with(FLOOR_PREFIX) {
        return Observed::NotALock { until: None };
    }
    let kind = key.map_or(KeyKind::Empty, Key::kind);
    let Some(key) = key.filter(|_| kind != KeyKind::Empty) else {
        return Observed::Free { stored: None };
    };
    let until = || key.expires().map(UnixMillis);
    if kind != KeyKind::Hash {
        return Observed::NotALock { until: until() };
    }
    let fields = key.fields();
    if fields > PLAIN_MAX {
        let seen = read_moded(key, strings, asked, fields, until());
        return if depth == Depth::Holds { without_token(seen) } else { seen };
    }
    let plain = asked.and_then(|asked| match depth {
        Depth::Full => read_plain(key, strings, asked, fields, until()),
        Depth::Holds => read_holds(key, strings, asked, fields),
    });
    plain.unwrap_or_else(|| read_fields(key, strings, asked, until()))
}

/// Reads a small hash as a lock with one exclusive holder. If the holder is not `asked`, the holder's name
/// and hold count are not read. `None` if the fields that are read do not prove that the hash is a lock with
/// one exclusive holder. Then the caller must read all fields.
fn read_plain<'a>(
    key: &Key<'_>,
    strings: &Strings,
    asked: Arg<'a>,
    fields: usize,
    until: Option<UnixMillis>,
) -> Option<Observed<'a>> {
    let [holds, token] = key.get([asked, strings.token_field.lend()]);
    let has_token = token.is_some();
    let token = token.and_then(|token| Token::read(token.lend().bytes()));
    let (owner, holds) = match holds {
        Some(holds) if fields == 1 + usize::from(has_token) => {
            (asked.bytes(), Observed::read_holds(holds.lend().bytes())?)
        }
        None if fields == PLAIN_MAX && token.is_some() => {
            let others = key.get([strings.mode_field.lend(), strings.value_field.lend()]);
            if others.iter().any(Option::is_some) {
                return None;
            }
            (SOMEBODY, 1)
        }
        _ => return None,
    };
    Some(Observed::Held(Holding { owner, holds, shared: 0, token, until }))
}

/// Reads the number of exclusive holds of `asked`. `None` if it has none, or if the hash has a field that is
/// neither this holder nor the token.
fn read_holds<'a>(
    key: &Key<'_>,
    strings: &Strings,
    asked: Arg<'a>,
    fields: usize,
) -> Option<Observed<'a>> {
    let [holds] = key.get([asked]);
    let holds = Observed::read_holds(holds?.lend().bytes())?;
    let alone = fields == 1 || key.has(strings.token_field.lend());
    let holding = Holding { owner: asked.bytes(), holds, shared: 0, token: None, until: None };
    alone.then_some(Observed::Held(holding))
}

/// Removes the token from what was read, for [`Depth::Holds`], if the lock has one exclusive owner without
/// shared holds: its release issues no token. If the owner also has shared holds, the release of its last
/// exclusive hold issues a new token, which must be larger than this one.
fn without_token(seen: Observed<'_>) -> Observed<'_> {
    let Observed::Held(holding @ Holding { shared: 0, .. }) = seen else { return seen };
    Observed::Held(Holding { token: None, ..holding })
}

/// Reads a hash that may have many owners, or one owner with a `VALUE` or with holds of both modes.
fn read_moded<'a>(
    key: &Key<'_>,
    strings: &Strings,
    asked: Option<Arg<'a>>,
    fields: usize,
    until: Option<UnixMillis>,
) -> Observed<'a> {
    let not_a_lock = Observed::NotALock { until };
    let (mode_field, token_field) = (strings.mode_field.lend(), strings.token_field.lend());
    let asked_for = asked.unwrap_or(token_field);
    let theirs = strings.redisson_mode.lend();
    let [mode, token, own, theirs] = key.get([mode_field, token_field, asked_for, theirs]);
    // The field `mode` marks a read-write lock of Redisson, even beside our own fields: Redisson writes
    // `mode` without reading them.
    let is_theirs =
        theirs.is_some_and(|mode| [&b"read"[..], b"write"].contains(&mode.lend().bytes()));
    if is_theirs {
        return not_a_lock;
    }
    let own = own.filter(|_| asked.is_some());
    let asked_bytes = asked.map_or(SOMEBODY, Arg::bytes);
    let has_value = key.has(strings.value_field.lend());
    let reserved = [mode.is_some(), token.is_some(), has_value];
    let holders = fields - reserved.into_iter().filter(|is_there| *is_there).count();
    let mode = match mode {
        Some(mode) => Mode::read(mode.lend().bytes()),
        None => has_value.then_some(Mode::Exclusive(0)),
    };
    let token = token.and_then(|token| Token::read(token.lend().bytes()));
    match (mode, own) {
        (Some(Mode::Shared), _) if holders == 0 => Observed::Free { stored: token },
        (Some(Mode::Shared), own) => {
            let share = own.as_ref().and_then(|own| Share::read(own.lend().bytes()));
            if own.is_some() && share.is_none() {
                return not_a_lock;
            }
            let (asked, own) = (asked_bytes, share);
            Observed::Shared(Sharing { asked, own, token, until, holders, living: None })
        }
        (Some(Mode::Exclusive(shared)), Some(own)) if holders == 1 => {
            let holds = Observed::read_holds(own.lend().bytes());
            let owner = asked_bytes;
            holds.map_or(not_a_lock, |holds| {
                Observed::Held(Holding { owner, holds, shared, token, until })
            })
        }
        (Some(Mode::Exclusive(_)), None) if fields <= FIELDS_MAX => {
            read_fields(key, strings, asked, until)
        }
        _ => not_a_lock,
    }
}

/// Reads a small hash with any fields.
fn read_fields<'a>(
    key: &Key<'_>,
    strings: &Strings,
    asked: Option<Arg<'a>>,
    until: Option<UnixMillis>,
) -> Observed<'a> {
    let mut fields = Vec::with_capacity(FIELDS_MAX);
    key.for_each(&mut |field, value| {
        // Neither an owner's name nor a hold count is longer than these limits. One byte more than the
        // maximum is kept, which shows that a name or a count is too long.
        let field = field.get(..=OWNER_BYTES_MAX).unwrap_or(field);
        let value = value.get(..VALUE_MAX).unwrap_or(value);
        fields.push((field.to_vec(), value.to_vec()));
    });
    let all = fields.iter().map(|(field, value)| (field.as_slice(), value.as_slice()));
    match Observed::from_fields(all, until) {
        Observed::Free { stored } => Observed::Free { stored },
        Observed::NotALock { until } => Observed::NotALock { until },
        Observed::Shared(_) => read_moded(key, strings, asked, fields.len(), until),
        Observed::Held(holding) => {
            let owner = asked.map(Arg::bytes).filter(|asked| *asked == holding.owner);
            Observed::Held(Holding { owner: owner.unwrap_or(SOMEBODY), ..holding })
        }
    }
}

/// Returns the owners that hold a lock, at most `most`. Returns no owner if the key is not a lock, or if the hash
/// has more fields than `most` plus the number of reserved fields.
pub(crate) fn holders(key: &Key<'_>, now: UnixMillis, most: usize) -> HeldBy {
    if key.kind() != KeyKind::Hash || key.fields() > most.saturating_add(RESERVED_FIELDS.len()) {
        return HeldBy::default();
    }
    let (mut fields, mut is_shared) = (Vec::new(), false);
    key.for_each(&mut |field, value| {
        is_shared |= field == MODE_FIELD && Mode::read(value) == Some(Mode::Shared);
        fields.push((field.to_vec(), value.to_vec()));
    });
    if is_shared {
        let live = |value: &[u8]| Share::read(value).is_some_and(|share| share.is_live(now));
        let owners = fields
            .iter()
            .filter(|(field, value)| !RESERVED_FIELDS.contains(&field.as_slice()) && live(value));
        let owners = owners.map(|(field, _)| field.as_slice().into()).take(most).collect();
        return HeldBy { owners, is_shared };
    }
    let all = fields.iter().map(|(field, value)| (field.as_slice(), value.as_slice()));
    match Observed::from_fields(all, None) {
        Observed::Held(holding) => HeldBy { owners: vec![holding.owner.into()], is_shared },
        Observed::Shared(_) | Observed::Free { .. } | Observed::NotALock { .. } => {
            HeldBy::default()
        }
    }
}

/// Returns the exclusive holder of a lock, and its `VALUE`.
pub(crate) fn holder(key: &Key<'_>) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let (mut holder, mut published) = (None, None);
    key.for_each(&mut |field, value| {
        if field == VALUE_FIELD {
            published = value_of(value).map(<[u8]>::to_vec);
        } else if !RESERVED_FIELDS.contains(&field) {
            holder = Some(field.to_vec());
        }
    });
    Some((holder?, published))
}
