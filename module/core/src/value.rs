//! The value of a holder, for example an address or a version. The value ends with the grant.
//!
//! ```text
//! alice → 2   fencing-token → t17   lock-value → v10.0.0.7:8080
//! ```
//!
//! Sharers have no value: there is one field, and no sharer is *the* holder.

use std::rc::Rc;

/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1_024;

/// Value of a holder, if it has one.
pub type Value = Option<Rc<[u8]>>;

/// Precedes the value in the hash, so that the field never reads as a number: Redisson counts down
/// from every number in the hash.
const MARK: u8 = b'v';

/// Returns the stored form of a value.
#[must_use]
pub fn stored_value(value: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(value.len().saturating_add(1));
    stored.push(MARK);
    stored.extend_from_slice(value);
    stored
}

/// Returns the value of a stored form. `None` if kvlock cannot have written it.
#[must_use]
pub fn value_of(stored: &[u8]) -> Option<&[u8]> {
    let value = stored.strip_prefix(&[MARK])?;
    (1..=VALUE_BYTES_MAX).contains(&value.len()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::Observed;

    #[test]
    fn a_value_is_read_as_it_is_written_and_never_as_a_number() {
        for value in [&b"5"[..], b"v", b"10.0.0.7:80", &[0; VALUE_BYTES_MAX]] {
            let stored = stored_value(value);
            assert_eq!(value_of(&stored), Some(value));
            assert_eq!(Observed::read_holds(&stored), None);
        }
        for other in [&b""[..], b"v", b"5", b"V5", &[b'v'; VALUE_BYTES_MAX + 2]] {
            assert_eq!(value_of(other), None, "{other:?}");
        }
    }
}
