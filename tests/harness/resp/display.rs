//! Prints replies as redis-cli does in RESP2. The maps, sets and pushes of RESP3 are printed in one line.

use super::quoting::escape;
use super::value::Value;
use std::fmt;

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self, f, 0)
    }
}

impl Value {
    /// The reply in one line. Arrays are in brackets, and a map is shown as the array that RESP2 has instead.
    pub fn line(&self) -> String {
        let list = |values: &mut dyn Iterator<Item = &Self>| {
            format!("[{}]", values.map(Self::line).collect::<Vec<_>>().join(", "))
        };
        match self {
            Self::Nil => "nil".to_owned(),
            Self::Integer(number) => number.to_string(),
            Self::Array(elements) | Self::Push(elements) | Self::Set(elements) => {
                list(&mut elements.iter())
            }
            Self::Map(pairs) => list(&mut pairs.iter().flat_map(|(key, value)| [key, value])),
            _ => self.to_string(),
        }
    }
}

/// `indent` is the indentation of all lines after the first.
fn write(value: &Value, f: &mut fmt::Formatter<'_>, indent: usize) -> fmt::Result {
    match value {
        Value::Nil => f.write_str("(nil)"),
        Value::Status(text) | Value::BigNumber(text) => f.write_str(text),
        Value::Bulk(bytes) => write!(f, "\"{}\"", escape(bytes)),
        Value::Verbatim(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
        Value::Integer(number) => write!(f, "(integer) {number}"),
        Value::Error { code, text } if text.is_empty() => write!(f, "(error) {code}"),
        Value::Error { code, text } => write!(f, "(error) {code} {text}"),
        Value::Bool(true) => f.write_str("(true)"),
        Value::Bool(false) => f.write_str("(false)"),
        Value::Double(number) => write!(f, "(double) {number}"),
        Value::Array(elements) if elements.is_empty() => f.write_str("(empty array)"),
        Value::Array(elements) => write_list(f, indent, elements),
        Value::Push(_) | Value::Set(_) | Value::Map(_) => f.write_str(&value.line()),
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, indent: usize, list: &[Value]) -> fmt::Result {
    let width = list.len().to_string().len();
    for (index, element) in list.iter().enumerate() {
        if index > 0 {
            write!(f, "\n{:indent$}", "")?;
        }
        write!(f, "{:>width$}) ", index + 1)?;
        write(element, f, indent + width + 2)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_one_line_a_map_is_an_array() {
        let pair = |value| vec![(Value::bulk("k"), value)];
        let value = Value::Map(pair(Value::Array(vec![Value::Integer(5), Value::Nil])));
        assert_eq!(value.line(), "[\"k\", [5, nil]]");
        assert_eq!(Value::Array(vec![]).line(), "[]");
    }
}
