//! The state of a lock, as a server reports it to observers.

use crate::wire::loss::Loss;
use crate::wire::reply::Token;
use crate::wire::value::{Parts, malformed};
use redis::{ParsingError, Value};

/// State of a lock at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedState {
    /// The exclusive holder.
    pub(crate) holder: Option<Holder>,
    /// Token of the shared period, if the lock is shared; 0 if it has none.
    pub(crate) shared: Option<Token>,
    /// Version of the state. Among reports of one session about one lock, a larger version is newer.
    pub(crate) version: u64,
    /// Reason why the last holder lost the lock, if a holder lost it since the previous state.
    pub(crate) loss: Option<Loss>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) owner: Vec<u8>,
    /// Token of the grant; 0 if the holder is a Redisson client, which has no token.
    pub(crate) token: Token,
    pub(crate) value: Vec<u8>,
}

/// Reads the reply to `LOCK.OBSERVE`.
pub(crate) fn observed(value: Value) -> Result<ObservedState, ParsingError> {
    let mut parts = Parts::read(value, "observation")?;
    let (state, owner) = (parts.next("state")?, parts.next("owner")?);
    seen(state, owner, &mut parts)
}

/// Reads the rest of an outcome after the word `changed`: the new state of an observed lock.
pub(crate) fn changed(
    owner: Option<Vec<u8>>,
    parts: &mut Parts,
) -> Result<ObservedState, ParsingError> {
    let seen = seen(parts.next("state")?, owner, parts)?;
    Ok(ObservedState { loss: parts.next("reason")?, ..seen })
}

fn seen(
    state: Vec<u8>,
    owner: Option<Vec<u8>>,
    parts: &mut Parts,
) -> Result<ObservedState, ParsingError> {
    let token = Token::from(parts.next::<Option<u64>>("token")?.unwrap_or(0));
    let value: Option<Vec<u8>> = parts.next("value")?;
    let (holder, shared) = match &*state {
        b"held" => {
            let owner = owner.ok_or_else(|| malformed("owner"))?;
            (Some(Holder { owner, token, value: value.unwrap_or_default() }), None)
        }
        b"shared" => (None, Some(token)),
        b"vacant" => (None, None),
        _ => return Err(malformed("state")),
    };
    Ok(ObservedState { holder, shared, version: parts.next("version")?, loss: None })
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
        assert_eq!(
            seen,
            ObservedState { holder: Some(holder), shared: None, version: 7, loss: None }
        );
        let seen = observed(Value::Array(held(Value::Nil, Value::Nil))).unwrap();
        assert!(seen.holder.is_some_and(|h| h.token.value() == 0 && h.value.is_empty()));
        for (state, token, shared) in [
            ("vacant", Value::Nil, None),
            ("shared", Value::Int(18), Some(18.into())),
            ("shared", Value::Nil, Some(0.into())),
        ] {
            let reply = [text(state), Value::Nil, token, Value::Nil, Value::Int(8)];
            let seen = observed(Value::Array(reply.to_vec())).unwrap();
            assert_eq!(seen, ObservedState { holder: None, shared, version: 8, loss: None });
        }
    }

    #[test]
    fn an_invalid_state_is_an_error() {
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
