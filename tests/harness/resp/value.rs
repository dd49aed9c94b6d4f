//! A reply.

use std::ops::Index;

/// A reply as it arrived, in RESP2 or RESP3. `Display` writes it as redis-cli does, but maps, sets and pushes
/// in one line.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Null: the null bulk and the null array of RESP2, `_` in RESP3.
    Nil,
    /// A simple string, such as `OK`.
    Status(String),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// A whole number.
    Integer(i64),
    /// An error line.
    Error {
        /// Its first word: `WRONGTYPE`, `ERR`.
        code: String,
        /// The rest.
        text: String,
    },
    /// An array.
    Array(Vec<Self>),
    /// RESP3: pairs in the order of arrival.
    Map(Vec<(Self, Self)>),
    /// RESP3: a set.
    Set(Vec<Self>),
    /// RESP3: a message outside the order of requests and replies.
    Push(Vec<Self>),
    /// RESP3: true or false.
    Bool(bool),
    /// RESP3: a floating-point number.
    Double(f64),
    /// RESP3: an integer of any size, as its digits.
    BigNumber(String),
    /// RESP3: text with a three-letter format, which is left out here.
    Verbatim(Vec<u8>),
}

impl Value {
    /// A bulk string.
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    /// Returns whether it is a null.
    pub fn is_nil(&self) -> bool {
        *self == Self::Nil
    }

    /// Returns whether it is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error { .. })
    }

    /// The number; any other reply fails the test.
    pub fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            other => panic!("expected an integer, got {other}"),
        }
    }

    /// The bytes of a string of any type, or the digits of a big number. Any other reply fails the test.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bulk(bytes) | Self::Verbatim(bytes) => bytes,
            Self::Status(text) | Self::BigNumber(text) => text.as_bytes(),
            other => panic!("expected a string, got {other}"),
        }
    }

    /// [`bytes`](Self::bytes) as text, with replacements for invalid UTF-8.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// The elements of an array, set or push; any other reply fails the test.
    pub fn elements(&self) -> &[Self] {
        match self {
            Self::Array(elements) | Self::Set(elements) | Self::Push(elements) => elements,
            other => panic!("expected an array, got {other}"),
        }
    }

    /// The first word of an error; any other reply fails the test.
    pub fn code(&self) -> &str {
        match self {
            Self::Error { code, .. } => code,
            other => panic!("expected an error, got {other}"),
        }
    }

    /// The value of a field, in a map or in the flat array that RESP2 uses instead. Fails the test if there is
    /// none.
    pub fn field(&self, name: &str) -> &Self {
        let found = match self {
            Self::Map(pairs) => {
                pairs.iter().find(|(key, _)| key.bytes() == name.as_bytes()).map(|(_, value)| value)
            }
            Self::Array(flat) => flat
                .chunks_exact(2)
                .find(|pair| pair[0].bytes() == name.as_bytes())
                .map(|pair| &pair[1]),
            _ => None,
        };
        found.unwrap_or_else(|| panic!("no field {name} in {self}"))
    }
}

/// `reply[0]` is the first element; panics if there is none.
impl Index<usize> for Value {
    type Output = Self;

    fn index(&self, index: usize) -> &Self {
        &self.elements()[index]
    }
}
