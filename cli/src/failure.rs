//! Exit codes, and why `kvlock` itself ends without success.

use kvlock::Error;

/// The command line, or what it asks for, makes no sense.
pub(crate) const USAGE: u8 = 2;
/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 123;
/// The lock was not acquired; as `timeout(1)` has it. Users may want another.
pub(crate) const NOT_ACQUIRED: u8 = 124;
/// The server cannot be reached, or refuses.
pub(crate) const TROUBLE: u8 = 125;
/// The command is there but cannot be run; as in the shell.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command; as in the shell.
pub(crate) const NOT_FOUND: u8 = 127;
/// A command that died of a signal ends with this plus the number of the signal.
pub(crate) const SIGNALLED: u8 = 128;

/// Why, in words that never contain a password, and what to exit with.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn usage(message: String) -> Self {
        Self { code: USAGE, message }
    }

    pub(crate) fn trouble(message: String) -> Self {
        Self { code: TROUBLE, message }
    }

    /// What went wrong with a lock or a server, by its name.
    pub(crate) fn of(name: &str, error: &Error) -> Self {
        let message = format!("{name}: {error}");
        match error {
            Error::Invalid(_) | Error::Config(_) => Self::usage(message),
            Error::Lost => Self { code: LOST, message },
            _ => Self::trouble(message),
        }
    }
}
