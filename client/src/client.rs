//! A client: connections, a watchdog, and a name to form owners with.

use crate::background::Background;
use crate::clock::{Boottime, Caution, Clock, Moment};
use crate::error::Error;
use crate::lease::Terms;
use crate::line::Lines;
use crate::link::{Connector, Link};
use crate::lock::Lock;
use crate::owner::Owner;
use crate::pool::Pool;
use crate::watchdog::Watchdog;
use redis::IntoConnectionInfo;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use uuid::Uuid;

/// Acquires locks of one server, and keeps them.
///
/// Make one per process and clone it: clones share the connections and the watchdog. It belongs to
/// the tokio runtime in which it is used; the runtime needs its timers and I/O enabled.
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
    pub(crate) inner: Arc<Inner>,
}

impl Client {
    /// Connects to a server, with the default settings.
    ///
    /// Takes what redis-rs takes: `redis://user:password@host:port/db`, `unix:///path`, and, with a
    /// TLS feature, `rediss://…`.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if the address is none, [`Connection`](Error::Connection) or
    /// [`Timeout`](Error::Timeout) if nobody answers there,
    /// [`Authentication`](Error::Authentication), and [`ModuleMissing`](Error::ModuleMissing) if
    /// the server does not know the commands.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is left.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), kvlock::Error> {
    /// let client = kvlock::Client::connect("redis://127.0.0.1/").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(address: impl IntoConnectionInfo) -> Result<Self, Error> {
        Self::builder().connect(address).await
    }

    /// Uses the address and login of a client of redis-rs, with the default settings. Connects when
    /// the first lock is acquired.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if redis-rs does not take its own settings back.
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

    /// Settings other than the default ones.
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

    /// The lock of that name: any bytes, 1 to 65,536 of them. Nothing is sent yet.
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
        Lock::new(self.clone(), name.as_ref())
    }

    /// A new owner, to be shared by acquisitions that are to be re-entrant.
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
        Owner::default()
    }

    /// Waits until what guards and acquires have left to be done when they were dropped is done.
    ///
    /// Call it before the runtime ends, so that locks are free at once and not when their leases
    /// end. Without a connection it takes up to half a minute: put a timeout around it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the work goes on.
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
        self.inner.background.settled().await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

/// How a [`Client`] is to work.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), kvlock::Error> {
/// use std::time::Duration;
///
/// let client = kvlock::Client::builder()
///     .lease(Duration::from_secs(10))    // a dead holder delays the next by this
///     .margin(Duration::from_secs(1))    // know of a loss this much before it happens
///     .waits(64)                         // locks that may be waited for at the server
///     .connect("redis://127.0.0.1/")
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    settings: Settings,
    margin: Duration,
    waits: usize,
    clock: Arc<dyn Clock>,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) lease: Duration,
    pub(crate) reply_timeout: Duration,
    pub(crate) patience: Duration,
}

impl Default for Builder {
    fn default() -> Self {
        let settings = Settings {
            lease: Duration::from_secs(30),
            reply_timeout: Duration::from_secs(5),
            patience: Duration::from_secs(30),
        };
        Self { settings, margin: Duration::from_millis(500), waits: 32, clock: Arc::new(Boottime) }
    }
}

impl Builder {
    /// The lease of locks that do not ask for another: 30 s by default.
    ///
    /// It says how long others wait when a holder dies, and how long the server may be out of reach
    /// before a holder has to stop. It is renewed every third of it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let builder = kvlock::Client::builder().lease(Duration::from_secs(10));
    /// # let _ = builder;
    /// ```
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long before the server can free a lock its holder is told that it is lost: 500 ms by
    /// default, and never more than a quarter of the lease.
    ///
    /// Make it as long as the work under a lock needs to stop.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let builder = kvlock::Client::builder().margin(Duration::from_secs(2));
    /// # let _ = builder;
    /// ```
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// How many different locks can be waited for at the server at the same time: 32 by default,
    /// at least 1. Each takes a connection while somebody waits.
    ///
    /// If more are wanted, those ask again and again at random intervals, and are served when they
    /// happen to find the lock free, not in order of arrival.
    ///
    /// ```
    /// let builder = kvlock::Client::builder().waits(100);
    /// # let _ = builder;
    /// ```
    pub fn waits(mut self, waits: usize) -> Self {
        self.waits = waits;
        self
    }

    /// How long the server may take to answer, or to let us connect: 5 s by default.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let builder = kvlock::Client::builder().reply_timeout(Duration::from_secs(1));
    /// # let _ = builder;
    /// ```
    pub fn reply_timeout(mut self, timeout: Duration) -> Self {
        self.settings.reply_timeout = timeout;
        self
    }

    /// How long a waiting acquire puts up with a server that cannot be reached, is loading, or is
    /// being replaced, before it gives the error: 30 s by default. Zero gives it at once.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let builder = kvlock::Client::builder().patience(Duration::from_secs(120));
    /// # let _ = builder;
    /// ```
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// Another clock to measure leases with: for tests. [`Clock`] has an example.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Connects to a server; see [`Client::connect`].
    ///
    /// # Errors
    ///
    /// Those of [`Client::connect`], and [`Invalid`](Error::Invalid) if a setting is out of range.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is left.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), kvlock::Error> {
    /// let client = kvlock::Client::builder().connect("redis://127.0.0.1/").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(self, address: impl IntoConnectionInfo) -> Result<Client, Error> {
        let client = self.build(&redis::Client::open(address)?)?;
        client.inner.check_module().await?;
        Ok(client)
    }

    /// Uses the address and login of a client of redis-rs; see [`Client::from_redis`].
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if a setting is out of range.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redis = redis::Client::open("redis://127.0.0.1/")?;
    /// let client = kvlock::Client::builder().waits(100).build(&redis)?;
    /// # Ok(()) }
    /// ```
    pub fn build(self, client: &redis::Client) -> Result<Client, Error> {
        let Self { settings, margin, waits, clock } = self;
        check_lease(settings.lease)?;
        if waits == 0 || waits > tokio::sync::Semaphore::MAX_PERMITS {
            return Err(Error::Invalid("waits out of range: at least 1".to_owned()));
        }
        if settings.reply_timeout.is_zero() {
            return Err(Error::Invalid("reply timeout out of range: must not be zero".to_owned()));
        }
        let connector = Arc::new(Connector::standalone(client, settings.reply_timeout)?);
        let link = Arc::new(Link::new(connector.clone()));
        let watchdog = Watchdog::new(link.clone(), clock.clone(), settings.reply_timeout);
        let inner = Inner {
            link,
            pool: Arc::new(Pool::new(connector, waits)),
            watchdog: Arc::new(watchdog),
            lines: Arc::default(),
            background: Arc::default(),
            terms: Terms { clock, caution: Caution { margin } },
            settings,
            name: Uuid::new_v4(),
            numbers: AtomicU64::new(1),
        };
        Ok(Client { inner: Arc::new(inner) })
    }
}

/// The shortest lease: less is over before an answer is back.
const LEASE_MIN: Duration = Duration::from_millis(10);
/// Ten years: more cannot be said on the wire.
const LEASE_MAX: Duration = Duration::from_millis(315_360_000_000);

pub(crate) fn check_lease(lease: Duration) -> Result<(), Error> {
    if (LEASE_MIN..=LEASE_MAX).contains(&lease) {
        return Ok(());
    }
    Err(Error::Invalid(format!("lease out of range: {lease:?} is not 10 ms to ten years")))
}

/// What all clones, guards and tasks of a client share.
pub(crate) struct Inner {
    link: Arc<Link>,
    pool: Arc<Pool>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) lines: Arc<Lines>,
    background: Arc<Background>,
    pub(crate) terms: Terms,
    pub(crate) settings: Settings,
    name: Uuid,
    numbers: AtomicU64,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Inner {
    /// The connection for commands that do not block.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// The connections for those that do.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::of(&*self.terms.clock)
    }

    pub(crate) fn fresh_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// An owner that nobody ever was before.
    pub(crate) fn fresh_owner(&self) -> Arc<str> {
        format!("{}:{}", self.name, self.fresh_number()).into()
    }

    /// See [`Background::spawn`].
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(|| self.link.runtime(), work);
    }

    /// Asks for what the server looks at before it looks at rights and keys: it refuses a command
    /// without arguments, but only one that it knows. It does so even before a login, so that is
    /// asked for too.
    async fn check_module(&self) -> Result<(), Error> {
        let patience = self.settings.reply_timeout;
        match self.link.call(&redis::cmd("LOCK.WAIT"), patience).await {
            Err(Error::ModuleMissing(said)) if said.starts_with("wrong number") => {}
            Err(trouble) => return Err(trouble),
            Ok(_) => return Err(Error::Protocol("no arguments were enough".to_owned())),
        }
        match self.link.call(&redis::cmd("PING"), patience).await {
            Err(Error::Authentication(said)) => Err(Error::Authentication(said)),
            // Any other answer is that of a server that has let us in.
            _ => Ok(()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.watchdog.close();
    }
}
