//! A client: its connections, its watchdog, and the name with which the names of its owners begin.

use crate::api::builder::Builder;
use crate::api::election::Election;
use crate::api::latch::Latch;
use crate::api::lock::Lock;
use crate::api::once::OnceKey;
use crate::api::semaphore::Semaphore;
use crate::engine::clock::SafetyMargin;
use crate::engine::context::Context;
use crate::engine::lease::LeasePolicy;
use crate::engine::owner::Owner;
use crate::engine::settings::{check_lease, check_session_ttl};
use crate::net::address::Address;
use crate::wire::error::Error;
use crate::wire::info::LockSummary;
use crate::wire::reply;
use crate::wire::request;
use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A client of one server or cluster: acquires locks and renews them.
///
/// Make one per process and clone it: clones share the connections and the watchdog. Both run on the tokio
/// runtime on which they are first needed, which must have timers and I/O enabled. When that runtime ends,
/// they continue on another one on which the client connected, acquired, renewed or released a lock, or waited
/// for a loss; so does the background work of dropped guards and acquires. While it exists, something must drive
/// it: a current-thread runtime runs only during its `block_on`. Otherwise no lock is renewed, and calls on other
/// runtimes fail or wait without end.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), kvlock::Error> {
/// let client = kvlock::Client::connect("redis://127.0.0.1/").await?;
/// let guard = client.lock("orders:42").acquire().await?;
/// println!("mine, with token {}", guard.token());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Context>,
}

impl Client {
    /// Connects to a server, with the default settings.
    ///
    /// Accepts the addresses of redis-rs: `redis://user:password@host:port/db`, `unix:///path`, and, with a
    /// TLS feature, `rediss://…`. Also accepts `redis-sentinel://…` for a primary with Sentinels and
    /// `redis-cluster://…` for a cluster: see [`Address`].
    ///
    /// # Errors
    ///
    /// [`Config`](Error::Config) if the address is invalid or does not fit the server, for example
    /// because no Sentinel knows the name of the primary; [`Connection`](Error::Connection) or
    /// [`Timeout`](Error::Timeout) if no server answers; [`Authentication`](Error::Authentication);
    /// [`ModuleMissing`](Error::ModuleMissing) if the server does not know the commands.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), kvlock::Error> {
    /// let client = kvlock::Client::connect("redis://127.0.0.1/").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect<A: TryInto<Address>>(address: A) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        Self::builder().connect(address).await
    }

    /// Makes a client without connecting. The first request connects. For programs that must start while
    /// the server, or the Sentinels, cannot be reached; [`ready`](Self::ready) checks the connection.
    ///
    /// # Errors
    ///
    /// [`Config`](Error::Config) if the address is invalid.
    pub fn connect_lazy<A: TryInto<Address>>(address: A) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        Self::builder().connect_lazy(address)
    }

    /// Checks that the servers know the commands and accept the login. [`connect`](Self::connect) does this
    /// too. Use it after [`connect_lazy`](Self::connect_lazy), or as a health check.
    ///
    /// # Errors
    ///
    /// The errors of [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) {
    /// if let Err(trouble) = client.ready().await {
    ///     eprintln!("no locks for now: {trouble}");
    /// }
    /// # }
    /// ```
    pub async fn ready(&self) -> Result<(), Error> {
        self.inner.check_module().await
    }

    /// Makes a client with the address and login of a client of redis-rs, and with the default settings.
    /// The first request connects.
    ///
    /// # Errors
    ///
    /// [`Config`](Error::Config) if redis-rs does not accept the connection settings of `client`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redis = redis::Client::open("redis://127.0.0.1/")?;
    /// let client = kvlock::Client::from_redis(&redis)?;
    /// # Ok(()) }
    /// ```
    pub fn from_redis(client: &redis::Client) -> Result<Self, Error> {
        Self::builder().build(client)
    }

    /// Returns a builder, for settings other than the default ones.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), kvlock::Error> {
    /// use std::time::Duration;
    ///
    /// let client = kvlock::Client::builder()
    ///     .lease(Duration::from_secs(10))
    ///     .connect("redis://127.0.0.1/")
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the lock with this name: 1 to 65,536 bytes, or at most 4,096 if the lock is to be waited
    /// for. Sends nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let lock = client.lock("orders:42");
    /// let guard = lock.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.inner.clone(), name.as_ref())
    }

    /// Returns the election with this name, 1 to 4,096 bytes: the lock with the same name, with a value and
    /// observers. Sends nothing.
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election::new(self.lock(name))
    }

    /// Returns the key of a result that one of many clients makes and all of them get: see [`OnceKey`]. The
    /// result is stored in `key`. Sends nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// # use std::time::Duration;
    /// let report = client.once("report:42").ttl(Duration::from_secs(600));
    /// let report = report.get_or(async |_| make_report().await).await?;
    /// println!("{} bytes", report.value.len());
    /// # Ok(()) }
    /// # async fn make_report() -> Vec<u8> { Vec::new() }
    /// ```
    pub fn once(&self, key: impl AsRef<[u8]>) -> OnceKey {
        OnceKey::new(self.inner.clone(), key.as_ref())
    }

    /// Returns the semaphore with this name: 1 to 65,536 bytes, or at most 4,096 if permits are to be
    /// waited for. Sends nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let pool = client.semaphore("licences");
    /// pool.set_once(5).await?;
    /// let permit = pool.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<[u8]>) -> Semaphore {
        Semaphore::new(self.inner.clone(), name.as_ref())
    }

    /// Returns the count-down latch with this name: 1 to 65,536 bytes, or at most 4,096 if it is to be
    /// waited for. Sends nothing.
    pub fn latch(&self, name: impl AsRef<[u8]>) -> Latch {
        Latch::new(self.inner.clone(), name.as_ref())
    }

    /// Returns a new owner. Acquisitions that share it are re-entrant.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let me = client.owner();
    /// let guard = client.lock("orders:42").owner(&me).acquire().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner::of(self.inner.name)
    }

    /// Returns up to `count` locks of the client's database that have waiters at this moment, those with the
    /// most waiters first. In a cluster the locks are from all nodes.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if `count` is not 1 to 1,000, [`Denied`](Error::Denied), and network
    /// errors.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// for lock in client.list(100).await? {
    ///     println!("{} for {}", lock.waiters, String::from_utf8_lossy(&lock.key));
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn list(&self, count: u32) -> Result<Vec<LockSummary>, Error> {
        let lists: Vec<Vec<LockSummary>> =
            self.inner.look_everywhere(&request::list(count), reply::read).await?;
        let mut locks: Vec<LockSummary> = lists.into_iter().flatten().collect();
        // Each server's list is sorted, but not the concatenation of the lists.
        locks.sort_by_key(|lock| Reverse((lock.waiters, lock.longest_wait)));
        locks.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        Ok(locks)
    }

    /// Returns the address of the server, without the login.
    ///
    /// ```
    /// # fn main() -> Result<(), kvlock::Error> {
    /// let client = kvlock::Client::connect_lazy("redis://:secret@127.0.0.1/")?;
    /// assert!(client.address().contains("127.0.0.1") && !client.address().contains("secret"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn address(&self) -> &str {
        &self.inner.place
    }

    /// Returns the lease of locks and permits that set none of their own: see [`Builder::lease`].
    ///
    /// ```
    /// # fn main() -> Result<(), kvlock::Error> {
    /// let client = kvlock::Client::connect_lazy("redis://127.0.0.1/")?;
    /// assert_eq!(client.lease(), std::time::Duration::from_secs(30));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.inner.settings.lease
    }

    /// Returns the time for which temporary errors are retried: see [`Builder::patience`].
    ///
    /// ```
    /// # fn main() -> Result<(), kvlock::Error> {
    /// let client = kvlock::Client::connect_lazy("redis://127.0.0.1/")?;
    /// assert_eq!(client.patience(), std::time::Duration::from_secs(30));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.inner.settings.patience
    }

    /// Returns the `run_id` in the server's `INFO`. A server chooses a random `run_id` at each start, so the
    /// id shows whether two addresses lead to the same server.
    ///
    /// # Errors
    ///
    /// The errors of [`ready`](Self::ready); [`Denied`](Error::Denied) without the right to `INFO`;
    /// [`Config`](Error::Config) for a cluster, which is more than one server.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn run_id(&self) -> Result<String, Error> {
        let inner = &self.inner;
        inner.check_module().await?;
        let mut info = redis::cmd("INFO");
        info.arg("server");
        let patience = inner.settings.reply_timeout;
        let answer = inner.router.only()?.commands().call(&info, patience).await?;
        let text: String = redis::from_redis_value(answer)?;
        let id = text.lines().find_map(|line| line.strip_prefix("run_id:"));
        let id = id.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
        id.ok_or_else(|| Error::Protocol("INFO has no run_id".to_owned()))
    }

    /// Waits until the background work of dropped guards and acquires is done: releases and cancelled
    /// waits.
    ///
    /// Call it before the last runtime ends. Otherwise a lock whose release was not sent is free only
    /// when its lease ends. While the server cannot be reached, this takes about half a minute, or
    /// as long as the longest lease if that is more. While the server serves the client's session but not the
    /// cancellation of a wait, it takes as long as the session lasts. So put a timeout around it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the work continues.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let guard = client.lock("orders:42").acquire().await?;
    /// drop(guard);
    /// client.settled().await; // now it is released
    /// # Ok(()) }
    /// ```
    pub async fn settled(&self) {
        self.inner.background.wait().await;
    }

    /// Finishes the background work before the program ends: waits for [`settled`](Self::settled), then
    /// closes sessions that have no waits and no bound locks, all within `timeout`. Returns `false` if work
    /// is left. Then a lock may stay held until its lease ends. A session, with its places in
    /// queues, may last until its time to live ends.
    ///
    /// Guards that still exist are not touched: drop or release them first.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: releases and cancelled waits continue in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(client: kvlock::Client) {
    /// if !client.shutdown(Duration::from_secs(5)).await {
    ///     eprintln!("some locks end with their leases");
    /// }
    /// # }
    /// ```
    pub async fn shutdown(self, timeout: Duration) -> bool {
        let end = async {
            self.settled().await;
            self.inner.sessions.close().await;
        };
        tokio::time::timeout(timeout, end).await.is_ok()
    }
}

impl Builder {
    /// Connects to a server; see [`Client::connect`].
    ///
    /// # Errors
    ///
    /// The errors of [`Client::connect`]; [`Invalid`](Error::Invalid) or [`Config`](Error::Config) if a
    /// setting is out of range.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), kvlock::Error> {
    /// let client = kvlock::Client::builder().connect("redis://127.0.0.1/").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect<A: TryInto<Address>>(self, address: A) -> Result<Client, Error>
    where
        Error: From<A::Error>,
    {
        let client = self.connect_lazy(address)?;
        client.ready().await?;
        Ok(client)
    }

    /// Makes a client without connecting; see [`Client::connect_lazy`].
    ///
    /// # Errors
    ///
    /// The errors of [`Client::connect_lazy`]; [`Invalid`](Error::Invalid) or [`Config`](Error::Config) if
    /// a setting is out of range.
    pub fn connect_lazy<A: TryInto<Address>>(self, address: A) -> Result<Client, Error>
    where
        Error: From<A::Error>,
    {
        self.client_at(address.try_into()?)
    }

    /// Makes a client with the address and login of a client of redis-rs; see [`Client::from_redis`].
    ///
    /// # Errors
    ///
    /// The errors of [`Client::from_redis`]; [`Invalid`](Error::Invalid) or [`Config`](Error::Config) if a
    /// setting is out of range.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redis = redis::Client::open("redis://127.0.0.1/")?;
    /// let client = kvlock::Client::builder().confirm(true).build(&redis)?;
    /// # Ok(()) }
    /// ```
    pub fn build(self, client: &redis::Client) -> Result<Client, Error> {
        self.client_at(client.get_connection_info().clone().into())
    }

    pub(crate) fn client_at(self, address: Address) -> Result<Client, Error> {
        let Self { settings, margin, clock } = self;
        check_lease(settings.lease)?;
        check_session_ttl(settings.session_ttl)?;
        if settings.reply_timeout.is_zero() {
            return Err(Error::Config("reply timeout out of range: must not be zero".to_owned()));
        }
        let policy = LeasePolicy { clock, safety: SafetyMargin { margin } };
        Ok(Client { inner: Arc::new(Context::new(address, settings, policy)?) })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("name", &self.inner.name).finish_non_exhaustive()
    }
}
