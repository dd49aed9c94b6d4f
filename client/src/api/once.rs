//! Results that one client computes and other clients read.

#[cfg(feature = "json")]
mod json;
mod key;

use crate::api::guard::Guard;
use crate::api::lock::Lock;
use crate::engine::context::Context;
use crate::engine::limit::{Limit, Trouble};
use crate::engine::settings::{check_name, check_result};
use crate::wire::error::Error;
use crate::wire::reply;
use crate::wire::request::{self, ToStore};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// A key whose value one client computes, while all others that want it wait for that value.
///
/// Created by [`Client::once`](crate::Client::once). [`get_or`](Self::get_or) returns the value of the key if
/// it exists. Otherwise one client acquires a lock, computes the value and stores it. The clients that wait
/// for the lock are answered when the value is stored, and read it with one `GET`.
///
/// The key is an ordinary string of the server. The name of the lock ends in `:lock`, and has a hash tag that
/// puts it in the slot of the key: `{report}:lock` for `report`, `{user:7}:feed:lock` for `{user:7}:feed`.
///
/// The work runs at most once at a time, under the [guarantees](crate#guarantees-and-their-limits) of a
/// lock. It runs again when a value expires, is evicted or is lost in a failover, so it should be harmless
/// to repeat.
///
/// One server, primary or cluster keeps the key and its lock. `MultiLock` and the `Quorum` of
/// `kvlock-quorum` have no such method: independent servers cannot store a value in the step that releases
/// a lock.
///
/// The user (ACL) needs `+get +lock.acquire +lock.wait +lock.release +lock.renew +lock.cancel`, the
/// commands of sessions, and the rights to read and write both keys.
///
/// # What happens when …
///
/// | | |
/// |---|---|
/// | the work fails | its error is returned, nothing is stored, and the next waiter works |
/// | the holder dies | the next waiter works when the [lease](Self::lease) ends |
/// | the lock is lost during the work | the value is returned but not stored: another client may have worked at the same time. [`not_stored`](Once::not_stored) returns the reason. The [guard](crate::Held::lost) reports the loss to the work early |
/// | the value expires, or is evicted, before a waiter has read it | that waiter waits again, and works if it is first |
/// | the answer to the release is lost | the release is sent again. If the lock turns out to be released, the key is read: if it has the value, the value was stored |
/// | the server is out of memory | the value is returned but not stored, and the lock is released |
/// | the value is larger than 64 MiB | as if the server were out of memory |
/// | the value takes longer to transfer than the [`reply_timeout`](crate::Builder::reply_timeout) | as if the server did not answer: the transfer begins again until the patience is over. For large values over a slow network, set a longer one: 64 MiB in 5 s are 13 MB/s |
/// | the value is empty | it is stored like any other value |
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// let token = client
///     .once("oauth:token")
///     .ttl(Duration::from_secs(3_500))
///     .try_get_or(async |_guard| refresh().await)
///     .await?;
/// if token.computed() {
///     println!("refreshed");
/// }
/// # Ok(()) }
/// # async fn refresh() -> Result<String, kvlock::Error> { Ok(String::new()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is asked for the value"]
pub struct OnceKey {
    /// Lock that is held during the work.
    lock: Lock,
    key: Arc<[u8]>,
    ttl: Option<Duration>,
    within: Option<Duration>,
}

/// The value of a key, and whether this call computed it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Once<T> {
    /// The value.
    pub value: T,
    source: Source,
}

/// Origin of a value.
#[derive(Clone, Debug)]
enum Source {
    /// The value already existed on the server.
    Found,
    /// This call has computed and stored the value.
    Computed,
    /// This call has computed the value, and does not know that it was stored.
    NotStored(Error),
}

impl<T> Once<T> {
    /// Returns whether this call computed the value.
    #[must_use]
    pub fn computed(&self) -> bool {
        !matches!(self.source, Source::Found)
    }

    /// Returns the reason if this call computed the value and does not know that it was stored.
    ///
    /// [`Error::Lost`]: the lock was lost during the work, so another client may have computed a value too.
    /// [`Error::Timeout`] and [`Error::Connection`]: no answer has arrived, and the server may have stored
    /// the value. Other errors: the server refused the value, or it is too large.
    #[must_use]
    pub fn not_stored(&self) -> Option<&Error> {
        match &self.source {
            Source::NotStored(why) => Some(why),
            Source::Found | Source::Computed => None,
        }
    }

    /// Returns the value alone.
    pub fn into_value(self) -> T {
        self.value
    }
}

impl OnceKey {
    pub(crate) fn new(context: Arc<Context>, key: &[u8]) -> Self {
        let key: Arc<[u8]> = key.into();
        let lock = Lock::new(context, &key::lock_name(&key)).unless(key.clone());
        Self { lock, key, ttl: None, within: None }
    }

    /// Sets the lifetime of a stored value. Without it the value exists until it is deleted or evicted.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the lease of the lock, which is renewed during the work: see [`Lock::lease`]. If the holder
    /// dies, the next waiter works when the lease ends.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lock = self.lock.lease(lease);
        self
    }

    /// Asks the server to report at once when the lock is taken away: see [`Lock::observed`].
    pub fn observed(mut self) -> Self {
        self.lock = self.lock.observed();
        self
    }

    /// Limits the time until the value exists or the work of this call begins. After that time the call
    /// returns [`Error::NotInTime`]. The time of the work itself is not limited.
    pub fn acquire_within(mut self, timeout: Duration) -> Self {
        self.within = Some(timeout);
        self
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the name of the lock that is held during the work.
    #[must_use]
    pub fn lock_name(&self) -> &[u8] {
        self.lock.key()
    }

    /// Returns the value if it exists, without waiting.
    ///
    /// # Errors
    ///
    /// [`NotALock`](Error::NotALock) if the key holds something that is not a string; network errors.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn get(&self) -> Result<Option<Vec<u8>>, Error> {
        self.look(Limit::Now).await
    }

    /// Returns the value, computed by this call or by another client.
    ///
    /// The work gets the [`Guard`] of the lock. It is not interrupted when the lock is lost: it can ask
    /// [`is_lost`](crate::Held::is_lost), or wait for [`lost`](crate::Held::lost).
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::acquire`]; [`NotInTime`](Error::NotInTime) after
    /// [`acquire_within`](Self::acquire_within); [`Invalid`](Error::Invalid) if the key or a time is out of
    /// range; [`NotALock`](Error::NotALock) also if the key holds something that is not a string. After an
    /// error the work has not begun.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the work. If the future is dropped while it waits, the place in the queue is given
    /// up. If it is dropped during the work, the work is dropped first, then the lock is released without a
    /// value, and the next waiter works. If it is dropped during the release, the value may or may not be
    /// stored. The cleanup runs in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let page = client.once("page:/").get_or(async |_| render("/").await).await?;
    /// # Ok(()) }
    /// # async fn render(_: &str) -> String { String::new() }
    /// ```
    pub async fn get_or<V: Into<Vec<u8>>>(
        &self,
        work: impl AsyncFnOnce(&Guard) -> V,
    ) -> Result<Once<Vec<u8>>, Error> {
        let work = async |guard: &Guard| Ok::<_, Never>(work(guard).await);
        self.try_get_or(work).await.map_err(|Never(error)| error)
    }

    /// Returns the value, computed by this call or by another client, for work that can fail.
    ///
    /// # Errors
    ///
    /// The error of the work: then nothing is stored, the lock is released, and the next waiter works.
    /// Before the work has begun, the errors of [`get_or`](Self::get_or).
    ///
    /// # Cancel safety
    ///
    /// As for [`get_or`](Self::get_or).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// type Failed = Box<dyn std::error::Error>;
    /// let work = async |_: &kvlock::Guard| Ok::<_, Failed>(std::fs::read("config.toml")?);
    /// let config = client.once("config").try_get_or(work).await?;
    /// # let _ = config;
    /// # Ok(()) }
    /// ```
    pub async fn try_get_or<V: Into<Vec<u8>>, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&Guard) -> Result<V, E>,
    ) -> Result<Once<Vec<u8>>, E> {
        let guard = match self.find_or_acquire().await? {
            Found::Value(value) => return Ok(Once { value, source: Source::Found }),
            Found::Nothing(guard) => guard,
        };
        match work(&guard).await {
            Ok(value) => Ok(self.store(guard, value.into()).await),
            Err(failed) => {
                // Releases the lock in the background.
                drop(guard);
                Err(failed)
            }
        }
    }

    /// Waits until the value exists, or until this call holds the lock and the value does not exist.
    async fn find_or_acquire(&self) -> Result<Found, Error> {
        check_name(&self.key)?;
        key::check_slot(&self.key)?;
        self.ttl.map(request::ttl_millis).transpose()?;
        let limit = self.within.map_or(Limit::Never, Limit::within);
        limit.hold(self.lock.reply_timeout(), pin!(self.find_or_acquire_by(limit))).await
    }

    async fn find_or_acquire_by(&self, limit: Limit) -> Result<Found, Error> {
        loop {
            if let Some(value) = self.look(limit).await? {
                return Ok(Found::Value(value));
            }
            if let Some(guard) = self.lock.acquire_by(limit).await? {
                return Ok(Found::Nothing(guard));
            }
            // Either the value exists, and may be gone again before it is read, or the time has passed.
            if limit.is_over() {
                return self.look(limit).await?.map(Found::Value).ok_or(Error::NotInTime);
            }
        }
    }

    async fn look(&self, limit: Limit) -> Result<Option<Vec<u8>>, Error> {
        let inner = self.lock.inner();
        let (request, mut trouble) = (request::get(&*self.key), Trouble::new(limit));
        loop {
            match inner.query(&self.key, &request, reply::read).await {
                Err(error) => inner.wait_to_retry(&mut trouble, error).await?,
                found => return found,
            }
        }
    }

    async fn store(&self, guard: Guard, value: Vec<u8>) -> Once<Vec<u8>> {
        let result = ToStore { key: &self.key, value: &value, ttl: self.ttl };
        let stored = match check_result(&value) {
            Ok(()) => guard.release_storing(result).await,
            Err(too_large) => guard.release().await.and(Err(too_large)),
        };
        let source = match stored {
            Ok(()) => Source::Computed,
            Err(why) => {
                tracing::warn!(key = %self.key.escape_ascii(), %why, "the result was not stored");
                Source::NotStored(why)
            }
        };
        Once { value, source }
    }
}

/// Outcome of [`OnceKey::find_or_acquire`].
enum Found {
    Value(Vec<u8>),
    /// The lock is held, and there is no value.
    Nothing(Guard),
}

/// Error type of work that cannot fail: contains an error of the lock.
struct Never(Error);

impl From<Error> for Never {
    fn from(error: Error) -> Self {
        Self(error)
    }
}
