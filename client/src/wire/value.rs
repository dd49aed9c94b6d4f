//! Values of redis-rs, read strictly.

use redis::{ParsingError, Value};
use std::time::Duration;

/// Named fields: a map in RESP3, names and values by turns in RESP2. Fields that this version does
/// not know are left alone, so that a newer server can say more.
pub(crate) struct Fields(Vec<(Value, Value)>);

impl Fields {
    pub(crate) fn read(value: Value, what: &'static str) -> Result<Self, ParsingError> {
        match value.into_map_iter() {
            Ok(fields) => Ok(Self(fields.collect())),
            Err(_) => Err(malformed(what)),
        }
    }

    pub(crate) fn take(&mut self, name: &'static str) -> Result<Value, ParsingError> {
        self.take_if_there(name).ok_or_else(|| malformed(name))
    }

    pub(crate) fn take_if_there(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(field, _)| is_text(field, name))?;
        Some(self.0.swap_remove(at).1)
    }
}

pub(crate) fn present(value: Value) -> Option<Value> {
    (value != Value::Nil).then_some(value)
}

pub(crate) fn optional_millis(
    value: Value,
    what: &'static str,
) -> Result<Option<Duration>, ParsingError> {
    present(value).map(|millis| whole_number(&millis, what).map(Duration::from_millis)).transpose()
}

/// Strict where redis-rs is not: its own conversion to unsigned numbers wraps negative ones.
pub(crate) fn whole_number(value: &Value, what: &'static str) -> Result<u64, ParsingError> {
    let Value::Int(number) = value else {
        return Err(malformed(what));
    };
    u64::try_from(*number).map_err(|_| malformed(what))
}

pub(crate) fn bytes(value: Value, what: &'static str) -> Result<Vec<u8>, ParsingError> {
    let Value::BulkString(bytes) = value else {
        return Err(malformed(what));
    };
    Ok(bytes)
}

pub(crate) fn elements(value: Value, what: &'static str) -> Result<Vec<Value>, ParsingError> {
    let Value::Array(elements) = value else {
        return Err(malformed(what));
    };
    Ok(elements)
}

pub(crate) fn is_text(value: &Value, text: &str) -> bool {
    *value == Value::SimpleString(text.into()) || *value == Value::BulkString(text.into())
}

pub(crate) fn malformed(what: &'static str) -> ParsingError {
    ParsingError::from(format!("not what a LOCK command answers: {what}"))
}
