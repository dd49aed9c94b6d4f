//! The name of the lock that belongs to a key.

use crate::wire::error::Error;

/// Returns the name of a key's lock. In a cluster it is in the slot of the key, if [`check_slot`] accepts the
/// key.
pub(super) fn lock_name(key: &[u8]) -> Vec<u8> {
    match has_tag(key) {
        true => [key, b":lock"].concat(),
        false => [b"{", key, b"}:lock"].concat(),
    }
}

/// Refuses keys for which [`lock_name`] is in another slot of a cluster.
pub(super) fn check_slot(key: &[u8]) -> Result<(), Error> {
    if has_tag(key) || !key.contains(&b'}') {
        return Ok(());
    }
    Err(Error::Invalid(
        "a key of a result that contains } needs a hash tag, as in {user:7}:report: \
         else its lock would be in another slot of a cluster"
            .to_owned(),
    ))
}

/// Returns whether the key has a hash tag, which alone decides on its slot: the text between the first `{`
/// and the next `}`, unless that is empty.
fn has_tag(key: &[u8]) -> bool {
    let mut parts = key.splitn(2, |byte| *byte == b'{');
    let rest = parts.nth(1).unwrap_or_default();
    rest.iter().position(|byte| *byte == b'}').is_some_and(|end| end > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_a_key_is_in_the_same_slot() {
        for (key, lock) in [
            ("report", "{report}:lock"),
            ("{user:7}:feed", "{user:7}:feed:lock"),
            ("a{b}c{d}", "a{b}c{d}:lock"),
            ("a{b", "{a{b}:lock"),
        ] {
            assert_eq!(lock_name(key.as_bytes()), lock.as_bytes(), "{key}");
            assert!(check_slot(key.as_bytes()).is_ok(), "{key}");
            #[cfg(feature = "cluster")]
            assert_eq!(
                crate::net::slots::slot_of(key.as_bytes()),
                crate::net::slots::slot_of(lock.as_bytes()),
                "{key}"
            );
        }
        for key in ["a}b", "{}x", "}", "{}{a}"] {
            assert!(matches!(check_slot(key.as_bytes()), Err(Error::Invalid(_))), "{key}");
        }
    }
}
