//! The errors of this crate.

use crate::wire::loss::Loss;
use redis::{ErrorKind, ParsingError, RedisError, ServerErrorKind};
use std::fmt;

/// Reason for which a lock could not be acquired, kept or released.
///
/// It is not an error if another owner holds the lock: then methods that do not wait return `None`.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// match client.lock("orders:42").acquire().await {
///     Ok(guard) => guard.release().await?,
///     Err(trouble) if trouble.is_retryable() => println!("later, perhaps: {trouble}"),
///     Err(trouble) => return Err(trouble),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The lock is no longer held, although this client did not release it. Has the reason.
    Lost(Loss),
    /// A name, a lease, the ttl of sessions or another argument is out of range, or does not fit what is held.
    Invalid(String),
    /// An address is invalid, leads to a server of another kind or names a database that the server does not
    /// have; or another setting of the client is out of range. Every call fails until the address or setting
    /// is changed.
    Config(String),
    /// The server does not know the commands, or expects another form of them. The text says what to
    /// do.
    ModuleMissing(String),
    /// The server's access rules (ACL) do not permit a command or key to this user.
    Denied(String),
    /// The server does not accept the user name or password, or requires one.
    Authentication(String),
    /// The key holds something else than the call needs, for example a string or a semaphore
    /// instead of a lock.
    NotALock,
    /// The owner shares the lock, and tried to acquire it exclusively: it would wait for itself. Release the
    /// share first.
    Upgrade,
    /// The time limit of [`OnceKey::acquire_within`](crate::OnceKey::acquire_within) passed without the
    /// result or the lock, for example because another client still works on the result.
    NotInTime,
    /// A limit of waiters, sessions or bound locks is reached: of the server, of this lock, or of
    /// this user.
    QueueFull,
    /// Fewer replicas acknowledged in time than [`Builder::min_replicas`](crate::Builder::min_replicas) or
    /// [`Builder::all_replicas`](crate::Builder::all_replicas) requires. A new grant has been released again.
    /// After a renewal, the lock is held for as long as before.
    #[non_exhaustive]
    NotReplicated {
        /// Number of replicas that acknowledged.
        confirmed: u32,
        /// Number of replicas that are required.
        wanted: u32,
    },
    /// From the crate `kvlock-quorum`: some servers of a quorum failed, and the others are no majority.
    /// After a failed acquire, the grants of the other servers are released again.
    NoMajority {
        /// Number of servers that failed, among the ones whose answer was awaited.
        failed: usize,
        /// Number of all servers.
        servers: usize,
        /// Error of one of the failed servers.
        trouble: Box<Self>,
    },
    /// The server cannot be reached, or the connection broke.
    Connection(RedisError),
    /// The server did not answer in time.
    Timeout,
    /// The server answered with another error: see [`code`](Self::code).
    Server(RedisError),
    /// The server's reply does not have the expected form.
    Protocol(String),
}

impl Error {
    /// Returns whether the lock was held and is lost. Then stop the work that it guards.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// Returns whether the same call may succeed later, without any change on this side.
    ///
    /// ```
    /// assert!(kvlock::Error::Timeout.is_retryable());
    /// assert!(!kvlock::Error::NotALock.is_retryable());
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        if let Self::NoMajority { trouble, .. } = self {
            return trouble.is_retryable();
        }
        matches!(
            self,
            Self::Connection(_)
                | Self::Timeout
                | Self::NotInTime
                | Self::QueueFull
                | Self::NotReplicated { .. }
        ) || self.code().is_some_and(|code| PASSING.contains(&code))
    }

    /// Returns the code of the server's error, which is its first word, such as `READONLY`. Returns `None` if
    /// the error has no code.
    ///
    /// ```
    /// assert_eq!(kvlock::Error::NotALock.code(), Some("WRONGTYPE"));
    /// assert_eq!(kvlock::Error::Timeout.code(), None);
    /// ```
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::NotALock => Some("WRONGTYPE"),
            Self::QueueFull => Some("QUEUEFULL"),
            Self::Upgrade => Some("UPGRADE"),
            Self::Denied(_) => Some("NOPERM"),
            Self::NoMajority { trouble, .. } => trouble.code(),
            Self::Server(error) => error.code(),
            Self::Lost(_)
            | Self::Invalid(_)
            | Self::Config(_)
            | Self::ModuleMissing(_)
            | Self::Authentication(_)
            | Self::NotInTime
            | Self::NotReplicated { .. }
            | Self::Connection(_)
            | Self::Timeout
            | Self::Protocol(_) => None,
        }
    }

    /// Returns whether the command may have been executed despite the error, or may still be executed.
    pub(crate) fn leaves_outcome_unknown(&self) -> bool {
        matches!(
            self,
            Self::Connection(_) | Self::Timeout | Self::Protocol(_) | Self::NotReplicated { .. }
        )
    }

    /// Returns whether the error is temporary, so that the client repeats the command by itself.
    pub(crate) fn is_passing(&self) -> bool {
        self.is_retryable()
            && !matches!(self, Self::QueueFull | Self::NotInTime | Self::NotReplicated { .. })
    }
}

/// Codes of temporary errors: a later retry may succeed.
const PASSING: [&str; 13] = [
    "TRYAGAIN",
    "UNBLOCKED",
    "LOADING",
    "READONLY",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "NOREPLICAS",
    "MISCONF",
    "OOM",
    "MOVED",
    "ASK",
    "NOSESSION",
    "BUSY",
];

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(why) => write!(f, "the lock is lost: {why}"),
            Self::Invalid(what) | Self::Config(what) => f.write_str(what),
            Self::ModuleMissing(said) => write!(
                f,
                "the server does not know the LOCK commands as this client sends them ({said}): \
                 load kvlock.so, of this version or later, with `loadmodule` or MODULE LOAD"
            ),
            Self::Denied(said) => write!(f, "the server denies this user the right: {said}"),
            Self::Authentication(said) => write!(f, "the server refuses the login: {said}"),
            Self::NotALock => f.write_str("the key holds something of another type"),
            Self::Upgrade => f.write_str("the owner shares the lock: it must release that first"),
            Self::NotInTime => f.write_str("another client still works on the result"),
            Self::QueueFull => f.write_str(
                "the server takes no more waiters, sessions or bound locks: see kvlock.max-waiters, \
                 kvlock.max-sessions and kvlock.max-bound",
            ),
            Self::NotReplicated { confirmed, wanted } => {
                write!(f, "{confirmed} replicas have confirmed, {wanted} are wanted")
            }
            Self::NoMajority { failed, servers, trouble } => {
                write!(f, "{failed} of {servers} servers fail, no majority is left: {trouble}")
            }
            Self::Connection(error) => write!(f, "no connection to the server: {error}"),
            Self::Timeout => f.write_str("the server did not answer in time"),
            Self::Server(error) => write!(f, "the server answered: {error}"),
            Self::Protocol(what) => write!(f, "an invalid reply: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Connection(error) | Self::Server(error) = self {
            return Some(error);
        }
        let Self::NoMajority { trouble, .. } = self else { return None };
        Some(trouble)
    }
}

impl From<ParsingError> for Error {
    fn from(error: ParsingError) -> Self {
        RedisError::from(error).into()
    }
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        match error.code() {
            Some("ERR") => return of_the_command(error),
            Some("NOPERM") => return Self::Denied(message(&error)),
            Some("WRONGTYPE") => return Self::NotALock,
            Some("QUEUEFULL") => return Self::QueueFull,
            Some("UPGRADE") => return Self::Upgrade,
            Some("NOAUTH" | "WRONGPASS") => return Self::Authentication(message(&error)),
            Some(_) => return Self::Server(error),
            None => {}
        }
        let kind = error.kind();
        let is = |kinds: &[ErrorKind]| kinds.contains(&kind);
        // redis-rs reports this if the connection is closed in the middle of an answer.
        let cut = kind == ErrorKind::Parse && message(&error).contains("end of input");
        if error.is_timeout() {
            Self::Timeout
        } else if cut {
            Self::Connection(error)
        } else if is(&[ErrorKind::Parse, ErrorKind::UnexpectedReturnType]) {
            Self::Protocol(message(&error))
        } else if is(&[ErrorKind::AuthenticationFailed]) {
            Self::Authentication(message(&error))
        } else if is(&[ErrorKind::InvalidClientConfig]) {
            Self::Config(error.to_string())
        } else if is(&[ErrorKind::Client]) {
            Self::Invalid(message(&error))
        } else {
            Self::Connection(error)
        }
    }
}

/// Converts an error with the code `ERR`, by its text.
fn of_the_command(error: RedisError) -> Error {
    let said = message(&error);
    if said.starts_with("unknown command")
        || said.starts_with("syntax error")
        || said.starts_with("wrong number of arguments")
    {
        // This crate's commands are well formed, so the server does not know them or expects another form.
        Error::ModuleMissing(first_line(&said))
    } else if said.starts_with("invalid ") {
        Error::Invalid(said)
    } else if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) {
        Error::Denied(said)
    } else {
        Error::Server(error)
    }
}

/// Returns the text of the error, without its code.
fn message(error: &RedisError) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}

/// Cuts off the arguments that servers add to the error about an unknown command.
fn first_line(said: &str) -> String {
    said.split(", with args").next().unwrap_or(said).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(text: &str) -> Error {
        let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
        Error::from(reply.extract_error().unwrap_err())
    }

    #[test]
    fn errors_of_the_server_are_classified() {
        for (text, what) in [
            ("WRONGTYPE the key holds something else", "NotALock"),
            ("QUEUEFULL", "QueueFull"),
            ("NOPERM no permissions to run the 'lock.wait' command", "Denied"),
            ("NOAUTH Authentication required.", "Authentication"),
            ("WRONGPASS invalid username-password pair", "Authentication"),
            ("ERR unknown command 'LOCK.WAIT', with args beginning with: 'k'", "ModuleMissing"),
            ("ERR unknown command `LOCK.WAIT`, with args beginning with: `k`", "ModuleMissing"),
            ("ERR syntax error", "ModuleMissing"),
            ("ERR invalid lease-ms: must be between 1 and 86400000", "Invalid"),
            ("ERR something else", "Server"),
            ("LOADING Redis is loading the dataset in memory", "Server"),
        ] {
            let error = answered(text);
            assert!(format!("{error:?}").starts_with(what), "{text}: {error:?}");
        }
    }

    #[test]
    fn temporary_errors_are_retryable() {
        for text in
            ["TRYAGAIN x", "LOADING x", "READONLY x", "NOREPLICAS x", "QUEUEFULL x", "BUSY x"]
        {
            assert!(answered(text).is_retryable(), "{text}");
        }
        for text in ["WRONGTYPE x", "NOPERM x", "ERR unknown command 'LOCK.WAIT'", "ERR x"] {
            assert!(!answered(text).is_retryable(), "{text}");
        }
        assert!(!answered("QUEUEFULL x").is_passing(), "it is told, and not waited out");
    }

    #[test]
    fn the_error_for_a_missing_module_says_what_to_do() {
        let error = answered("ERR unknown command 'LOCK.WAIT', with args beginning with: 'k' ");
        let text = error.to_string();
        let parts = ["loadmodule", "kvlock.so", "LOCK.WAIT"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert!(!text.contains("with args"), "{text}");
    }
}
