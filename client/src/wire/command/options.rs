//! What the commands can be told beyond what they need.

use crate::wire::request::{GiveBack, Mode};

/// How a lock is to be acquired; alone, and once more than before, unless it says something else.
///
/// # Examples
///
/// ```
/// use kvlock::AcquireOptions;
///
/// let reading = AcquireOptions::default().shared().holds(1);
/// # let _ = reading;
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "options do nothing until they are given to a command"]
pub struct AcquireOptions<'a> {
    pub(super) mode: Mode,
    pub(super) holds: Option<u32>,
    pub(super) value: Option<&'a [u8]>,
}

impl Default for AcquireOptions<'_> {
    fn default() -> Self {
        Self { mode: Mode::Alone, holds: None, value: None }
    }
}

impl<'a> AcquireOptions<'a> {
    /// Together with others who share it: the read lock of a read-write lock.
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// How often the owner is to hold it after this, 1 to 4,294,967,295: one who holds it one time
    /// less gains a hold, one who holds it as often keeps what it has. So the same command can be sent
    /// again. A first acquire has 1, the reentry after it 2.
    pub fn holds(mut self, holds: u32) -> Self {
        self.holds = Some(holds);
        self
    }

    /// What the owner says of itself, as who leads does: up to 1,024 bytes. `LOCK.INFO` and those who
    /// observe the lock show it.
    pub fn value(mut self, value: &'a [u8]) -> Self {
        self.value = Some(value);
        self
    }
}

/// What is to be given back: one hold of a lock that is held alone, unless it says something else.
///
/// # Examples
///
/// ```
/// let all_of_a_reader = kvlock::ReleaseOptions::default().shared().all();
/// # let _ = all_of_a_reader;
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "options do nothing until they are given to a command"]
pub struct ReleaseOptions {
    pub(super) mode: Mode,
    pub(super) give_back: GiveBack,
}

impl Default for ReleaseOptions {
    fn default() -> Self {
        Self { mode: Mode::Alone, give_back: GiveBack::One }
    }
}

impl ReleaseOptions {
    /// What the owner shares.
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Every hold.
    pub fn all(mut self) -> Self {
        self.give_back = GiveBack::All;
        self
    }

    /// One hold, so that this many remain, 0 to 4,294,967,294: one who holds it that often already,
    /// once or more, keeps them.
    pub fn holds_left(mut self, holds: u32) -> Self {
        self.give_back = GiveBack::DownTo(holds);
        self
    }
}
