//! What a server says of a lock to those who observe it.

use crate::wire::reply::Token;
use crate::wire::value::{bytes, elements, is_text, malformed, present, whole_number};
use redis::{ParsingError, Value};
use std::fmt;

/// How a leader, or the holder of a lock, went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Departure {
    /// It released, or resigned.
    Released,
    /// Its lease ended.
    Expired,
    /// Somebody took it away with `LOCK.FORCERELEASE`.
    Forced,
    /// The key was deleted or written over.
    Deleted,
    /// All keys were.
    Flushed,
    /// Its client was gone before it heard of the grant.
    TakenBack,
    /// The session that it was bound to was gone.
    SessionGone,
    /// In some other way, which a newer server tells.
    Other,
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Forced => "forced",
            Self::Deleted => "deleted",
            Self::Flushed => "flushed",
            Self::TakenBack => "taken-back",
            Self::SessionGone => "gone",
            Self::Other => "other",
        })
    }
}

/// The state of a lock, the newest of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Who holds it alone.
    pub(crate) holder: Option<Holder>,
    /// Of two that one session was told of the same lock, the larger is the newer.
    pub(crate) version: u64,
    /// How the latest holder went, if one did since the state before.
    pub(crate) departure: Option<Departure>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) owner: Vec<u8>,
    /// 0 if it has none, as a client of Redisson.
    pub(crate) token: Token,
    pub(crate) value: Vec<u8>,
}

/// The answer of `LOCK.OBSERVE`.
pub(crate) fn observed(value: Value) -> Result<Seen, ParsingError> {
    let mut parts = elements(value, "observation")?.into_iter();
    let mut next = || parts.next().unwrap_or(Value::Nil);
    let (state, owner) = (next(), next());
    seen(&state, owner, next)
}

/// What an outcome says of a change, after the word for it.
pub(crate) fn changed(owner: Value, mut next: impl FnMut() -> Value) -> Result<Seen, ParsingError> {
    let state = next();
    let seen = seen(&state, owner, &mut next)?;
    let departure = present(next()).map(|why| bytes(why, "reason")).transpose()?;
    Ok(Seen { departure: departure.map(|why| went(&why)), ..seen })
}

fn seen(
    state: &Value,
    owner: Value,
    mut next: impl FnMut() -> Value,
) -> Result<Seen, ParsingError> {
    let (token, value, version) = (next(), next(), next());
    let holder = if is_text(state, "held") {
        let token = present(token).map(|token| whole_number(&token, "token")).transpose()?;
        let value = present(value).map(|value| bytes(value, "value")).transpose()?;
        Some(Holder {
            owner: bytes(owner, "owner")?,
            token: Token::from(token.unwrap_or(0)),
            value: value.unwrap_or_default(),
        })
    } else if is_text(state, "vacant") || is_text(state, "shared") {
        None
    } else {
        return Err(malformed("state"));
    };
    Ok(Seen { holder, version: whole_number(&version, "version")?, departure: None })
}

fn went(why: &[u8]) -> Departure {
    match why {
        b"released" => Departure::Released,
        b"expired" => Departure::Expired,
        b"forced" => Departure::Forced,
        b"deleted" => Departure::Deleted,
        b"flushed" => Departure::Flushed,
        b"taken-back" => Departure::TakenBack,
        b"gone" => Departure::SessionGone,
        _ => Departure::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(of: &str) -> Value {
        Value::BulkString(of.into())
    }

    fn held(token: Value, value: Value) -> Vec<Value> {
        vec![text("held"), text("ann"), token, value, Value::Int(7)]
    }

    #[test]
    fn a_state_is_held_shared_or_vacant() {
        let seen = observed(Value::Array(held(Value::Int(17), text("a:1")))).unwrap();
        let holder = Holder { owner: b"ann".into(), token: 17.into(), value: b"a:1".into() };
        assert_eq!(seen, Seen { holder: Some(holder), version: 7, departure: None });
        let seen = observed(Value::Array(held(Value::Nil, Value::Nil))).unwrap();
        assert!(seen.holder.is_some_and(|h| h.token.value() == 0 && h.value.is_empty()));
        for state in ["vacant", "shared"] {
            let reply = [text(state), Value::Nil, Value::Nil, Value::Nil, Value::Int(8)];
            let seen = observed(Value::Array(reply.to_vec())).unwrap();
            assert_eq!(seen, Seen { holder: None, version: 8, departure: None });
        }
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        let vacant = |version| vec![text("vacant"), Value::Nil, Value::Nil, Value::Nil, version];
        for bad in [
            vec![],
            vec![text("odd"), Value::Nil, Value::Nil, Value::Nil, Value::Int(1)],
            vec![text("held"), Value::Nil, Value::Int(1), Value::Nil, Value::Int(1)],
            held(text("17"), Value::Nil),
            vacant(Value::Nil),
            vacant(Value::Int(-1)),
        ] {
            assert!(observed(Value::Array(bad.clone())).is_err(), "{bad:?}");
        }
        assert!(observed(Value::Nil).is_err());
    }
}
