//! Names of locks, semaphores and latches, and of their queues.

use std::rc::Rc;

/// Kind of a queue, by what its waiters wait for. A key has at most one queue of each kind. A
/// waiter stays in the queue of its kind, even if the key becomes something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A lock.
    Lock,
    /// A latch.
    Latch,
    /// A semaphore.
    Semaphore,
    /// Changes of a lock, for observers.
    Changes,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 4] = [Self::Lock, Self::Latch, Self::Semaphore, Self::Changes];

    /// The word for this kind of key in replies and messages.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Lock | Self::Changes => "lock",
            Self::Semaphore => "semaphore",
            Self::Latch => "latch",
        }
    }
}

/// The name of a lock, a semaphore or a latch, or of one of its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockKey {
    /// The database.
    pub db: i32,
    /// The key.
    pub name: Rc<[u8]>,
    /// Kind of the queue.
    pub kind: Kind,
}

/// A borrowed [`LockKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyRef<'a> {
    /// The database.
    pub db: i32,
    /// The key.
    pub name: &'a [u8],
    /// Kind of the queue.
    pub kind: Kind,
}

impl<'a> KeyRef<'a> {
    /// The name of a lock.
    #[must_use]
    pub const fn lock(db: i32, name: &'a [u8]) -> Self {
        Self { db, name, kind: Kind::Lock }
    }

    /// The name of a latch.
    #[must_use]
    pub const fn latch(db: i32, name: &'a [u8]) -> Self {
        Self { db, name, kind: Kind::Latch }
    }

    /// The name of a semaphore.
    #[must_use]
    pub const fn semaphore(db: i32, name: &'a [u8]) -> Self {
        Self { db, name, kind: Kind::Semaphore }
    }

    /// Returns the same key with another kind.
    pub(crate) const fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// Returns an owned copy.
    #[must_use]
    pub fn to_lock_key(self) -> LockKey {
        LockKey { db: self.db, name: self.name.into(), kind: self.kind }
    }
}

impl LockKey {
    /// Returns a borrowed form.
    #[must_use]
    pub fn borrow(&self) -> KeyRef<'_> {
        KeyRef { db: self.db, name: &self.name, kind: self.kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_what_the_key_is_for() {
        assert_eq!(Kind::ALL.map(Kind::word), ["lock", "latch", "semaphore", "lock"]);
    }
}
