//! A client: connections, a watchdog, and a name to form owners with.

use crate::address::Address;
use crate::background::Background;
use crate::builder::{Builder, Settings};
use crate::clock::Moment;
use crate::contended::Contended;
use crate::error::Error;
use crate::latch::Latch;
use crate::lease::Terms;
use crate::lock::Lock;
use crate::node::Node;
use crate::owner::Owner;
use crate::replicas::Renewals;
use crate::reply::{self, LockSummary};
use crate::request;
use crate::router::Router;
use crate::semaphore::Semaphore;
use crate::session::Sessions;
use crate::watchdog::Watchdog;
use futures_util::future::join_all;
use redis::{Cmd, ParsingError, RedisError, Value};
use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

/// Acquires locks of one server or cluster, and keeps them.
///
/// Make one per process and clone it: clones share the connections and the watchdog. These run on
/// the tokio runtime on which they are first needed, with its timers and I/O enabled; when it ends,
/// on another on which the client was used.
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
    /// TLS feature, `rediss://…`; `redis-sentinel://…` for a primary that Sentinels watch over, and
    /// `redis-cluster://…` for a cluster: see [`Address`].
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if the address is none, no Sentinel knows that name, or the
    /// server of a cluster's address is in none,
    /// [`Connection`](Error::Connection) or
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
    pub async fn connect<A: TryInto<Address>>(address: A) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
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

    /// The semaphore of that name: any bytes, 1 to 65,536 of them. Nothing is sent yet.
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
        Semaphore::new(self.clone(), name.as_ref())
    }

    /// The count-down latch of that name: any bytes, 1 to 65,536 of them. Nothing is sent yet.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// client.latch("batch:7").wait().await?;
    /// # Ok(()) }
    /// ```
    pub fn latch(&self, name: impl AsRef<[u8]>) -> Latch {
        Latch::new(self.clone(), name.as_ref())
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
        Owner::of(self.inner.name)
    }

    /// The locks that are waited for at this moment, `count` of them at most: those with the most
    /// waiters, of all nodes of a cluster.
    ///
    /// # Errors
    ///
    /// [`Denied`](Error::Denied), those of the network.
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
        let lists = self.inner.look_everywhere(&request::list(count)?, reply::list).await?;
        let mut locks: Vec<LockSummary> = lists.into_iter().flatten().collect();
        // Each server has its own in this order.
        locks.sort_by_key(|lock| Reverse((lock.waiters, lock.longest_wait)));
        locks.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        Ok(locks)
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

/// What all clones, guards and tasks of a client share.
pub(crate) struct Inner {
    pub(crate) router: Arc<Router>,
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) sessions: Sessions,
    pub(crate) contended: Contended,
    background: Arc<Background>,
    pub(crate) terms: Terms,
    pub(crate) settings: Settings,
    pub(crate) name: Uuid,
    /// Where the server is, without the login.
    pub(crate) place: String,
    numbers: AtomicU64,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn new(address: Address, settings: Settings, terms: Terms) -> Result<Self, Error> {
        let place = address.to_string();
        let own_renewals = settings.replicas.is_some();
        let router = Arc::new(Router::new(address, settings.reply_timeout, own_renewals)?);
        let renewals = Arc::new(Renewals::new(router.clone(), settings.replicas));
        let watchdog = Watchdog::new(renewals.clone(), terms.clock.clone(), settings.reply_timeout);
        Ok(Self {
            router: router.clone(),
            renewals,
            sessions: Sessions::new(router.clone(), settings.reply_timeout),
            contended: Contended::default(),
            watchdog: Arc::new(watchdog),
            background: Arc::default(),
            terms,
            settings,
            name: Uuid::new_v4(),
            place,
            numbers: AtomicU64::new(1),
        })
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
        self.background.spawn(|| self.router.runtime(), work);
    }

    /// Asks for something about a key that changes nothing, once more if the connection turns out to
    /// be closed.
    pub(crate) async fn look<T>(
        &self,
        key: &[u8],
        request: &Cmd,
        read: fn(Value) -> Result<T, ParsingError>,
    ) -> Result<T, Error> {
        let patience = self.settings.reply_timeout;
        let mut answer = self.router.call(key, request, patience).await;
        if matches!(answer, Err(Error::Connection(_))) {
            answer = self.router.call(key, request, patience).await;
        }
        Ok(read(answer?).map_err(RedisError::from)?)
    }

    /// Asks all servers that keep locks for something that changes nothing.
    async fn look_everywhere<T>(
        &self,
        request: &Cmd,
        read: fn(Value) -> Result<T, ParsingError>,
    ) -> Result<Vec<T>, Error> {
        let patience = self.settings.reply_timeout;
        let ask = async |node: Arc<Node>| {
            let mut answer = node.commands().call(request, patience).await;
            if matches!(answer, Err(Error::Connection(_))) {
                answer = node.commands().call(request, patience).await;
            }
            if let Err(trouble) = &answer {
                self.router.learn(&node, trouble);
            }
            Ok(read(answer?).map_err(RedisError::from)?)
        };
        let answers = join_all(self.router.nodes().await?.into_iter().map(ask)).await;
        answers.into_iter().collect()
    }

    /// Whether the servers know the commands and let us in. One that cannot be reached now is none
    /// that does not, if another one can.
    pub(crate) async fn check_module(&self) -> Result<(), Error> {
        let nodes = self.router.nodes().await?;
        let many = nodes.len() > 1;
        let check = async |node: Arc<Node>| match self.check_module_of(&node).await {
            Err(Error::ModuleMissing(said)) if many => {
                Err(Error::ModuleMissing(format!("{node}: {said}")))
            }
            other => other,
        };
        let outcomes = join_all(nodes.into_iter().map(check)).await;
        let reached = outcomes.iter().any(Result::is_ok);
        let troubles = outcomes.into_iter().filter_map(Result::err);
        troubles
            .filter(|trouble| !(reached && trouble.is_retryable()))
            .min_by_key(Error::is_retryable)
            .map_or(Ok(()), Err)
    }

    /// Asks for what the server looks at before it looks at rights and keys: it refuses a command
    /// without arguments, but only one that it knows. It does so even before a login, so that is
    /// asked for too.
    async fn check_module_of(&self, node: &Node) -> Result<(), Error> {
        let patience = self.settings.reply_timeout;
        match node.commands().call(&redis::cmd("SESSION.OPEN"), patience).await {
            Err(Error::ModuleMissing(said)) if said.starts_with("wrong number") => {}
            Err(trouble) => return Err(trouble),
            Ok(_) => return Err(Error::Protocol("no arguments were enough".to_owned())),
        }
        match node.commands().call(&redis::cmd("PING"), patience).await {
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
