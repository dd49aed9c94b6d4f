//! A small, strict, synchronous client for RESP2 and RESP3.
//!
//! It does not use redis-rs, because it has to be strict where redis-rs is lenient: a stray CR or LF in an
//! error line fails the test. It can also send bytes that are no command, and stop in the middle of a
//! command. It can reset the connection, and detect whether a reply has arrived.

mod connection;
mod display;
mod parser;
mod quoting;
mod value;

pub use connection::{Connection, ReceiveError, encode};
pub use parser::{Malformed, parse};
pub use quoting::{escape, split};
pub use value::Value;

/// An argument of a command: text, bytes or a whole number.
pub trait Argument {
    /// Appends the bytes that are sent.
    fn append_to(&self, bytes: &mut Vec<u8>);
}

macro_rules! argument {
    (bytes: $($type:ty),+) => {$(impl Argument for $type {
        fn append_to(&self, bytes: &mut Vec<u8>) {
            bytes.extend_from_slice(self.as_ref());
        }
    })+};
    (number: $($type:ty),+) => {$(impl Argument for $type {
        fn append_to(&self, bytes: &mut Vec<u8>) {
            bytes.extend_from_slice(self.to_string().as_bytes());
        }
    })+};
}

argument!(bytes: str, String, [u8], Vec<u8>);
argument!(number: i32, u32, i64, u64, usize, u16);

impl<const N: usize> Argument for [u8; N] {
    fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }
}

impl<T: Argument + ?Sized> Argument for &T {
    fn append_to(&self, bytes: &mut Vec<u8>) {
        (**self).append_to(bytes);
    }
}

/// Makes a command from text, bytes and numbers: `cmd!["LOCK.RENEW", key, b"\xff", 1000]`.
#[macro_export]
macro_rules! cmd {
    ($($argument:expr),+ $(,)?) => {
        vec![$({
            let mut bytes = Vec::new();
            $crate::resp::Argument::append_to(&$argument, &mut bytes);
            bytes
        }),+]
    };
}
