//! Names of what is waited for.

use std::rc::Rc;

/// What is waited for at a key. Each kind has a queue of its own: those who wait for one are none
/// of the others' business, whatever the key becomes meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A lock.
    Lock,
    /// A latch.
    Latch,
    /// A semaphore.
    Semaphore,
    /// Who holds a lock: those who observe it are told when that changes.
    Changes,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Lock, Self::Latch, Self::Semaphore, Self::Changes];

    /// What clients call the key of which something is waited for.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Lock | Self::Changes => "lock",
            Self::Semaphore => "semaphore",
            Self::Latch => "latch",
        }
    }
}

/// What is waited for, kept: a database number, a key, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockKey {
    /// The database.
    pub db: i32,
    /// The key.
    pub name: Rc<[u8]>,
    /// What it is to be.
    pub kind: Kind,
}

/// The same, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyRef<'a> {
    /// The database.
    pub db: i32,
    /// The key.
    pub name: &'a [u8],
    /// What it is to be.
    pub kind: Kind,
}

impl<'a> KeyRef<'a> {
    /// A lock.
    #[must_use]
    pub const fn lock(db: i32, name: &'a [u8]) -> Self {
        Self { db, name, kind: Kind::Lock }
    }

    /// A latch.
    #[must_use]
    pub const fn latch(db: i32, name: &'a [u8]) -> Self {
        Self { db, name, kind: Kind::Latch }
    }

    /// A semaphore.
    #[must_use]
    pub const fn semaphore(db: i32, name: &'a [u8]) -> Self {
        Self { db, name, kind: Kind::Semaphore }
    }

    /// The same key, as something else.
    pub(crate) const fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The same, kept.
    #[must_use]
    pub fn keep(self) -> LockKey {
        LockKey { db: self.db, name: self.name.into(), kind: self.kind }
    }
}

impl LockKey {
    /// The same name, borrowed.
    #[must_use]
    pub fn borrow(&self) -> KeyRef<'_> {
        KeyRef { db: self.db, name: &self.name, kind: self.kind }
    }
}
