//! Readers of replies. A malformed reply is an error, never a panic.

use crate::wire::request::Mode;
use crate::wire::value::{Parts, Read, malformed};
use redis::{ParsingError, Value};
use std::fmt;

/// A fencing token: an integer that grows with every new grant of a lock. Owners that share the lock at
/// the same time have the same token.
///
/// Send it with every write to the resource that the lock guards. The resource must refuse a token
/// that is smaller than the largest it has seen, or equal but from another owner. Then an owner that was
/// paused past the end of its lease can do no harm when it resumes.
///
/// Reentry and renewal keep the token, unless the renewal [raises](crate::Guard::raise_token) it. Tokens of
/// different keys are not comparable. They are below 2^53, so a floating-point number can hold them exactly.
///
/// ```
/// use kvlock::Token;
///
/// let seen = Token::from(1_795_202_270_794_124);
/// let late = Token::from(1_795_202_270_794_123);
/// assert!(late < seen);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Token(u64);

impl Token {
    /// Returns the token as a number.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}

impl From<u64> for Token {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A grant of a lock: the reply to an acquire or a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Token of this grant. A reentry has the token of the first grant.
    pub token: Token,
    /// Number of holds of the owner: 1 after a new grant, more after a reentry.
    pub holds: u64,
}

impl Read for Token {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        u64::read(value, what).map(Self)
    }
}

impl Read for Grant {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        let mut parts = Parts::read(value, what)?;
        Ok(Self { token: parts.next("token")?, holds: parts.next("holds")? })
    }
}

/// Reads the reply to an acquire or wait in this mode. Permits have no token: it is set to 0.
pub(crate) fn granted(mode: Mode, value: Value) -> Result<Option<Grant>, ParsingError> {
    match mode {
        Mode::Alone | Mode::Shared => read(value),
        Mode::Permits(_) | Mode::AllPermits | Mode::Latch => {
            let held: Option<u64> = read(value)?;
            Ok(held.map(|holds| Grant { token: Token(0), holds }))
        }
    }
}

/// Reads the 1 or 0 with which commands such as `LOCK.CANCEL` reply whether they had an effect.
impl Read for bool {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        match u64::read(value, what)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(malformed(what)),
        }
    }
}

/// Reads the reply to a command.
pub(crate) fn read<T: Read>(value: Value) -> Result<T, ParsingError> {
    T::read(value, "reply")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn grant(value: Value) -> Result<Option<Grant>, ParsingError> {
        read(value)
    }

    fn holds_left(value: Value) -> Result<Option<u64>, ParsingError> {
        read(value)
    }

    fn lease(value: Value) -> Result<Option<Duration>, ParsingError> {
        read(value)
    }

    fn done(value: Value) -> Result<bool, ParsingError> {
        read(value)
    }

    fn text(of: &str) -> Value {
        Value::BulkString(of.into())
    }

    #[test]
    fn a_grant_is_a_token_and_holds() {
        let reply = Value::Array(vec![Value::Int(17), Value::Int(1)]);
        let read = Grant { token: Token(17), holds: 1 };
        assert_eq!(grant(reply), Ok(Some(read)));
        assert_eq!(grant(Value::Nil), Ok(None));
        let longer = Value::Array(vec![Value::Int(17), Value::Int(1), text("more")]);
        assert_eq!(grant(longer), Ok(Some(read)), "of a server to come");
    }

    #[test]
    fn an_invalid_grant_is_an_error() {
        for bad in [
            Value::Okay,
            Value::Int(1),
            text("17"),
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(17)]),
            Value::Array(vec![Value::Int(-1), Value::Int(1)]),
            Value::Array(vec![Value::Int(17), Value::Int(-1)]),
            Value::Array(vec![Value::Nil, Value::Int(1)]),
            Value::Array(vec![text("17"), text("1")]),
        ] {
            assert!(grant(bad.clone()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn small_replies_are_read() {
        assert_eq!(holds_left(Value::Int(0)), Ok(Some(0)));
        assert_eq!(holds_left(Value::Nil), Ok(None));
        assert_eq!(lease(Value::Int(1500)), Ok(Some(Duration::from_millis(1500))));
        assert_eq!(lease(Value::Nil), Ok(None));
        assert_eq!(done(Value::Int(1)), Ok(true));
        assert_eq!(done(Value::Int(0)), Ok(false));
    }

    #[test]
    fn wrong_small_replies_are_errors() {
        for bad in [Value::Int(-1), Value::Okay, text("1"), Value::Array(vec![])] {
            assert!(holds_left(bad.clone()).is_err(), "{bad:?}");
            assert!(lease(bad.clone()).is_err(), "{bad:?}");
            assert!(done(bad.clone()).is_err(), "{bad:?}");
        }
        assert!(done(Value::Int(2)).is_err());
        assert!(done(Value::Nil).is_err());
    }
}
