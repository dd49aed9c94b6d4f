//! A named lock, and the options with which it is acquired.

mod acquiring;
mod looking;
mod set;

use crate::engine::context::Context;
use crate::engine::lease::LeaseSpec;
use crate::engine::owner::Owner;
use crate::wire::request::{Further, Mode};
use std::sync::Arc;
use std::time::Duration;

/// A named lock: acquire it, or read its state.
///
/// Created by [`Client::lock`](crate::Client::lock). It is cheap to create and to clone; creating it sends nothing.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// use std::time::Duration;
///
/// let lock = client.lock("orders:42").lease(Duration::from_secs(10));
/// if let Some(guard) = lock.try_acquire().await? {
///     guard.release().await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    inner: Arc<Context>,
    key: Arc<[u8]>,
    /// Locks that are acquired in the same step.
    further: Option<Arc<Further>>,
    mode: Mode,
    term: LeaseSpec,
    owner: Option<Owner>,
    value: Option<Arc<[u8]>>,
    unless: Option<Arc<[u8]>>,
    observed: bool,
    bound: bool,
}

impl Lock {
    pub(crate) fn new(inner: Arc<Context>, name: &[u8]) -> Self {
        let term = LeaseSpec { length: inner.settings.lease, watched: true };
        Self {
            inner,
            key: name.into(),
            further: None,
            mode: Mode::Alone,
            term,
            owner: None,
            value: None,
            unless: None,
            observed: false,
            bound: false,
        }
    }

    /// Sets the lease, which the watchdog renews. Default: the client's. The range is 10 ms to ten years,
    /// and no more than the server's `kvlock.max-lease-ms`.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.term = LeaseSpec { length: lease, watched: true };
        self
    }

    /// Sets a lease that is not renewed. The lock is free when the lease ends, or earlier when it is
    /// released.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// # use std::time::Duration;
    /// // At most once a minute in the whole fleet.
    /// let lock = client.lock("report").fixed_lease(Duration::from_secs(60));
    /// if let Some(guard) = lock.try_acquire().await? {
    ///     // the work
    ///     guard.detach().await?; // the lock stays held until its lease ends
    /// }
    /// # Ok(()) }
    /// ```
    pub fn fixed_lease(mut self, lease: Duration) -> Self {
        self.term = LeaseSpec { length: lease, watched: false };
        self
    }

    /// Makes the lock shared: the read lock of a read-write lock. Without this, the lock with the same name
    /// is the write lock.
    ///
    /// Readers and writers wait in one queue and are served in order of arrival: a waiting writer stops the
    /// readers behind it. From the first reader until none is left, all readers have the same
    /// [token](crate::Guard::token). It is larger than the token of every earlier writer and
    /// smaller than the token of every later one.
    ///
    /// If an [`owner`](Self::owner) holds the lock exclusively and acquires it shared, it re-enters and
    /// still holds the lock exclusively. An owner that shares the lock and acquires it exclusively gets
    /// [`Upgrade`](crate::Error::Upgrade).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let reader = client.lock("catalogue").shared().acquire().await?;
    /// let another = client.lock("catalogue").shared().acquire().await?;
    /// assert!(client.lock("catalogue").try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Adds locks that are acquired in the same step and in the same mode: all of them or none. While the
    /// client waits it gets none of them, so clients that name the same locks in different orders cannot
    /// deadlock.
    ///
    /// The guard renews and releases all of them together, and is lost if one of them is lost. If the locks
    /// are exclusive, its [token](crate::Guard::token) is the token of each of them.
    ///
    /// At most 64 locks in all, including this one and those of [`under`](Self::under); no lock twice. In a
    /// cluster all of them must be in the same slot: use a hash tag. For locks on several servers or in
    /// several slots use [`MultiLock`](crate::MultiLock).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let transfer = client.lock("account:7").and(["account:9"]).acquire().await?;
    /// transfer.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn and<N: AsRef<[u8]>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        let mut further = self.further.as_deref().cloned().unwrap_or_default();
        further.with.extend(names.into_iter().map(|name| Arc::from(name.as_ref())));
        // For a reentry, their order does not matter.
        further.with.sort();
        self.further = (further != Further::default()).then(|| Arc::new(further));
        self
    }

    /// Makes the lock a part of these locks, each of which is acquired shared in the same
    /// step. So clients can hold different parts of a tree at the same time. A client that holds
    /// one of these locks exclusively excludes the holders of all parts of that lock.
    ///
    /// The guard renews and releases all of them together, and is lost if one of them is lost. Its
    /// [token](crate::Guard::token) is the token of this lock.
    ///
    /// At most 63 names. In a cluster all of them must be in the same slot: use a hash tag. The user (ACL)
    /// needs the right to write each key. An [owner](Self::owner) that re-enters must pass the same names
    /// again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let file = client.lock("repo/src/a.rs").under(["repo", "repo/src"]);
    /// let guard = file.acquire().await?;
    /// // Other clients may hold repo/src/b.rs, but none holds repo/src or repo exclusively.
    /// # Ok(()) }
    /// ```
    pub fn under<N: AsRef<[u8]>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        let mut further = self.further.as_deref().cloned().unwrap_or_default();
        further.under.extend(names.into_iter().map(|name| Arc::from(name.as_ref())));
        further.under.sort();
        further.under.dedup();
        self.further = (further != Further::default()).then(|| Arc::new(further));
        self
    }

    /// Binds the lock to this client: when the client is gone, the lock is free within
    /// [`session_ttl`](crate::Builder::session_ttl), even if the lease lasts longer.
    ///
    /// One heartbeat keeps any number of locks, so their leases can be long. With a lease of ten minutes
    /// there is one renewal every 200 seconds. The lock is lost when the lease ends, or when no heartbeat has
    /// been answered for most of the `session_ttl`, whichever is earlier.
    ///
    /// A server that has restarted, was promoted, or has taken over the slot of the lock, has no bindings.
    /// The client binds the lock there again. Until then, only the end of the lease frees the lock
    /// there.
    ///
    /// The heartbeat runs on the runtime on which the client first waited for, observed or bound a
    /// lock. If that runtime ends, bound locks can be lost, even if the program and its other
    /// runtimes continue. A bound lock can be neither [detached](crate::Guard::detach) nor
    /// [released later](crate::Guard::release_in).
    ///
    /// The user (ACL) needs `+session.open +session.next +session.close`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// # use std::time::Duration;
    /// let lock = client.lock("orders:42").lease(Duration::from_secs(600)).bound();
    /// let guard = lock.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn bound(mut self) -> Self {
        self.bound = true;
        self
    }

    /// Sets the owner that acquires the lock. If this owner already holds the lock, the acquire is a reentry. A
    /// reentry must name the same locks in [`and`](Self::and) and [`under`](Self::under); otherwise the acquire
    /// fails with [`Invalid`](crate::Error::Invalid). It fails in the same way if the owner holds one of the locks
    /// exclusively by the acquire of another lock with `and`, and with [`Upgrade`](crate::Error::Upgrade) if it shares
    /// a lock that it asks for exclusively: otherwise the owner would wait for itself. Only what the owner holds when
    /// the acquire begins is checked: two of its acquires at the same time, of sets with a common lock, can wait for
    /// each other.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let me = client.owner();
    /// let lock = client.lock("orders:42").owner(&me);
    /// # Ok(()) }
    /// ```
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Makes the server report at once when the lock is taken away or deleted. Then
    /// [`lost()`](crate::Held::lost) returns within a round trip, with the [reason](crate::Loss). Otherwise
    /// the loss is noticed at the next renewal, which locks with a [fixed lease](Self::fixed_lease) do not
    /// have. Of a set of locks only the first is observed, not those of [`and`](Self::and) and
    /// [`under`](Self::under). When the runtime on which the lock was acquired ends, the observation continues
    /// on another one on which the client was used before, or else ends.
    ///
    /// It costs two commands, `LOCK.OBSERVE` after the grant and `LOCK.UNOBSERVE` after the release, and a
    /// task in this process. So do not use it for locks that are held briefly. An
    /// [`Election`](crate::Election) always uses it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let guard = client.lock("nightly").observed().acquire().await?;
    /// println!("{}", guard.lost().await);
    /// # Ok(()) }
    /// ```
    pub fn observed(mut self) -> Self {
        self.observed = true;
        self
    }

    /// Sets the value that the holder publishes, for example the address of a leader.
    pub(crate) fn with_value(mut self, value: Arc<[u8]>) -> Self {
        self.value = Some(value);
        self
    }

    /// Sets the key of a result. The lock is acquired only while this key does not exist.
    pub(crate) fn unless(mut self, ready_key: Arc<[u8]>) -> Self {
        self.unless = Some(ready_key);
        self
    }

    /// Sets the mode, for example permits of a semaphore.
    pub(crate) fn in_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) fn inner(&self) -> &Arc<Context> {
        &self.inner
    }

    pub(crate) fn name(&self) -> &Arc<[u8]> {
        &self.key
    }

    /// Returns the name.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the time by which an acquire may exceed its limit.
    pub(crate) fn reply_timeout(&self) -> Duration {
        self.inner.settings.reply_timeout
    }
}
