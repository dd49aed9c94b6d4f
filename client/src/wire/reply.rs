//! Replies as they are read. Whatever the network brings, the worst outcome is an error.

use crate::wire::request::Mode;
use redis::{FromRedisValue, ParsingError, RedisError, Value};
use std::fmt;
use std::time::Duration;

/// A fencing token: an integer that grows with every new grant of a lock.
///
/// Send it along with every write to what the lock guards, and let that refuse a token that is
/// smaller than the largest it has seen, or equal but from another owner. Then an owner that was
/// paused past the end of its lease can do no harm when it wakes up.
///
/// Reentry and renewal keep the token. Tokens of different keys are not comparable. They are below
/// 2^53, so they survive a trip through a floating-point number.
///
/// ```
/// use kvlock::Token;
///
/// let seen = Token::from(1_795_202_270_794_124);
/// let late = Token::from(1_795_202_270_794_123);
/// assert!(late < seen);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The token as a number.
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

/// The lock given to an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The token of this grant; a reentry answers the token of the first.
    pub token: Token,
    /// How many times the owner holds the lock now: 1 for a new grant, more for a reentry.
    pub holds: u64,
}

/// Whether somebody holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// Nobody holds it.
    Free,
    /// An owner holds it.
    Held,
}

/// What `LOCK.INFO` says about a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// Whether somebody holds it.
    pub state: LockState,
    /// Whether it is shared, by readers, rather than held by one owner or free.
    pub shared: bool,
    /// How many owners hold it. Of a shared lock it may count a few whose lease has just ended.
    pub holders: u64,
    /// Who holds it alone; `None` if it is free or shared.
    pub owner: Option<Vec<u8>>,
    /// How many times the owner holds it; 0 if it is free or shared.
    pub holds: u64,
    /// The token of the grant, or of those who share it; `None` if the lock is free, or was taken
    /// by a Redisson client.
    pub token: Option<Token>,
    /// What is left of the lease, of a shared lock the one that ends last; `None` if the lock is free, or if somebody took its TTL away.
    pub lease_left: Option<Duration>,
    /// How many clients wait for it.
    pub waiters: u64,
    /// The first waiters, next in line first. Empty unless asked for with
    /// [`lock_info_waiters`](crate::LockCommands::lock_info_waiters).
    pub queue: Vec<Waiter>,
}

/// A client in line for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// For whom it waits.
    pub owner: Vec<u8>,
    /// How long it has waited.
    pub waited: Duration,
    /// The client's id on the server, as `CLIENT LIST` shows it and `CLIENT KILL ID` takes it, if it
    /// is a connection that is blocked.
    pub client_id: Option<u64>,
    /// How the id of its session begins, if it waits through one: see `SESSION.LIST`.
    pub session: Option<String>,
}

/// What `SEM.INFO` says about a semaphore.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SemaphoreInfo {
    /// How many permits there are.
    pub permits: u64,
    /// How many are held; those of dead holders too, until somebody needs them.
    pub used: u64,
    /// How many owners hold them, likewise.
    pub holders: u64,
    /// How many clients wait for some.
    pub waiters: u64,
}

/// What `LATCH.INFO` says about a latch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatchInfo {
    /// How much is left; 0 when it is open.
    pub count: u64,
    /// How many participants have counted.
    pub participants: u64,
    /// How long until it goes away by itself; `None` when it is open, and without a lifetime.
    pub lifetime_left: Option<Duration>,
    /// How many clients wait for it.
    pub waiters: u64,
}

/// A lock with waiters, as `LOCK.LIST` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockSummary {
    /// The name of the lock.
    pub key: Vec<u8>,
    /// Who holds it; `None` if nobody does, or if the key holds something that is not a lock.
    pub owner: Option<Vec<u8>>,
    /// How many clients wait for it.
    pub waiters: u64,
    /// How long the first in line has waited.
    pub longest_wait: Duration,
}

impl FromRedisValue for Grant {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        match elements(value, "grant")?.as_slice() {
            [token, holds] => Ok(Self {
                token: Token(whole_number(token, "token")?),
                holds: whole_number(holds, "holds")?,
            }),
            _ => Err(malformed("grant")),
        }
    }
}

impl FromRedisValue for LockInfo {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut fields = Fields::read(value, "lock info")?;
        Ok(Self {
            state: state(fields.take("state")?)?,
            shared: match present(fields.take("mode")?) {
                Some(mode) => bytes(mode, "mode")? == b"shared",
                None => false,
            },
            holders: whole_number(&fields.take("holders")?, "holders")?,
            owner: present(fields.take("owner")?).map(|owner| bytes(owner, "owner")).transpose()?,
            holds: whole_number(&fields.take("holds")?, "holds")?,
            token: present(fields.take("token")?)
                .map(|token| whole_number(&token, "token").map(Token))
                .transpose()?,
            lease_left: optional_millis(fields.take("lease-left")?, "lease-left")?,
            waiters: whole_number(&fields.take("waiters")?, "waiters")?,
            queue: match fields.take_if_there("queue") {
                None => Vec::new(),
                Some(queue) => elements(queue, "queue")?
                    .into_iter()
                    .map(Waiter::from_redis_value)
                    .collect::<Result<_, _>>()?,
            },
        })
    }
}

impl FromRedisValue for Waiter {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let entry: Result<[Value; 3], _> = elements(value, "queue entry")?.try_into();
        let Ok([owner, waited, through]) = entry else {
            return Err(malformed("queue entry"));
        };
        let (client_id, session) = if let Value::BulkString(id) = through {
            (None, Some(String::from_utf8_lossy(&id).into_owned()))
        } else {
            (Some(whole_number(&through, "client id of a waiter")?), None)
        };
        Ok(Self {
            owner: bytes(owner, "owner of a waiter")?,
            waited: Duration::from_millis(whole_number(&waited, "wait of a waiter")?),
            client_id,
            session,
        })
    }
}

/// The answer of `LATCH.INFO`.
pub(crate) fn latch(value: Value) -> Result<LatchInfo, ParsingError> {
    let mut fields = Fields::read(value, "latch info")?;
    Ok(LatchInfo {
        count: whole_number(&fields.take("count")?, "count")?,
        participants: whole_number(&fields.take("participants")?, "participants")?,
        lifetime_left: optional_millis(fields.take("lifetime-left")?, "lifetime-left")?,
        waiters: whole_number(&fields.take("waiters")?, "waiters")?,
    })
}

/// The answer of `SEM.INFO`.
pub(crate) fn semaphore(value: Value) -> Result<SemaphoreInfo, ParsingError> {
    let mut fields = Fields::read(value, "semaphore info")?;
    let mut number = |name| whole_number(&fields.take(name)?, name);
    Ok(SemaphoreInfo {
        permits: number("permits")?,
        used: number("used")?,
        holders: number("holders")?,
        waiters: number("waiters")?,
    })
}

impl FromRedisValue for LockSummary {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut fields = Fields::read(value, "list entry")?;
        Ok(Self {
            key: bytes(fields.take("key")?, "key")?,
            owner: present(fields.take("owner")?).map(|owner| bytes(owner, "owner")).transpose()?,
            waiters: whole_number(&fields.take("waiters")?, "waiters")?,
            longest_wait: Duration::from_millis(whole_number(
                &fields.take("longest-wait")?,
                "longest-wait",
            )?),
        })
    }
}

/// The answer to what was asked for in that mode: permits have no token.
pub(crate) fn granted(mode: Mode, value: Value) -> Result<Option<Grant>, ParsingError> {
    match mode {
        Mode::Alone | Mode::Shared => grant(value),
        Mode::Permits(_) | Mode::AllPermits | Mode::Latch => {
            let held = |held| Ok(Grant { token: Token(0), holds: whole_number(&held, "permits")? });
            present(value).map(held).transpose()
        }
    }
}

/// Whether a wait through a session is in line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    /// Since that moment of the server's monotonic clock.
    At(Duration),
    /// It has been answered as an acquire would be.
    Not(Option<Grant>),
    /// It is a latch's, and that is open.
    Open,
}

/// The answer to a wait through a session.
pub(crate) fn waited(mode: Mode, value: Value) -> Result<Queued, ParsingError> {
    if mode == Mode::Latch && value == Value::Int(0) {
        return Ok(Queued::Open);
    }
    match &value {
        Value::Array(reply) if reply.first().is_some_and(|first| is_text(first, "queued")) => {
            let at = reply.get(1).unwrap_or(&Value::Nil);
            whole_number(at, "moment").map(|at| Queued::At(Duration::from_millis(at)))
        }
        Value::Array(_) | _ => granted(mode, value).map(Queued::Not),
    }
}

/// The id of a session that has been opened.
pub(crate) fn session(value: Value) -> Result<String, ParsingError> {
    let id = elements(value, "session")?.into_iter().next().unwrap_or(Value::Nil);
    String::from_utf8(bytes(id, "session")?).map_err(|_| malformed("session"))
}

/// What has become of a wait.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) seq: u64,
    pub(crate) owner: String,
    pub(crate) told: Told,
}

#[derive(Debug)]
pub(crate) enum Told {
    Granted {
        grant: Grant,
        /// On the server's monotonic clock.
        at: Duration,
    },
    Open,
    Timeout,
    Cancelled,
    /// The owner waits through another session, which has the place.
    Replaced,
    Error(RedisError),
}

/// The answer of `SESSION.NEXT`: what it tells of owners that are ours.
pub(crate) fn outcomes(value: Value) -> Result<Vec<Outcome>, ParsingError> {
    let list = elements(value, "outcomes")?.into_iter().nth(1).unwrap_or(Value::Nil);
    elements(list, "outcomes")?.into_iter().map(outcome).collect()
}

fn outcome(value: Value) -> Result<Outcome, ParsingError> {
    let mut parts = elements(value, "outcome")?.into_iter();
    let mut next = || parts.next().unwrap_or(Value::Nil);
    let seq = whole_number(&next(), "number of an outcome")?;
    let (_kind, _key) = (next(), next());
    let owner = String::from_utf8_lossy(&bytes(next(), "owner")?).into_owned();
    let word = bytes(next(), "outcome")?;
    let told = match &*word {
        b"granted" => {
            let token = present(next()).map(|token| whole_number(&token, "token")).transpose()?;
            let token = Token(token.unwrap_or(0));
            let grant = Grant { token, holds: whole_number(&next(), "holds")? };
            Told::Granted { grant, at: Duration::from_millis(whole_number(&next(), "moment")?) }
        }
        b"open" => Told::Open,
        b"timeout" => Told::Timeout,
        b"cancelled" => Told::Cancelled,
        b"replaced" => Told::Replaced,
        b"error" => Told::Error(said(&bytes(next(), "error")?)),
        _ => return Err(malformed("outcome")),
    };
    Ok(Outcome { seq, owner, told })
}

/// The error that the server would have answered in these words.
pub(crate) fn said(words: &[u8]) -> RedisError {
    let words = words.escape_ascii();
    let answer = redis::parse_redis_value(format!("-{words}\r\n").as_bytes());
    answer.and_then(Value::extract_error).map_or_else(|error| error, |_| malformed("error").into())
}

/// The answer of `LOCK.ACQUIRE` and `LOCK.WAIT`.
pub(crate) fn grant(value: Value) -> Result<Option<Grant>, ParsingError> {
    present(value).map(Grant::from_redis_value).transpose()
}

/// The answer of `LOCK.RELEASE`.
pub(crate) fn holds_left(value: Value) -> Result<Option<u64>, ParsingError> {
    present(value).map(|left| whole_number(&left, "holds left")).transpose()
}

/// The answer of `LOCK.RENEW`.
pub(crate) fn lease(value: Value) -> Result<Option<Duration>, ParsingError> {
    optional_millis(value, "lease")
}

/// The answer of `LOCK.CANCEL` and `LOCK.FORCERELEASE`.
pub(crate) fn done(value: Value) -> Result<bool, ParsingError> {
    match whole_number(&value, "flag")? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(malformed("flag")),
    }
}

/// The answer of `LOCK.INFO`.
pub(crate) fn info(value: Value) -> Result<LockInfo, ParsingError> {
    LockInfo::from_redis_value(value)
}

/// The answer of `LOCK.LIST`.
pub(crate) fn list(value: Value) -> Result<Vec<LockSummary>, ParsingError> {
    elements(value, "list")?.into_iter().map(LockSummary::from_redis_value).collect()
}

/// Named fields: a map in RESP3, names and values by turns in RESP2. Fields that this version does
/// not know are left alone, so that a newer server can say more.
struct Fields(Vec<(Value, Value)>);

impl Fields {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        match value.into_map_iter() {
            Ok(fields) => Ok(Self(fields.collect())),
            Err(_) => Err(malformed(what)),
        }
    }

    fn take(&mut self, name: &'static str) -> Result<Value, ParsingError> {
        self.take_if_there(name).ok_or_else(|| malformed(name))
    }

    fn take_if_there(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(field, _)| is_text(field, name))?;
        Some(self.0.swap_remove(at).1)
    }
}

fn state(value: Value) -> Result<LockState, ParsingError> {
    if is_text(&value, "held") {
        Ok(LockState::Held)
    } else if is_text(&value, "free") {
        Ok(LockState::Free)
    } else {
        Err(malformed("state"))
    }
}

fn present(value: Value) -> Option<Value> {
    (value != Value::Nil).then_some(value)
}

fn optional_millis(value: Value, what: &'static str) -> Result<Option<Duration>, ParsingError> {
    present(value).map(|millis| whole_number(&millis, what).map(Duration::from_millis)).transpose()
}

/// Strict where redis-rs is not: its own conversion to unsigned numbers wraps negative ones.
fn whole_number(value: &Value, what: &'static str) -> Result<u64, ParsingError> {
    let Value::Int(number) = value else {
        return Err(malformed(what));
    };
    u64::try_from(*number).map_err(|_| malformed(what))
}

fn bytes(value: Value, what: &'static str) -> Result<Vec<u8>, ParsingError> {
    let Value::BulkString(bytes) = value else {
        return Err(malformed(what));
    };
    Ok(bytes)
}

fn elements(value: Value, what: &'static str) -> Result<Vec<Value>, ParsingError> {
    let Value::Array(elements) = value else {
        return Err(malformed(what));
    };
    Ok(elements)
}

fn is_text(value: &Value, text: &str) -> bool {
    *value == Value::SimpleString(text.into()) || *value == Value::BulkString(text.into())
}

fn malformed(what: &'static str) -> ParsingError {
    ParsingError::from(format!("not what a LOCK command answers: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(of: &str) -> Value {
        Value::BulkString(of.into())
    }

    fn flat(fields: Vec<(&str, Value)>) -> Value {
        let flat = fields.into_iter().flat_map(|(name, value)| [text(name), value]);
        Value::Array(flat.collect())
    }

    fn map(fields: Vec<(&str, Value)>) -> Value {
        let named = fields.into_iter().map(|(name, value)| (text(name), value));
        Value::Map(named.collect())
    }

    fn held() -> Vec<(&'static str, Value)> {
        vec![
            ("state", text("held")),
            ("owner", Value::BulkString(vec![0, 255])),
            ("holds", Value::Int(2)),
            ("token", Value::Int(1_795_202_270_794_123)),
            ("lease-left", Value::Int(9_000)),
            ("waiters", Value::Int(1)),
            ("mode", text("exclusive")),
            ("holders", Value::Int(1)),
        ]
    }

    fn free() -> Vec<(&'static str, Value)> {
        vec![
            ("state", text("free")),
            ("owner", Value::Nil),
            ("holds", Value::Int(0)),
            ("token", Value::Nil),
            ("lease-left", Value::Nil),
            ("waiters", Value::Int(0)),
            ("mode", Value::Nil),
            ("holders", Value::Int(0)),
        ]
    }

    fn queue() -> (&'static str, Value) {
        let bob = Value::Array(vec![text("bob"), Value::Int(120), Value::Int(7)]);
        let carol = Value::Array(vec![text("carol"), Value::Int(110), text("01abcdef")]);
        ("queue", Value::Array(vec![bob, carol]))
    }

    /// The fields with one of them replaced.
    fn but(mut fields: Vec<(&'static str, Value)>, name: &str, value: Value) -> Value {
        for field in &mut fields {
            if field.0 == name {
                field.1 = value.clone();
            }
        }
        map(fields)
    }

    #[test]
    fn a_grant_is_a_token_and_holds() {
        let reply = Value::Array(vec![Value::Int(17), Value::Int(1)]);
        let read = Grant { token: Token(17), holds: 1 };
        assert_eq!(grant(reply), Ok(Some(read)));
        assert_eq!(grant(Value::Nil), Ok(None));
    }

    #[test]
    fn a_grant_that_is_none_is_an_error() {
        for bad in [
            Value::Okay,
            Value::Int(1),
            text("17"),
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(17)]),
            Value::Array(vec![Value::Int(17), Value::Int(1), Value::Int(1)]),
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
    fn small_replies_that_are_wrong_are_errors() {
        for bad in [Value::Int(-1), Value::Okay, text("1"), Value::Array(vec![])] {
            assert!(holds_left(bad.clone()).is_err(), "{bad:?}");
            assert!(lease(bad.clone()).is_err(), "{bad:?}");
            assert!(done(bad.clone()).is_err(), "{bad:?}");
        }
        assert!(done(Value::Int(2)).is_err());
        assert!(done(Value::Nil).is_err());
    }

    #[test]
    fn info_is_the_same_from_a_map_and_from_a_flat_array() {
        let expected = LockInfo {
            state: LockState::Held,
            shared: false,
            holders: 1,
            owner: Some(vec![0, 255]),
            holds: 2,
            token: Some(Token(1_795_202_270_794_123)),
            lease_left: Some(Duration::from_secs(9)),
            waiters: 1,
            queue: Vec::new(),
        };
        assert_eq!(info(flat(held())), Ok(expected.clone()));
        assert_eq!(info(map(held())), Ok(expected));
    }

    #[test]
    fn info_of_a_shared_lock_says_so() {
        let mut shared = held();
        shared.retain(|(name, _)| !matches!(*name, "owner" | "mode" | "holders"));
        shared.push(("owner", Value::Nil));
        shared.push(("mode", text("shared")));
        shared.push(("holders", Value::Int(3)));
        let read = info(map(shared)).unwrap();
        assert_eq!((read.shared, read.holders, read.owner), (true, 3, None));
    }

    #[test]
    fn info_of_a_free_lock_has_no_owner() {
        let read = info(flat(free())).unwrap();
        assert_eq!(read.state, LockState::Free);
        assert_eq!((read.owner, read.token, read.lease_left), (None, None, None));
    }

    #[test]
    fn info_has_the_queue_if_the_reply_has_it() {
        let with_queue = || {
            let mut fields = held();
            fields.push(queue());
            fields
        };
        let bob = Waiter {
            owner: b"bob".to_vec(),
            waited: Duration::from_millis(120),
            client_id: Some(7),
            session: None,
        };
        let carol = Waiter {
            owner: b"carol".to_vec(),
            waited: Duration::from_millis(110),
            client_id: None,
            session: Some("01abcdef".to_owned()),
        };
        assert_eq!(info(flat(with_queue())).unwrap().queue, [bob, carol]);
        assert_eq!(info(map(with_queue())), info(flat(with_queue())));
    }

    #[test]
    fn info_takes_fields_in_any_order_and_leaves_unknown_ones() {
        let mut fields = held();
        fields.reverse();
        fields.insert(2, ("colour", text("blue")));
        assert_eq!(info(flat(fields)), info(map(held())));
    }

    #[test]
    fn info_that_is_malformed_is_an_error() {
        let entry = |fields: Vec<Value>| {
            let mut info = held();
            info.push(("queue", Value::Array(vec![Value::Array(fields)])));
            map(info)
        };
        let mut odd = vec![text("state")];
        if let Value::Array(fields) = flat(held()) {
            odd.extend(fields);
        }
        let mut bad = vec![
            Value::Nil,
            Value::Okay,
            Value::Array(odd),
            Value::Array(vec![]),
            but(held(), "state", text("busy")),
            but(held(), "state", Value::Nil),
            but(held(), "owner", Value::Int(1)),
            but(held(), "holds", Value::Int(-1)),
            but(held(), "holds", Value::Nil),
            but(held(), "token", text("1")),
            but(held(), "lease-left", Value::Int(-1)),
            but(held(), "waiters", Value::Nil),
            entry(vec![]),
            entry(vec![text("bob"), Value::Int(1)]),
            entry(vec![text("bob"), Value::Int(-1), Value::Int(7)]),
            entry(vec![Value::Nil, Value::Int(1), Value::Int(7)]),
        ];
        for missing in 0..held().len() {
            let mut fields = held();
            fields.remove(missing);
            bad.push(map(fields));
        }
        for bad in bad {
            assert!(info(bad.clone()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_list_is_read_from_maps_and_from_flat_arrays() {
        let entry = || {
            vec![
                ("key", text("orders:42")),
                ("owner", Value::Nil),
                ("waiters", Value::Int(3)),
                ("longest-wait", Value::Int(2_500)),
            ]
        };
        let expected = LockSummary {
            key: b"orders:42".to_vec(),
            owner: None,
            waiters: 3,
            longest_wait: Duration::from_millis(2_500),
        };
        let reply = Value::Array(vec![flat(entry()), map(entry())]);
        assert_eq!(list(reply), Ok(vec![expected.clone(), expected]));
        assert_eq!(list(Value::Array(vec![])), Ok(Vec::new()));
        for bad in [
            Value::Nil,
            Value::Array(vec![Value::Nil]),
            Value::Array(vec![map(vec![("key", text("k"))])]),
            Value::Array(vec![but(entry(), "key", Value::Nil)]),
            Value::Array(vec![but(entry(), "longest-wait", Value::Int(-1))]),
        ] {
            assert!(list(bad.clone()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_error_tells_what_was_wrong() {
        let error = info(but(held(), "holds", Value::Nil)).unwrap_err();
        assert!(error.to_string().ends_with("holds"), "{error}");
    }
}
