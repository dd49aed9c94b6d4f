//! Access to other keys during a decision: ready-keys of `UNLESS`, and holders of other locks.

use std::fmt;

/// The keys in the database of a lock.
pub trait Keys {
    /// Returns whether a key exists.
    fn exists(&self, name: &[u8]) -> bool;

    /// Returns up to `most` owners that hold a lock. May return none if the lock has more owners,
    /// expired ones included. In a cluster, only locks in the slot of the lock `asked` can be read.
    fn holders(&self, name: &[u8], asked: &[u8], most: usize) -> HeldBy {
        let _ = (name, asked, most);
        HeldBy::default()
    }
}

/// The holders of a lock.
#[derive(Debug, Default)]
pub struct HeldBy {
    /// The owners.
    pub owners: Vec<Box<[u8]>>,
    /// `true` if the owners share the lock.
    pub is_shared: bool,
}

impl<F: Fn(&[u8]) -> bool> Keys for F {
    fn exists(&self, name: &[u8]) -> bool {
        self(name)
    }
}

/// Access to the keys of a database: which ready-keys exist now, and which owners hold a lock.
#[derive(Clone, Copy, Default)]
pub struct Results<'a>(Option<&'a dyn Keys>);

impl<'a> Results<'a> {
    /// Access to no keys.
    pub const NONE: Self = Self(None);

    /// Gives access to these keys.
    #[must_use]
    pub fn among(keys: &'a dyn Keys) -> Self {
        Self(Some(keys))
    }

    pub(crate) fn has(self, ready_key: &[u8]) -> bool {
        self.0.is_some_and(|keys| keys.exists(ready_key))
    }

    /// The holders of a lock: see [`Keys::holders`].
    pub(crate) fn holders(self, name: &[u8], asked: &[u8], most: usize) -> HeldBy {
        self.0.map(|keys| keys.holders(name, asked, most)).unwrap_or_default()
    }
}

impl fmt::Debug for Results<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Results")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_key_is_looked_up_among_the_keys_if_there_are_any() {
        let keys = |name: &[u8]| name == b"result";
        let results = Results::among(&keys);
        assert!(results.has(b"result") && !results.has(b"other") && !Results::NONE.has(b"result"));
        assert!(results.holders(b"k", b"k", 9).owners.is_empty(), "no holders are read");
        assert_eq!(format!("{results:?}"), "Results");
    }
}
