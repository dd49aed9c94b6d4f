//! What the commands can be told beyond what they need.

use crate::wire::request::{GiveBack, Mode};

/// How to acquire a lock. Default: exclusively, with one hold more than before.
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
    /// Shares the lock: the read lock of a read-write lock.
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Sets the number of holds after the command, 1 to 4,294,967,295. An owner with one hold less gets one more.
    /// An owner with this number of holds keeps them, so the same command can be sent
    /// again. A first acquire has 1, the reentry after it 2.
    pub fn holds(mut self, holds: u32) -> Self {
        self.holds = Some(holds);
        self
    }

    /// Sets the owner's value, for example the address of a leader: up to 1,024 bytes. `LOCK.INFO` and observers of
    /// the lock return it.
    pub fn value(mut self, value: &'a [u8]) -> Self {
        self.value = Some(value);
        self
    }
}

/// What to give back. Default: one exclusive hold.
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

    /// Gives back one hold, so that this many remain, 0 to 4,294,967,294. An owner with this number of holds
    /// already, at least one, keeps them.
    pub fn holds_left(mut self, holds: u32) -> Self {
        self.give_back = GiveBack::DownTo(holds);
        self
    }
}
