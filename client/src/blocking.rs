//! Blocking clients, locks and guards, for programs without an async runtime.
//!
//! Each [`Client`] has a thread that renews its locks, and releases those whose guards are dropped. The
//! client's calls block. The types here dereference to the async [`Client`](crate::Client) and
//! [`Guard`](crate::Guard), and so to [`Held`](crate::Held): call those of their methods that send
//! nothing. For the async methods, block with [`Client::wait_for`]. The client's thread releases what
//! such a method returns, for example a permit: drop the permit before the client.
//!
//! When the last of a client, its clones, locks and guards is dropped, the drop waits until the
//! outstanding releases are answered, for five seconds at most. So a lock is free when `main` returns,
//! unless the server does not answer in time. On a thread of a Tokio runtime the drop does not wait.
//!
//! ```no_run
//! # fn main() -> Result<(), kvlock::Error> {
//! let client = kvlock::blocking::Client::connect("redis://127.0.0.1/")?;
//! let guard = client.lock("orders:42").acquire()?;
//! println!("mine, with token {}", guard.token());
//! guard.release()?;
//!
//! let pool = client.semaphore("licences");
//! let permit = client.wait_for(pool.acquire())?;
//! # Ok(()) }
//! ```
//!
//! # Panics
//!
//! Calls that block panic on a thread of a Tokio runtime, because they would block that runtime.

use crate::{Address, Builder, Error};
use redis::RedisError;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

/// Longest time that the last drop waits for outstanding releases.
const SETTLES: Duration = Duration::from_secs(5);

/// See [`kvlock::Client`](crate::Client).
#[derive(Clone, Debug)]
pub struct Client {
    // Dropped before the thread.
    client: crate::Client,
    thread: Arc<Thread>,
}

/// A runtime on its own thread. It renews locks while the calling thread is blocked or does other work.
#[derive(Debug)]
struct Thread {
    runtime: Handle,
    /// Sender whose drop ends the thread.
    stays: Option<oneshot::Sender<()>>,
    ended: Option<JoinHandle<bool>>,
}

impl Drop for Thread {
    /// Ends the thread and waits until it has ended, since the program may exit right after this.
    fn drop(&mut self) {
        self.stays = None;
        // Does not block a thread of a runtime, and does not let the thread wait for itself.
        if Handle::try_current().is_err() {
            let _settled = self.ended.take().map(JoinHandle::join);
        }
    }
}

impl Client {
    /// Connects, as [`kvlock::Client::connect`](crate::Client::connect) does.
    ///
    /// # Errors
    ///
    /// The errors of [`kvlock::Client::connect`](crate::Client::connect); [`Connection`](Error::Connection)
    /// if the runtime or its thread cannot be started.
    pub fn connect<A: TryInto<Address>>(address: A) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        let client = Self::of(Builder::default(), address)?;
        client.wait_for(client.ready())?;
        Ok(client)
    }

    /// Makes a client with these settings, without connecting. The first request connects.
    ///
    /// # Errors
    ///
    /// The errors of [`Builder::connect_lazy`]; [`Connection`](Error::Connection) if the runtime or its
    /// thread cannot be started.
    pub fn of<A: TryInto<Address>>(builder: Builder, address: A) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        let client = builder.connect_lazy(address)?;
        let failed = |error| Error::Connection(RedisError::from(error));
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stays, left) = oneshot::channel::<()>();
        let leaving = client.clone();
        let thread = std::thread::Builder::new().name("kvlock".to_owned());
        let until_left = move || {
            let settled = runtime.block_on(async {
                // An error means that `Thread` was dropped.
                let _gone = left.await;
                leaving.shutdown(SETTLES).await
            });
            // Does not wait for threads that resolve host names, which may take minutes.
            runtime.shutdown_background();
            settled
        };
        let ended = Some(thread.spawn(until_left).map_err(failed)?);
        let thread = Thread { runtime: handle, stays: Some(stays), ended };
        Ok(Self { client, thread: Arc::new(thread) })
    }

    /// Returns the lock with this name; see [`kvlock::Client::lock`](crate::Client::lock).
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        self.of_lock(self.client.lock(name))
    }

    /// Returns the blocking form of an async lock. Use it for a lock with options, such as its own lease,
    /// shared mode or an [`Owner`](crate::Owner).
    pub fn of_lock(&self, lock: crate::Lock) -> Lock {
        Lock { lock, thread: self.thread.clone() }
    }

    /// Blocks until a future, for example of this crate, is done, and returns its output.
    pub fn wait_for<F: Future>(&self, what: F) -> F::Output {
        self.thread.runtime.block_on(what)
    }
}

impl Deref for Client {
    type Target = crate::Client;

    fn deref(&self) -> &Self::Target {
        &self.client
    }
}

/// See [`kvlock::Lock`](crate::Lock).
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    lock: crate::Lock,
    thread: Arc<Thread>,
}

impl Lock {
    /// See [`kvlock::Lock::acquire`](crate::Lock::acquire).
    ///
    /// # Errors
    ///
    /// The errors of [`kvlock::Lock::acquire`](crate::Lock::acquire).
    pub fn acquire(&self) -> Result<Guard, Error> {
        Ok(self.guard(self.thread.runtime.block_on(self.lock.acquire())?))
    }

    /// See [`kvlock::Lock::try_acquire`](crate::Lock::try_acquire).
    ///
    /// # Errors
    ///
    /// The errors of [`kvlock::Lock::acquire`](crate::Lock::acquire).
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        Ok(self.thread.runtime.block_on(self.lock.try_acquire())?.map(|guard| self.guard(guard)))
    }

    /// See [`kvlock::Lock::acquire_within`](crate::Lock::acquire_within).
    ///
    /// # Errors
    ///
    /// The errors of [`kvlock::Lock::acquire`](crate::Lock::acquire).
    pub fn acquire_within(&self, timeout: Duration) -> Result<Option<Guard>, Error> {
        let acquired = self.thread.runtime.block_on(self.lock.acquire_within(timeout))?;
        Ok(acquired.map(|guard| self.guard(guard)))
    }

    fn guard(&self, guard: crate::Guard) -> Guard {
        Guard { guard, thread: self.thread.clone() }
    }
}

/// See [`kvlock::Guard`](crate::Guard).
#[derive(Debug)]
#[must_use = "dropping a guard releases the lock"]
pub struct Guard {
    // Dropped before the thread.
    guard: crate::Guard,
    thread: Arc<Thread>,
}

impl Guard {
    /// See [`kvlock::Guard::extend`](crate::Guard::extend).
    ///
    /// # Errors
    ///
    /// The errors of [`kvlock::Guard::extend`](crate::Guard::extend).
    pub fn extend(&mut self, lease: Duration) -> Result<(), Error> {
        self.thread.runtime.block_on(self.guard.extend(lease))
    }

    /// See [`kvlock::Guard::release`](crate::Guard::release).
    ///
    /// # Errors
    ///
    /// The errors of [`kvlock::Guard::release`](crate::Guard::release).
    pub fn release(self) -> Result<(), Error> {
        self.thread.runtime.block_on(self.guard.release())
    }

    /// See [`kvlock::Guard::release_in`](crate::Guard::release_in).
    ///
    /// # Errors
    ///
    /// The errors of [`kvlock::Guard::release_in`](crate::Guard::release_in).
    pub fn release_in(self, time: Duration) -> Result<(), Error> {
        self.thread.runtime.block_on(self.guard.release_in(time))
    }

    /// See [`kvlock::Guard::detach`](crate::Guard::detach).
    ///
    /// # Errors
    ///
    /// The errors of [`kvlock::Guard::detach`](crate::Guard::detach).
    pub fn detach(self) -> Result<Duration, Error> {
        self.thread.runtime.block_on(self.guard.detach())
    }

    /// See [`kvlock::Guard::downgrade`](crate::Guard::downgrade).
    ///
    /// # Errors
    ///
    /// The errors of [`kvlock::Guard::downgrade`](crate::Guard::downgrade).
    pub fn downgrade(self) -> Result<Self, Error> {
        let guard = self.thread.runtime.block_on(self.guard.downgrade())?;
        Ok(Self { guard, thread: self.thread })
    }
}

impl Deref for Guard {
    type Target = crate::Guard;

    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}
