//! Reading numbers and owners out of bytes that any client may have written.

use crate::fields::{PROBED_FIELD, RESERVED_FIELDS};

/// Maximum length of an owner, in bytes.
pub const OWNER_BYTES_MAX: usize = 1024;

/// Reads a number in the form in which the server writes it: decimal digits without sign, space or
/// leading zero. `None` for any other form, and for numbers that do not fit in 64 bits.
#[must_use]
pub fn strict_decimal(text: &[u8]) -> Option<u64> {
    match text {
        [] | [b'0', _, ..] => None,
        digits => digits.iter().try_fold(0_u64, |number, byte| {
            let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
            number.checked_mul(10)?.checked_add(digit.into())
        }),
    }
}

/// Splits a text at its first space.
pub(crate) fn in_two(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = text.splitn(2, |byte| *byte == b' ');
    Some((parts.next()?, parts.next()?))
}

/// Returns whether these bytes may name an owner: 1 to 1,024 bytes, and neither a reserved field nor
/// [`PROBED_FIELD`].
#[must_use]
pub fn is_owner(bytes: &[u8]) -> bool {
    (1..=OWNER_BYTES_MAX).contains(&bytes.len())
        && !RESERVED_FIELDS.contains(&bytes)
        && bytes != PROBED_FIELD.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_valid_notation() {
        assert_eq!(strict_decimal(b"0"), Some(0));
        assert_eq!(strict_decimal(b"10"), Some(10));
        assert_eq!(strict_decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            "",
            "-0",
            "-1",
            "+5",
            "5.0",
            "1e3",
            " 5",
            "5 ",
            "0x10",
            // The bytes before and after the digits in ASCII.
            "5/",
            "5:",
            "00",
            "05",
            "NaN",
            "inf",
            "18446744073709551616",
            "99999999999999999999999",
        ] {
            assert_eq!(strict_decimal(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(strict_decimal(b"5\0"), None);
    }

    #[test]
    fn owners_are_any_bytes_of_limited_length_except_reserved_names() {
        assert!(is_owner(b"a"));
        assert!(is_owner(b"\0\xff\r\n"));
        assert!(is_owner(&[b'x'; OWNER_BYTES_MAX]));
        assert!(!is_owner(b""));
        assert!(!is_owner(&[b'x'; OWNER_BYTES_MAX + 1]));
        assert!(!is_owner(b"fencing-token"));
        assert!(!is_owner(b"lock-mode"));
        assert!(is_owner(b"fencing-token2"));
    }
}
