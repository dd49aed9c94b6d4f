//! Strict conversion of redis-rs values.

use redis::{ParsingError, Value};
use std::time::Duration;

/// A type that can be read from a redis-rs value. If the value is malformed, the error contains `what`.
pub(crate) trait Read: Sized {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError>;
}

/// Refuses negative numbers, which the conversion of redis-rs would wrap.
impl Read for u64 {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        let Value::Int(number) = value else { return Err(malformed(what)) };
        Self::try_from(number).map_err(|_| malformed(what))
    }
}

/// Reads a number of milliseconds.
impl Read for Duration {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        u64::read(value, what).map(Self::from_millis)
    }
}

impl Read for Vec<u8> {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        let Value::BulkString(bytes) = value else { return Err(malformed(what)) };
        Ok(bytes)
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        let Value::Array(elements) = value else { return Err(malformed(what)) };
        elements.into_iter().map(|element| T::read(element, what)).collect()
    }
}

impl<T: Read> Read for Option<T> {
    fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        if value == Value::Nil { Ok(None) } else { T::read(value, what).map(Some) }
    }
}

impl Read for Value {
    fn read(value: Value, _: &'static str) -> Result<Self, ParsingError> {
        Ok(value)
    }
}

/// Named fields: a map in RESP3, an array of names and values in RESP2. Unknown fields are ignored, so
/// that a newer server can send more. Fields are taken by their Rust names: `lease_left` for the server's
/// `lease-left`.
pub(crate) struct Fields(Vec<(Value, Value)>);

impl Fields {
    pub(crate) fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        match value.into_map_iter() {
            Ok(fields) => Ok(Self(fields.collect())),
            Err(_) => Err(malformed(what)),
        }
    }

    pub(crate) fn take<T: Read>(&mut self, name: &'static str) -> Result<T, ParsingError> {
        self.take_if_there(name)?.ok_or_else(|| malformed(name))
    }

    pub(crate) fn take_if_there<T: Read>(
        &mut self,
        name: &'static str,
    ) -> Result<Option<T>, ParsingError> {
        let there = name.replace('_', "-");
        let at = self.0.iter().position(|(field, _)| is_text(field, &there));
        at.map(|at| T::read(self.0.swap_remove(at).1, name)).transpose()
    }
}

/// The elements of a list reply, in order. An older server may omit elements at the end, and a newer one may
/// add some there.
pub(crate) struct Parts(std::vec::IntoIter<Value>);

impl Parts {
    pub(crate) fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        Ok(Self(Vec::<Value>::read(value, what)?.into_iter()))
    }

    pub(crate) fn next<T: Read>(&mut self, what: &'static str) -> Result<T, ParsingError> {
        T::read(self.0.next().unwrap_or(Value::Nil), what)
    }
}

pub(crate) fn is_text(value: &Value, text: &str) -> bool {
    matches!(value, Value::SimpleString(said) if said == text)
        || matches!(value, Value::BulkString(said) if said == text.as_bytes())
}

pub(crate) fn malformed(what: &'static str) -> ParsingError {
    ParsingError::from(format!("not what a LOCK command answers: {what}"))
}
