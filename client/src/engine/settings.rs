//! Settings of a client.

use crate::net::replicas::Replicas;
use crate::net::transport::Transport;
use crate::wire::error::Error;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) lease: Duration,
    pub(crate) reply_timeout: Duration,
    pub(crate) patience: Duration,
    pub(crate) replicas: Option<Replicas>,
    pub(crate) confirm: bool,
    pub(crate) session_ttl: Duration,
    /// Time after which an unused session is closed.
    pub(crate) session_idle: Duration,
    pub(crate) transport: Transport,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            reply_timeout: Duration::from_secs(5),
            patience: Duration::from_secs(30),
            replicas: None,
            confirm: false,
            session_ttl: Duration::from_secs(5),
            session_idle: Duration::from_secs(60),
            transport: Transport::default(),
        }
    }
}

/// The longest lease of a first grant. A renewal sets a longer one after the grant has arrived. So a grant
/// whose answer is lost ends after this time at the latest.
pub(crate) const FIRST_LEASE: Duration = Duration::from_secs(30);

/// The shortest lease that a client accepts. A shorter one would often end before the reply arrives.
pub(crate) const LEASE_MIN: Duration = Duration::from_millis(10);
/// Ten years: the longest lease that the protocol accepts.
const LEASE_MAX: Duration = Duration::from_millis(315_360_000_000);

/// Returns an error unless a client accepts this lease.
///
/// # Errors
///
/// [`Invalid`](Error::Invalid) if it is not 10 ms to ten years.
pub fn check_lease(lease: Duration) -> Result<(), Error> {
    if (LEASE_MIN..=LEASE_MAX).contains(&lease) {
        return Ok(());
    }
    Err(Error::Invalid(format!("lease out of range: {lease:?} is not 10 ms to ten years")))
}

/// Longest value, in bytes, that the server accepts.
const VALUE_MAX: usize = 1_024;

pub(crate) fn check_value(value: &[u8]) -> Result<(), Error> {
    match value.len() {
        0..=VALUE_MAX => Ok(()),
        length => Err(Error::Invalid(format!(
            "value out of range: {length} bytes, more than {VALUE_MAX}"
        ))),
    }
}

pub(crate) fn check_session_ttl(ttl: Duration) -> Result<(), Error> {
    if (Duration::from_millis(100)..=Duration::from_secs(60)).contains(&ttl) {
        return Ok(());
    }
    Err(Error::Invalid(format!("session_ttl out of range: {ttl:?} is not 100 ms to a minute")))
}

/// Largest result that is stored, in bytes. A larger one would delay the commands after it on the connection
/// that the locks of the client share.
const RESULT_MAX: usize = 64 * 1_024 * 1_024;

pub(crate) fn check_result(result: &[u8]) -> Result<(), Error> {
    match result.len() {
        0..=RESULT_MAX => Ok(()),
        length => Err(Error::Invalid(format!(
            "result out of range: {length} bytes, more than {RESULT_MAX}: store it elsewhere, and its address here"
        ))),
    }
}

const NAME_MAX: usize = 65_536;

pub(crate) fn check_name(name: &[u8]) -> Result<(), Error> {
    match name.len() {
        1..=NAME_MAX => Ok(()),
        length => {
            Err(Error::Invalid(format!("name out of range: {length} bytes, not 1 to {NAME_MAX}")))
        }
    }
}
