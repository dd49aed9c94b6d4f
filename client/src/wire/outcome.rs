//! Replies to waits through a session, and the outcomes that the session reports.

use crate::wire::observed::{ObservedState, changed};
use crate::wire::reply::{Grant, granted};
use crate::wire::request::Mode;
use crate::wire::value::{Parts, Read, is_text, malformed};
use redis::{ParsingError, RedisError, Value};
use std::time::Duration;

/// Reply to a wait through a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    /// The wait is in the queue. Has the moment of this reply on the server's monotonic clock.
    At(Duration),
    /// The wait is not in the queue: it was answered at once, as an acquire.
    Not(Option<Grant>),
    /// The latch is open.
    Open,
    /// The key of `UNLESS` exists: there is a result already.
    Ready,
}

/// Reads the reply to a wait through a session.
pub(crate) fn waited(mode: Mode, value: Value) -> Result<Queued, ParsingError> {
    if mode == Mode::Latch && value == Value::Int(0) {
        return Ok(Queued::Open);
    }
    if is_ready(&value) {
        return Ok(Queued::Ready);
    }
    match &value {
        Value::Array(reply) if reply.first().is_some_and(|first| is_text(first, "queued")) => {
            let mut parts = Parts::read(value, "queued")?;
            let _queued: Value = parts.next("queued")?;
            parts.next("moment").map(Queued::At)
        }
        Value::Array(_) | _ => granted(mode, value).map(Queued::Not),
    }
}

/// Returns whether the reply means that the key of `UNLESS` exists. Then nothing was granted.
pub(crate) fn is_ready(value: &Value) -> bool {
    is_text(value, "ready")
}

/// Reads the reply to `SESSION.OPEN`: the id of the session.
pub(crate) fn session(value: Value) -> Result<String, ParsingError> {
    let id = Parts::read(value, "session")?.next("session")?;
    String::from_utf8(id).map_err(|_| malformed("session"))
}

/// An outcome that a session reports.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) seq: u64,
    pub(crate) news: Event,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// The outcome of the wait of this owner.
    Wait(String, WaitEnd),
    /// A change of the observed lock with this key. An error ends the observation.
    Observed(Vec<u8>, Result<ObservedState, RedisError>),
}

#[derive(Debug)]
pub(crate) enum WaitEnd {
    Granted {
        grant: Grant,
        /// Time of the grant on the server's monotonic clock.
        at: Duration,
    },
    Open,
    /// The key of `UNLESS` exists: there is a result.
    Ready,
    Timeout,
    Cancelled,
    /// A later wait of the same owner has replaced this one, or the owner has acquired the lock or the
    /// permits without waiting.
    Replaced,
    Error(RedisError),
}

/// Reads the reply to `SESSION.NEXT`.
pub(crate) fn outcomes(value: Value) -> Result<Vec<Outcome>, ParsingError> {
    let mut parts = Parts::read(value, "outcomes")?;
    let _server_ms: Value = parts.next("moment")?;
    parts.next("outcomes")
}

impl Read for Outcome {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        let mut parts = Parts::read(value, what)?;
        let (seq, _kind): (u64, Value) = (parts.next("number of an outcome")?, parts.next("kind")?);
        let (key, owner): (Value, Option<Vec<u8>>) = (parts.next("key")?, parts.next("owner")?);
        let word: Vec<u8> = parts.next(what)?;
        let news = match (&*word, owner) {
            (b"changed", owner) => {
                Event::Observed(Read::read(key, "key")?, Ok(changed(owner, &mut parts)?))
            }
            (b"error", None) => Event::Observed(
                Read::read(key, "key")?,
                Err(server_error(&parts.next::<Vec<u8>>("error")?)),
            ),
            (word, owner) => {
                let owner = owner.ok_or_else(|| malformed("owner"))?;
                Event::Wait(
                    String::from_utf8_lossy(&owner).into_owned(),
                    wait_end(word, &mut parts)?,
                )
            }
        };
        Ok(Self { seq, news })
    }
}

fn wait_end(word: &[u8], parts: &mut Parts) -> Result<WaitEnd, ParsingError> {
    Ok(match word {
        b"granted" => {
            let token: Option<u64> = parts.next("token")?;
            let grant = Grant { token: token.unwrap_or(0).into(), holds: parts.next("holds")? };
            WaitEnd::Granted { grant, at: parts.next("moment")? }
        }
        b"open" => WaitEnd::Open,
        b"ready" => WaitEnd::Ready,
        b"timeout" => WaitEnd::Timeout,
        b"cancelled" => WaitEnd::Cancelled,
        b"replaced" => WaitEnd::Replaced,
        b"error" => WaitEnd::Error(server_error(&parts.next::<Vec<u8>>("error")?)),
        _ => return Err(malformed("outcome")),
    })
}

/// Converts the text of an error in an outcome to the error that the server would have replied with.
pub(crate) fn server_error(words: &[u8]) -> RedisError {
    let words = words.escape_ascii();
    let answer = redis::parse_redis_value(format!("-{words}\r\n").as_bytes());
    answer.and_then(Value::extract_error).map_or_else(|error| error, |_| malformed("error").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::loss::Loss;
    use crate::wire::observed::Holder;

    fn text(of: &str) -> Value {
        Value::BulkString(of.into())
    }

    fn next(outcomes: Vec<Vec<Value>>) -> Value {
        let list = outcomes.into_iter().map(Value::Array).collect();
        Value::Array(vec![Value::Int(9), Value::Array(list)])
    }

    fn of(word: &str, more: &[Value]) -> Vec<Value> {
        let head = [Value::Int(7), text("lock"), text("k"), text("ann"), text(word)];
        [&head, more].concat()
    }

    fn one(word: &str, more: &[Value]) -> Result<WaitEnd, ParsingError> {
        match outcomes(next(vec![of(word, more)]))?.remove(0).news {
            Event::Wait(owner, told) if owner == "ann" => Ok(told),
            other @ (Event::Wait(..) | Event::Observed(..)) => panic!("{other:?}"),
        }
    }

    fn about(owner: Value, word: &str, more: &[Value]) -> Result<ObservedState, RedisError> {
        let head = [Value::Int(7), text("lock"), text("k"), owner, text(word)];
        match outcomes(next(vec![[&head, more].concat()]))?.remove(0).news {
            Event::Observed(key, seen) if key == b"k" => seen,
            other @ (Event::Wait(..) | Event::Observed(..)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn changes_are_read_by_key() {
        let held = [text("held"), Value::Int(17), text("a:1"), Value::Int(5), text("forced")];
        let seen = about(text("ann"), "changed", &held).unwrap();
        let holder = Holder { owner: b"ann".into(), token: 17.into(), value: b"a:1".into() };
        let loss = Some(Loss::Forced);
        assert_eq!(seen, ObservedState { holder: Some(holder), shared: None, version: 5, loss });
        let vacant = [text("vacant"), Value::Nil, Value::Nil, Value::Int(6), text("unheard-of")];
        let seen = about(Value::Nil, "changed", &vacant).unwrap();
        let loss = Some(Loss::Forgotten);
        assert_eq!(seen, ObservedState { holder: None, shared: None, version: 6, loss });
        let over = about(Value::Nil, "error", &[text("TRYAGAIN the slot moved")]);
        assert_eq!(over.unwrap_err().code(), Some("TRYAGAIN"));
        assert!(about(Value::Nil, "changed", &[]).is_err());
    }

    #[test]
    fn outcomes_are_read_in_order() {
        let grant = [Value::Int(17), Value::Int(1), Value::Int(250)];
        let read = outcomes(next(vec![of("granted", &grant), of("timeout", &[])])).unwrap();
        assert_eq!(read.iter().map(|o| o.seq).collect::<Vec<_>>(), [7; 2]);
        let [Event::Wait(_, first), Event::Wait(_, second)] = [&read[0].news, &read[1].news] else {
            panic!("{read:?}")
        };
        let WaitEnd::Granted { grant, at } = first else { panic!("{read:?}") };
        assert_eq!((grant.token.value(), grant.holds, at.as_millis()), (17, 1, 250));
        assert!(matches!(second, WaitEnd::Timeout));
        let Ok(WaitEnd::Granted { grant, .. }) =
            one("granted", &[Value::Nil, Value::Int(3), Value::Int(0)])
        else {
            panic!("permits have no token")
        };
        assert_eq!((grant.token.value(), grant.holds), (0, 3));
        assert!(matches!(one("ready", &[]), Ok(WaitEnd::Ready)));
        let Ok(WaitEnd::Error(error)) = one("error", &[text("MOVED 5 h:1")]) else {
            panic!("an error")
        };
        assert!(error.to_string().contains('5'), "{error}");
    }

    #[test]
    fn malformed_outcomes_are_errors() {
        for bad in [
            one("granted", &[]),
            one("granted", &[text("17")]),
            one("gone", &[]),
            one("error", &[]),
        ] {
            assert!(bad.is_err(), "{bad:?}");
        }
        for bad in [Value::Nil, Value::Array(vec![Value::Int(9)]), next(vec![vec![]])] {
            assert!(outcomes(bad.clone()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_wait_is_queued_granted_refused_open_or_ready() {
        let queued = Value::Array(vec![text("queued"), Value::Int(40)]);
        assert_eq!(waited(Mode::Alone, queued), Ok(Queued::At(Duration::from_millis(40))));
        assert_eq!(waited(Mode::Alone, Value::Nil), Ok(Queued::Not(None)));
        assert_eq!(waited(Mode::Latch, Value::Int(0)), Ok(Queued::Open));
        assert_eq!(waited(Mode::Alone, text("ready")), Ok(Queued::Ready));
        assert!(waited(Mode::Alone, text("soon")).is_err());
        assert!(waited(Mode::Alone, Value::Array(vec![text("queued")])).is_err());
        assert!(waited(Mode::Alone, Value::Int(0)).is_err());
    }
}
