//! What can go wrong.

use crate::wire::loss::Loss;
use redis::{ErrorKind, ParsingError, RedisError, ServerErrorKind};
use std::fmt;

/// Why a lock could not be acquired, kept or released.
///
/// That another owner holds the lock is not an error: it is `None`.
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
    /// The lock is no longer held, and was not released by this client; and why.
    Lost(Loss),
    /// A name, a lease or another argument of a call is out of range, or does not fit what is held.
    Invalid(String),
    /// An address is invalid, leads to a server of another kind, or a setting of the client is out of range.
    /// Every call fails until that is changed.
    Config(String),
    /// The server does not know the commands, or not in the form that this crate sends them. The
    /// text says what to do.
    ModuleMissing(String),
    /// The server's access rules (ACL) forbid this user a command or key.
    Denied(String),
    /// The server does not accept the user name or password, or asks for one.
    Authentication(String),
    /// The key holds something that is not a lock.
    NotALock,
    /// The owner shares the lock, and asked to hold it alone: it would wait for itself. Release the
    /// share first.
    Upgrade,
    /// Neither the result nor the lock came within
    /// [`OnceKey::acquire_within`](crate::OnceKey::acquire_within): another client still works on it.
    NotInTime,
    /// The server has reached its limit of waiters, sessions or bound locks.
    QueueFull,
    /// Fewer replicas than [`Builder::min_replicas`](crate::Builder::min_replicas) or
    /// [`Builder::all_replicas`](crate::Builder::all_replicas) wants have confirmed in time. A grant has been
    /// released again. After a renewal the lock is held for as long as before.
    #[non_exhaustive]
    NotReplicated {
        /// Number that have it.
        confirmed: u32,
        /// Number that was required.
        wanted: u32,
    },
    /// Of the crate `kvlock-quorum`: servers of a quorum fail, and the others are no majority.
    /// What was granted has been released again.
    NoMajority {
        /// Number of failures, as far as answers were awaited.
        failed: usize,
        /// Number of all.
        servers: usize,
        /// Error of one of the failed ones.
        trouble: Box<Self>,
    },
    /// The server cannot be reached, or the connection broke.
    Connection(RedisError),
    /// The server did not answer in time.
    Timeout,
    /// The server answered something else: see [`code`](Self::code).
    Server(RedisError),
    /// What came back is not what these commands answer.
    Protocol(String),
}

impl Error {
    /// Whether the lock was held and is lost: stop, and let others have it.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// Whether the same call may succeed a little later, with nothing changed on this side.
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

    /// The first word of the server's answer, such as `READONLY`, if that is what went wrong.
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

    /// Whether the command may have been carried out all the same, or may be yet.
    pub(crate) fn leaves_outcome_unknown(&self) -> bool {
        matches!(
            self,
            Self::Connection(_) | Self::Timeout | Self::Protocol(_) | Self::NotReplicated { .. }
        )
    }

    /// Whether a waiting acquire should look again by itself.
    pub(crate) fn is_passing(&self) -> bool {
        self.is_retryable()
            && !matches!(self, Self::QueueFull | Self::NotInTime | Self::NotReplicated { .. })
    }
}

/// Codes of errors that go away by themselves.
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
            Self::NotALock => f.write_str("the key holds something that is not a lock"),
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
            Self::Protocol(what) => write!(f, "an answer that makes no sense: {what}"),
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
            Some("NOPERM") => return Self::Denied(said(&error)),
            Some("WRONGTYPE") => return Self::NotALock,
            Some("QUEUEFULL") => return Self::QueueFull,
            Some("UPGRADE") => return Self::Upgrade,
            Some("NOAUTH" | "WRONGPASS") => return Self::Authentication(said(&error)),
            Some(_) => return Self::Server(error),
            None => {}
        }
        let kind = error.kind();
        let is = |kinds: &[ErrorKind]| kinds.contains(&kind);
        // What redis-rs says of a connection that was closed in the middle of an answer.
        let cut = kind == ErrorKind::Parse && said(&error).contains("end of input");
        if error.is_timeout() {
            Self::Timeout
        } else if cut {
            Self::Connection(error)
        } else if is(&[ErrorKind::Parse, ErrorKind::UnexpectedReturnType]) {
            Self::Protocol(said(&error))
        } else if is(&[ErrorKind::AuthenticationFailed]) {
            Self::Authentication(said(&error))
        } else if is(&[ErrorKind::InvalidClientConfig]) {
            Self::Config(error.to_string())
        } else if is(&[ErrorKind::Client]) {
            Self::Invalid(said(&error))
        } else {
            Self::Connection(error)
        }
    }
}

/// An `ERR`: which of the caller's mistakes it is.
fn of_the_command(error: RedisError) -> Error {
    let said = said(&error);
    if said.starts_with("unknown command")
        || said.starts_with("syntax error")
        || said.starts_with("wrong number of arguments")
    {
        // The commands leave this crate well formed, so the server expects others.
        Error::ModuleMissing(first_line(&said))
    } else if said.starts_with("invalid ") {
        Error::Invalid(said)
    } else if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) {
        Error::Denied(said)
    } else {
        Error::Server(error)
    }
}

/// What the server or redis-rs said, without the code.
fn said(error: &RedisError) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}

/// Servers add the arguments of an unknown command; they say nothing new.
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
    fn answers_of_the_server_become_what_they_mean() {
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
    fn what_passes_by_itself_is_retryable() {
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
    fn a_missing_module_says_what_to_do() {
        let error = answered("ERR unknown command 'LOCK.WAIT', with args beginning with: 'k' ");
        let text = error.to_string();
        let parts = ["loadmodule", "kvlock.so", "LOCK.WAIT"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert!(!text.contains("with args"), "{text}");
    }
}
