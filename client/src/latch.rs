//! Count-down latches: waiting until so many others are done.

use crate::client::Client;
use crate::error::Error;
use crate::limit::{Limit, REACHED, Trouble, pause_before_asking};
use crate::lock::check_name;
use crate::pool::Seat;
use crate::reply::{self, LatchInfo};
use crate::router::{HOPS, Route};
use crate::{observe, request};
use redis::{RedisError, Value};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A number that others count down, by its name, and for whose end one can wait.
///
/// Made by [`Client::latch`]. Cheap to make and to clone; making one sends nothing. At zero the latch
/// is open, and that is the same as if it had never been set: then nobody waits.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// let batch = client.latch("batch:7");
/// batch.set(3).await?;
///
/// // Three others, each when it is done:
/// batch.count_down_as("worker:1").await?;
///
/// batch.wait().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a latch does nothing until it is used"]
pub struct Latch {
    client: Client,
    key: Arc<[u8]>,
}

impl Latch {
    pub(crate) fn new(client: Client, name: &[u8]) -> Self {
        Self { client, key: name.into() }
    }

    /// Sets it, to be counted down so many times: 1 or more. `false` if it counts already; then
    /// nothing has changed. Repeated it does no harm.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if the name or the count is out of range,
    /// [`NotALock`](Error::NotALock) if the key holds something else, [`Denied`](Error::Denied),
    /// those of the network.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(batch: kvlock::Latch) -> Result<(), kvlock::Error> {
    /// let was_open = batch.set(3).await?;
    /// # let _ = was_open;
    /// # Ok(()) }
    /// ```
    pub async fn set(&self, count: u32) -> Result<bool, Error> {
        self.send_set(count, None).await
    }

    /// The same, but after `lifetime` it goes away, and then it is open. For when those who are to
    /// count it down may die.
    ///
    /// # Errors
    ///
    /// Those of [`set`](Self::set); [`Invalid`](Error::Invalid) if the lifetime is zero or longer
    /// than ten years.
    ///
    /// # Cancel safety
    ///
    /// As that of [`set`](Self::set).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(batch: kvlock::Latch) -> Result<(), kvlock::Error> {
    /// use std::time::Duration;
    ///
    /// batch.set_for(3, Duration::from_secs(3600)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn set_for(&self, count: u32, lifetime: Duration) -> Result<bool, Error> {
        self.send_set(count, Some(lifetime)).await
    }

    async fn send_set(&self, count: u32, lifetime: Option<Duration>) -> Result<bool, Error> {
        check_name(&self.key)?;
        let request = request::set_latch(&*self.key, count, lifetime)?;
        self.client.inner.look(&self.key, &request, |answer| Ok(answer != Value::Nil)).await
    }

    /// Counts it down by one. How much is left; `None` if there was nothing to count down.
    ///
    /// It is sent once: after an error it may have counted or not. If that matters, say who counts,
    /// with [`count_down_as`](Self::count_down_as).
    ///
    /// # Errors
    ///
    /// Those of [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not have counted.
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
        check_name(&self.key)?;
        let inner = &self.client.inner;
        let request = request::count_down(&*self.key, None);
        let answer = inner.router.call(&self.key, &request, inner.settings.reply_timeout).await?;
        Ok(reply::holds_left(answer).map_err(RedisError::from)?)
    }

    /// Counts it down by one for that participant, 1 to 1,024 bytes, who counts only once however
    /// often this is called. How much is left; `None` if there is nothing to count down, perhaps
    /// because this participant was the last.
    ///
    /// # Errors
    ///
    /// Those of [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not have counted. Call it again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(batch: kvlock::Latch) -> Result<(), kvlock::Error> {
    /// batch.count_down_as("worker:1").await?;
    /// # Ok(()) }
    /// ```
    pub async fn count_down_as(&self, participant: impl AsRef<[u8]>) -> Result<Option<u64>, Error> {
        check_name(&self.key)?;
        let request = request::count_down(&*self.key, Some(participant.as_ref()));
        self.client.inner.look(&self.key, &request, reply::holds_left).await
    }

    /// Waits until it is open, however long it takes.
    ///
    /// Each call takes one of the [connections for waiting](crate::Builder::waits); when none is
    /// left, the server is asked at intervals.
    ///
    /// # Errors
    ///
    /// Those of [`set`](Self::set); [`QueueFull`](Error::QueueFull). Trouble that passes is sat out
    /// for the [`patience`](crate::Builder::patience) of the client.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nobody waits any more.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(batch: kvlock::Latch) -> Result<(), kvlock::Error> {
    /// batch.wait().await?;
    /// # Ok(()) }
    /// ```
    pub async fn wait(&self) -> Result<(), Error> {
        self.wait_by(Limit::Never).await.map(|_| ())
    }

    /// Waits until it is open, for up to that time. `false` if that was too short.
    ///
    /// # Errors
    ///
    /// Those of [`wait`](Self::wait).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nobody waits any more.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(batch: kvlock::Latch) -> Result<(), kvlock::Error> {
    /// use std::time::Duration;
    ///
    /// let all_done = batch.wait_within(Duration::from_secs(10)).await?;
    /// # let _ = all_done;
    /// # Ok(()) }
    /// ```
    pub async fn wait_within(&self, timeout: Duration) -> Result<bool, Error> {
        let end = Instant::now().checked_add(timeout);
        self.wait_by(end.map_or(Limit::Never, Limit::Until)).await
    }

    async fn wait_by(&self, limit: Limit) -> Result<bool, Error> {
        check_name(&self.key)?;
        let reply_timeout = self.client.inner.settings.reply_timeout;
        limit.hold(reply_timeout, pin!(self.wait_until_open(limit))).await
    }

    async fn wait_until_open(&self, limit: Limit) -> Result<bool, Error> {
        let inner = &self.client.inner;
        let waiter = inner.fresh_owner();
        let mut trouble = Trouble::new(limit);
        let mut polls = 0;
        loop {
            let mut in_line = None;
            let step = if let Some(seat) = inner.pool().try_seat() {
                self.wait_on(seat, &waiter, limit, &mut in_line).await
            } else {
                observe::pool_is_full();
                pause_before_asking(limit, &mut polls).await;
                self.info().await.map(|info| info.count == 0)
            };
            match step {
                Ok(true) => return Ok(true),
                Ok(false) if limit.is_over() => return Ok(false),
                Ok(false) => trouble.over(),
                Err(error) => {
                    if in_line.is_some_and(|since: Instant| since.elapsed() >= REACHED) {
                        trouble.over();
                    }
                    trouble.bear(error, inner.settings.patience, inner.router.switched()).await?;
                }
            }
        }
    }

    /// Dropped, the connection is closed, and the server forgets the waiter.
    async fn wait_on(
        &self,
        seat: Seat,
        waiter: &str,
        limit: Limit,
        in_line: &mut Option<Instant>,
    ) -> Result<bool, Error> {
        let router = &self.client.inner.router;
        let mut route = router.route(&self.key).await?;
        let mut hops = 0;
        loop {
            let answer = self.wait_at(&route, &seat, waiter, limit, in_line).await;
            let Err(trouble) = answer else { return answer };
            match router.learn(&route.node, &trouble) {
                Some(next) if hops < HOPS => route = next,
                _ => return Err(trouble),
            }
            hops += 1;
        }
    }

    async fn wait_at(
        &self,
        to: &Route,
        seat: &Seat,
        waiter: &str,
        limit: Limit,
        in_line: &mut Option<Instant>,
    ) -> Result<bool, Error> {
        let inner = &self.client.inner;
        // A timeout of zero would be none at all.
        let limit = limit.left().map(|left| left.max(Duration::from_millis(1)));
        let request = request::wait_for_latch(&*self.key, waiter, limit)?;
        let live = seat.connection(&to.node).await?;
        observe::waiting();
        *in_line = Some(Instant::now());
        let answer = inner.router.looking(live.call_unlimited(&request, to.asking)).await;
        if answer.as_ref().is_err_and(Error::leaves_outcome_unknown) {
            live.condemn();
        }
        seat.put_back(to.node.clone(), live);
        Ok(answer? != Value::Nil)
    }

    /// What the server knows about it at this moment.
    ///
    /// # Errors
    ///
    /// Those of [`set`](Self::set).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(batch: kvlock::Latch) -> Result<(), kvlock::Error> {
    /// println!("{} to go", batch.info().await?.count);
    /// # Ok(()) }
    /// ```
    pub async fn info(&self) -> Result<LatchInfo, Error> {
        check_name(&self.key)?;
        self.client.inner.look(&self.key, &request::latch_info(&*self.key), reply::latch).await
    }
}
