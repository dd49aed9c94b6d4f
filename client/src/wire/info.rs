//! Replies of `LOCK.INFO`, `LOCK.LIST`, `LOCK.PROFILE`, `SEM.INFO` and `LATCH.INFO`.

use crate::wire::reply::{Grant, Token, read};
use crate::wire::value::{Fields, Parts, Read, is_text, malformed};
use redis::{FromRedisValue, ParsingError, Value};
use std::time::Duration;

/// State of a lock: held or free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum LockState {
    /// Not held.
    Free,
    /// Held by one owner, or shared. A lock with thousands of sharers may be reported as held although all
    /// their leases have ended, until a client requests the lock.
    Held,
}

/// Reply of `LOCK.INFO`: the state of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LockInfo {
    /// State of the lock: held or free.
    pub state: LockState,
    /// `true` if owners share the lock; `false` if one owner holds it exclusively, or if it is free.
    pub shared: bool,
    /// Number of owners that hold the lock. For a shared lock it includes sharers whose leases have ended,
    /// until the server removes them.
    pub holders: u64,
    /// The exclusive owner; `None` if the lock is free or shared.
    pub owner: Option<Vec<u8>>,
    /// Number of holds of the exclusive owner; 0 if the lock is free or shared.
    pub holds: u64,
    /// The token of the grant; all sharers have the same one. `None` if the lock is free, or if a Redisson
    /// client acquired it.
    pub token: Option<Token>,
    /// Remaining lease; for a shared lock, the longest one of its sharers. `None` if the lock is free, or if
    /// its TTL was removed.
    pub lease_left: Option<Duration>,
    /// Number of waiters.
    pub waiters: u64,
    /// Value of the exclusive holder, for example of a leader:
    /// [`Election::value`](crate::Election::value). `None` if it has none.
    pub value: Option<Vec<u8>>,
    /// The first waiters, in the order of the queue. Empty unless requested with
    /// [`lock_info_waiters`](crate::AsyncLockCommands::lock_info_waiters).
    pub queue: Vec<Waiter>,
}

/// An owner in the queue of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Waiter {
    /// The waiting owner.
    pub owner: Vec<u8>,
    /// Time that it has waited.
    pub waited: Duration,
    /// Id of the blocked connection on the server, as in `CLIENT LIST` and `CLIENT KILL ID`. `None` for a
    /// wait through a session.
    pub client_id: Option<u64>,
    /// First 8 digits of the session's id, for a wait through a session: see `SESSION.LIST`.
    pub session: Option<String>,
    /// All locks that it waits for, if it waits for several in one step; otherwise empty. `None` stands for a
    /// key that the user may not read.
    pub set: Vec<Option<Vec<u8>>>,
    /// The lock of `set` that was not free when the server last tried to grant the set. `None` if `set` is
    /// empty, if the server is about to try again, or if the user may not read the key.
    pub waits_for: Option<Vec<u8>>,
}

/// Reply of `SEM.INFO`: the state of a semaphore.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SemaphoreInfo {
    /// Number of permits.
    pub permits: u64,
    /// Number of held permits. Includes permits of expired holders until a client needs them.
    pub used: u64,
    /// Number of owners that hold permits. Includes expired holders until a client needs their permits.
    pub holders: u64,
    /// Number of waiters.
    pub waiters: u64,
}

/// Reply of `LATCH.INFO`: the state of a latch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LatchInfo {
    /// Count that is left; 0 if the latch is open.
    pub count: u64,
    /// Number of named participants that have counted the latch down.
    pub participants: u64,
    /// Time until the server deletes the latch; `None` if it is open or has no lifetime.
    pub lifetime_left: Option<Duration>,
    /// Number of waiters.
    pub waiters: u64,
}

/// A lock with waiters, as `LOCK.LIST` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LockSummary {
    /// The name of the lock.
    pub key: Vec<u8>,
    /// The exclusive owner; `None` if the lock is free or shared, or if the key holds something that is not a
    /// lock.
    pub owner: Option<Vec<u8>>,
    /// Number of waiters.
    pub waiters: u64,
    /// Time that the first waiter has waited. Waiters whose session has lost its connection do not
    /// count; `None` if there are no others.
    pub longest_wait: Option<Duration>,
    /// The other lock that keeps the first waiter waiting, if it waits for several locks.
    pub first_waits_for: Option<Vec<u8>>,
}

impl Read for LockSummary {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        let mut fields = Fields::read(value, what)?;
        Ok(Self {
            key: fields.take("key")?,
            owner: fields.take("owner")?,
            waiters: fields.take("waiters")?,
            longest_wait: fields.take("longest_wait")?,
            first_waits_for: fields.take_if_there("first_waits_for")?,
        })
    }
}

impl Read for LockInfo {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        let mut fields = Fields::read(value, what)?;
        let mode: Option<Vec<u8>> = fields.take("mode")?;
        Ok(Self {
            state: fields.take("state")?,
            shared: mode.is_some_and(|mode| mode == b"shared"),
            holders: fields.take("holders")?,
            owner: fields.take("owner")?,
            holds: fields.take("holds")?,
            token: fields.take("token")?,
            lease_left: fields.take("lease_left")?,
            waiters: fields.take("waiters")?,
            value: fields.take_if_there("value")?,
            queue: fields.take_if_there("queue")?.unwrap_or_default(),
        })
    }
}

impl Read for LockState {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        match &value {
            held if is_text(held, "held") => Ok(Self::Held),
            free if is_text(free, "free") => Ok(Self::Free),
            _ => Err(malformed(what)),
        }
    }
}

impl Read for Waiter {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        let mut parts = Parts::read(value, what)?;
        let (owner, waited) = (parts.next("owner of a waiter")?, parts.next("wait of a waiter")?);
        let through = parts.next("client id of a waiter")?;
        let (client_id, session) = if let Value::BulkString(id) = through {
            (None, Some(String::from_utf8_lossy(&id).into_owned()))
        } else {
            (Some(u64::read(through, "client id of a waiter")?), None)
        };
        let set: Option<Vec<Option<Vec<u8>>>> = parts.next("locks of a waiter")?;
        let waits_for = parts.next("lock that a waiter waits for")?;
        let set = set.unwrap_or_default();
        Ok(Self { owner, waited, client_id, session, set, waits_for })
    }
}

/// Waiting times of a lock or semaphore, as `LOCK.PROFILE` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LockProfile {
    /// The name of the lock or semaphore.
    pub key: Vec<u8>,
    /// Sum of the waiting times of all waiters that were granted the lock or its permits, since the last
    /// reset.
    pub waited: Duration,
    /// Longest of these waiting times.
    pub longest_wait: Duration,
    /// Number of waiters that were granted the lock or its permits.
    pub hand_offs: u64,
    /// Sum of the times that exclusive owners held the lock before a release that granted it to a waiter.
    pub held: Duration,
    /// Upper limit of the waiting time that is missing in `waited`.
    pub missed: Duration,
}

/// Implements [`Read`] for types whose fields have the names of the server's fields, with `_` for `-`.
macro_rules! fields {
    ($($of:ident { $($field:ident),* })*) => { $(
        impl Read for $of {
            fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
                let mut fields = Fields::read(value, what)?;
                Ok(Self { $($field: fields.take(stringify!($field))?),* })
            }
        }
    )* };
}

fields! {
    LockProfile { key, waited, longest_wait, hand_offs, held, missed }
    SemaphoreInfo { permits, used, holders, waiters }
    LatchInfo { count, participants, lifetime_left, waiters }
}

/// Implements `FromRedisValue`, for commands that a program sends itself through redis-rs.
macro_rules! from_redis_value {
    ($($of:ty),*) => { $(
        impl FromRedisValue for $of {
            fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
                read(value)
            }
        }
    )* };
}
from_redis_value!(Grant, LockInfo, LockSummary, Waiter);

#[cfg(test)]
mod tests {
    use super::*;

    fn info(value: Value) -> Result<LockInfo, ParsingError> {
        read(value)
    }

    fn list(value: Value) -> Result<Vec<LockSummary>, ParsingError> {
        read(value)
    }

    #[cfg(feature = "serde")]
    #[test]
    fn lock_info_can_be_serialized() {
        let longest_wait = Some(Duration::from_secs(1));
        let waiting = LockSummary {
            key: b"k".to_vec(),
            owner: None,
            waiters: 3,
            longest_wait,
            first_waits_for: None,
        };
        let text = serde_json::to_string(&waiting).unwrap();
        assert!(text.contains(r#""waiters":3"#) && text.contains("[107]"), "{text}");
        let token: Token = serde_json::from_str("17").unwrap();
        assert_eq!(serde_json::to_string(&token).unwrap(), "17");
    }

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
        let set = Value::Array(vec![text("k"), Value::Nil]);
        let carol = vec![text("carol"), Value::Int(110), text("01abcdef"), set, text("l")];
        let carol = Value::Array(carol);
        ("queue", Value::Array(vec![bob, carol]))
    }

    /// Returns the fields as a map, with one value replaced.
    fn but(mut fields: Vec<(&'static str, Value)>, name: &str, value: Value) -> Value {
        for field in &mut fields {
            if field.0 == name {
                field.1 = value.clone();
            }
        }
        map(fields)
    }

    #[test]
    fn info_is_the_same_from_a_map_and_from_a_flat_array() {
        let expected = LockInfo {
            state: LockState::Held,
            shared: false,
            holders: 1,
            owner: Some(vec![0, 255]),
            holds: 2,
            token: Some(Token::from(1_795_202_270_794_123)),
            lease_left: Some(Duration::from_secs(9)),
            waiters: 1,
            value: None,
            queue: Vec::new(),
        };
        assert_eq!(info(flat(held())), Ok(expected.clone()));
        assert_eq!(info(map(held())), Ok(expected));
    }

    #[test]
    fn info_has_the_holders_value() {
        let fields = [held(), vec![("value", text("a:1"))]].concat();
        assert_eq!(info(map(fields)).unwrap().value.as_deref(), Some(&b"a:1"[..]));
        assert!(
            info(but([held(), vec![("value", Value::Nil)]].concat(), "value", Value::Int(1)))
                .is_err()
        );
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
            set: Vec::new(),
            waits_for: None,
        };
        let carol = Waiter {
            owner: b"carol".to_vec(),
            waited: Duration::from_millis(110),
            client_id: None,
            session: Some("01abcdef".to_owned()),
            set: vec![Some(b"k".to_vec()), None],
            waits_for: Some(b"l".to_vec()),
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
    fn malformed_info_is_an_error() {
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
            longest_wait: Some(Duration::from_millis(2_500)),
            first_waits_for: None,
        };
        let held_up = [entry(), vec![("first-waits-for", text("l"))]].concat();
        let first_waits_for = Some(b"l".to_vec());
        let other = LockSummary { first_waits_for, ..expected.clone() };
        let away = LockSummary { longest_wait: None, ..expected.clone() };
        let reply = Value::Array(vec![
            flat(entry()),
            map(entry()),
            map(held_up),
            but(entry(), "longest-wait", Value::Nil),
        ]);
        assert_eq!(list(reply), Ok(vec![expected.clone(), expected, other, away]));
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
    fn an_error_describes_the_invalid_reply() {
        let error = info(but(held(), "holds", Value::Nil)).unwrap_err();
        assert!(error.to_string().ends_with("holds"), "{error}");
    }
}
