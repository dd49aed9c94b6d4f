//! Count-down latches, to wait until a number of participants are done.

use crate::api::lock::Lock;
use crate::engine::acquire::claim::Claim;
use crate::engine::acquire::wait::{Waited, wait};
use crate::engine::context::Context;
use crate::engine::limit::{Limit, Trouble, pause_before_asking};
use crate::wire::error::Error;
use crate::wire::info::LatchInfo;
use crate::wire::reply;
use crate::wire::request::{self, Mode};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// A named count-down latch: clients count it down, and others wait until it is zero.
///
/// Created by [`Client::latch`](crate::Client::latch). A `Latch` is cheap to create and to clone, and
/// creating one sends nothing. At zero the latch is open, as if it had never been set: waits return at once.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// let batch = client.latch("batch:7");
/// batch.set(3).await?;
///
/// // Each of three workers, when it is done:
/// batch.count_down_as("worker:1").await?;
///
/// batch.wait().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a latch does nothing until it is used"]
pub struct Latch {
    lock: Lock,
}

impl Latch {
    pub(crate) fn new(inner: Arc<Context>, name: &[u8]) -> Self {
        Self { lock: Lock::new(inner, name) }
    }

    /// Sets the latch to `count`, 1 or more. Returns `false`, and changes nothing, if it is already
    /// counting.
    ///
    /// The command is sent once: after an error the latch may or may not have been set, and may have been
    /// counted down since.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if the name or the count is out of range,
    /// [`NotALock`](Error::NotALock) if the key holds something else, [`Denied`](Error::Denied),
    /// and network errors.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the command may or may not be executed.
    pub async fn set(&self, count: u32) -> Result<bool, Error> {
        self.send_set(count, None).await
    }

    /// Sets the latch, as [`set`](Self::set) does, with a time to live after which the latch is open. For
    /// participants that may die before they count down.
    ///
    /// # Errors
    ///
    /// The errors of [`set`](Self::set); [`Invalid`](Error::Invalid) if the lifetime is zero or longer
    /// than ten years.
    ///
    /// # Cancel safety
    ///
    /// As for [`set`](Self::set).
    pub async fn set_for(&self, count: u32, lifetime: Duration) -> Result<bool, Error> {
        self.send_set(count, Some(lifetime)).await
    }

    async fn send_set(&self, count: u32, lifetime: Option<Duration>) -> Result<bool, Error> {
        let request = request::set_latch(self.lock.key(), count, lifetime)?;
        self.lock.send_once(&request, |answer| Ok(answer != redis::Value::Nil)).await
    }

    /// Counts down by one. Returns the rest; `None` if there is nothing to count down.
    ///
    /// The command is sent once: after an error it may or may not have counted. If that matters, name the
    /// participant with [`count_down_as`](Self::count_down_as).
    ///
    /// # Errors
    ///
    /// The errors of [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it may or may not have counted.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(batch: kvlock::Latch) -> Result<(), kvlock::Error> {
    /// if batch.count_down().await? == Some(0) {
    ///     println!("that was the last one");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn count_down(&self) -> Result<Option<u64>, Error> {
        let request = request::count_down(self.lock.key(), None);
        self.lock.send_once(&request, reply::read).await
    }

    /// Counts down by one for a participant, named by 1 to 1,024 bytes. Until the latch opens, each
    /// participant counts once, however often this is called. Returns the rest; `None` if there is
    /// nothing to count down, for example because this participant was the last.
    ///
    /// # Errors
    ///
    /// The errors of [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it may or may not have counted. It can be called again.
    pub async fn count_down_as(&self, participant: impl AsRef<[u8]>) -> Result<Option<u64>, Error> {
        let request = request::count_down(self.lock.key(), Some(participant.as_ref()));
        self.lock.query(&request, reply::read).await
    }

    /// Waits until the latch is open, without a time limit.
    ///
    /// # Errors
    ///
    /// The errors of [`set`](Self::set); [`QueueFull`](Error::QueueFull). Temporary errors are retried for
    /// the [`patience`](crate::Builder::patience) of the client.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the waiter leaves the queue.
    pub async fn wait(&self) -> Result<(), Error> {
        self.wait_by(Limit::Never).await.map(|_| ())
    }

    /// Waits until the latch is open, for up to `timeout`. Returns `false` if it is not open by then.
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the waiter leaves the queue.
    pub async fn wait_within(&self, timeout: Duration) -> Result<bool, Error> {
        self.wait_by(Limit::within(timeout)).await
    }

    async fn wait_by(&self, limit: Limit) -> Result<bool, Error> {
        self.lock.check()?;
        limit.hold(self.lock.reply_timeout(), pin!(self.wait_until_open(limit))).await
    }

    async fn wait_until_open(&self, limit: Limit) -> Result<bool, Error> {
        let mut claim = Claim::new(self.lock.inner(), Mode::Latch, self.lock.name());
        let (mut trouble, mut polls) = (Trouble::new(limit), 0);
        loop {
            match wait(&mut claim, Duration::ZERO, limit, &mut trouble).await {
                Ok(Waited::Open | Waited::Granted(..) | Waited::Ready) => return Ok(true),
                Ok(_) if limit.is_over() => return Ok(false),
                Ok(Waited::Over) => trouble.reset(),
                Ok(Waited::Sent) => pause_before_asking(limit, &mut polls).await,
                Err(error) => claim.inner().wait_to_retry(&mut trouble, error).await?,
            }
        }
    }

    /// Returns the state of the latch at this moment.
    ///
    /// # Errors
    ///
    /// The errors of [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn info(&self) -> Result<LatchInfo, Error> {
        self.lock.query(&request::latch_info(self.lock.key()), reply::read).await
    }
}
