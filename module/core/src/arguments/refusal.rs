//! Limits of arguments, errors for invalid arguments, and functions that read a word or a number.

use std::fmt;

use crate::parse::{OWNER_BYTES_MAX, strict_decimal};
use crate::value::VALUE_BYTES_MAX;

/// Longest time that a command accepts, in milliseconds: ten years.
pub const TEN_YEARS_MS: u64 = 315_360_000_000;

/// Longest name of a key that is waited for, observed or bound, in bytes. The module keeps such
/// names in memory.
pub const KEY_BYTES_MAX: usize = 4_096;

/// Largest number of keys in a set of locks.
pub const SET_KEYS_MAX: usize = 64;

/// Error for a `VALUE` from an owner that shares the lock or asks to share it.
pub const NO_VALUE: &str = "ERR a lock that is shared has no VALUE";

/// Reason for which arguments are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A missing word, or an unknown word or combination of words.
    Syntax,
    /// An invalid name of an owner, a participant or a waiter.
    Name(&'static str),
    /// An invalid number, or a number out of its range.
    Number {
        /// Name of the argument.
        name: &'static str,
        /// Smallest allowed number.
        least: u64,
        /// Largest allowed number.
        most: u64,
    },
    /// A `VALUE` that is too long.
    Value,
    /// A `VALUE` in a request to share a lock.
    SharedValue,
    /// A key whose name is too long.
    Key,
    /// A set of locks with too many keys, or with a key twice.
    Set,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax => f.write_str("ERR syntax error"),
            Self::Name(what) => write!(
                f,
                "ERR invalid {what}: must be 1 to {OWNER_BYTES_MAX} bytes and not a reserved field name"
            ),
            Self::Number { name, least, most } => {
                write!(f, "ERR invalid {name}: must be between {least} and {most}")
            }
            Self::Value => write!(f, "ERR invalid VALUE: must be at most {VALUE_BYTES_MAX} bytes"),
            Self::SharedValue => f.write_str(NO_VALUE),
            Self::Set => {
                write!(
                    f,
                    "ERR invalid keys: at most {SET_KEYS_MAX} together, and none of them twice"
                )
            }
            Self::Key => write!(
                f,
                "ERR invalid key: to be waited for, observed or bound it must be at most {KEY_BYTES_MAX} bytes"
            ),
        }
    }
}

/// The parsed arguments, or the reason for refusing them.
pub type Read<T> = Result<T, Refusal>;

/// Returns whether an argument is this word. Ignores case.
pub(super) fn is(arg: &impl AsRef<[u8]>, word: &[u8]) -> bool {
    arg.as_ref().eq_ignore_ascii_case(word)
}

/// Reads a number between `least` and `most`.
pub(super) fn number(name: &'static str, arg: &[u8], least: u64, most: u64) -> Read<u64> {
    let number = strict_decimal(arg).filter(|n| (least..=most).contains(n));
    number.ok_or(Refusal::Number { name, least, most })
}
