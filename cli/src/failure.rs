//! Exit codes, and the failures of `kvlock` itself.

use kvlock::Error;

/// The command line, or a value in it, is invalid. Also if `top` has no terminal.
pub(crate) const USAGE: u8 = 2;
/// The lock was lost while the command ran, or before the lock was released.
pub(crate) const LOST: u8 = 123;
/// The lock was not acquired. The default of `--conflict-exit-code`, and the code of `timeout(1)`.
pub(crate) const NOT_ACQUIRED: u8 = 124;
/// Any other error: the server cannot be reached or refuses a request, or the system refuses one.
pub(crate) const TROUBLE: u8 = 125;
/// The command exists but cannot be executed, as in the shell.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command does not exist, as in the shell.
pub(crate) const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended the command or this process.
pub(crate) const SIGNALLED: u8 = 128;

/// Failure of `kvlock` itself, with its exit code. The message never contains a password.
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

    /// Returns the failure for an error that concerns the lock or the server with this name.
    pub(crate) fn of(name: &str, error: &Error) -> Self {
        let message = format!("{name}: {error}");
        match error {
            Error::Invalid(_) | Error::Config(_) => Self::usage(message),
            Error::Lost(_) => Self { code: LOST, message },
            _ => Self::trouble(message),
        }
    }
}
