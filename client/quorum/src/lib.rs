//! Locks on several independent servers. A lock is held while a majority of the servers grants it.
//!
//! [`Quorum`] describes the guarantees and their limits. The part of a lock at each server is a
//! [`kvlock::Guard`].
//!
//! ```no_run
//! # async fn example() -> Result<(), kvlock_quorum::Error> {
//! use kvlock_quorum::Quorum;
//!
//! let quorum = Quorum::connect(["redis://a/", "redis://b/", "redis://c/"]).await?;
//! let guard = quorum.lock("orders:42").acquire().await?;
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! An acquire is a span of [`tracing`], `kvlock.quorum.acquire` with the `key`. The parts at the servers
//! have the spans and counters of the crate `kvlock`.
#![forbid(unsafe_code)]

mod attempt;
mod guard;
mod held;
mod keeper;
mod lock;
mod member;
mod sync;

pub use guard::QuorumGuard;
/// Types of the crate `kvlock` that this crate's interface uses.
pub use kvlock::{Address, Client, Error, Loss, Token};
pub use lock::QuorumLock;

use futures_util::future::join_all;
use member::Member;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// Default time that each server has to answer a request.
const PATIENCE: Duration = Duration::from_millis(500);
/// Longest such time. A multiple of it is a valid time too.
const PATIENCE_MAX: Duration = Duration::from_secs(86_400);

/// Several independent servers, each with the module: the locks of a quorum are held while a
/// majority of the servers grants them. This is the algorithm called Redlock.
///
/// "Independent" means that none is a replica of another: they share nothing, and should run on different
/// machines. A majority is more than half:
///
/// | servers | majority | may fail |
/// |---|---|---|
/// | 1 | 1 | 0: an ordinary lock |
/// | 2 | 2 | 0: worse than one server |
/// | 3 | 2 | 1 |
/// | 4 | 3 | 1: no better than 3 |
/// | 5 | 3 | 2 |
///
/// # Guarantees, and their limits
///
/// The death of a minority of servers loses no lock, and there is no failover to wait for. But a server must
/// not **forget** its grants. A server that comes back without its data can grant a held lock again, and a
/// second majority is possible. So let each server keep an append-only file with `appendfsync always`, or do
/// not restart it before the longest lease is over. As with every lock with leases, a client that is paused
/// after it has checked the lock can write too late. Only a resource that checks the
/// [token](QuorumGuard::token) refuses this write. See `docs/guarantees.md`.
///
/// There is no queue: clients ask again at random intervals, so the locks of a quorum are not fair. All
/// clients of a lock must use the same servers.
///
/// # Validity
///
/// Redis's page on distributed locks demands `MIN_VALIDITY = TTL - (T2 - T1) - CLOCK_DRIFT`. This is the
/// lease, less the time since the first server was asked, less the drift of the clocks. Here the validity is
/// computed for each server, from the moment right before the last command that set its lease was sent. It
/// ends at this moment + lease − 1 % of the lease − 2 ms − [margin](kvlock::Builder::margin). The lock is
/// valid while its leases at a majority of the servers are: with three servers, until the second of
/// the three leases ends. Renewals move the end at each server. A lock without validity left counts
/// as lost.
///
/// # Tokens
///
/// Each server issues its own token, and their clocks differ. The token of the quorum is the largest token of
/// the first majority. It is written back to a majority (`LOCK.RENEW … TOKEN`) before the lock counts as
/// held. Two majorities have a server in common, and the next grant of that server has a larger token. So the
/// tokens of a lock increase strictly, while the servers keep their data. Servers accept a token that is up
/// to a day ahead of their clock. A server whose tokens are further ahead is left out.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), kvlock::Error> {
/// let quorum = kvlock_quorum::Quorum::connect([
///     "redis://10.0.0.1/", "redis://10.0.0.2/", "redis://10.0.0.3/",
/// ]).await?;
/// let guard = quorum.lock("orders:42").acquire().await?;
/// println!("mine, with token {}", guard.token());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Quorum {
    pub(crate) servers: Arc<Servers>,
}

/// The servers, and the background tasks.
#[derive(Clone)]
pub(crate) struct Servers {
    pub(crate) members: Vec<Arc<Member>>,
    pub(crate) tasks: TaskTracker,
    /// Time that each server has to answer a request.
    pub(crate) patience: Duration,
}

impl Servers {
    /// Returns the smallest number of servers that is a majority: more than half.
    pub(crate) fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    fn clients(&self) -> impl Iterator<Item = &Client> {
        self.members.iter().map(|member| &member.client)
    }
}

impl Quorum {
    /// Connects to the servers, with the default settings.
    ///
    /// # Errors
    ///
    /// The errors of [`of`](Self::of), and [`Config`](Error::Config) if an address is invalid.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), kvlock::Error> {
    /// let quorum = kvlock_quorum::Quorum::connect(["redis://a/", "redis://b/", "redis://c/"]).await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect<A: TryInto<Address>>(
        addresses: impl IntoIterator<Item = A>,
    ) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        let clients = addresses.into_iter().map(Client::connect_lazy);
        let clients = clients.collect::<Result<Vec<_>, Error>>()?;
        Self::of(clients).await
    }

    /// Makes a quorum of the servers of these clients. Each client keeps its own margin and interval of
    /// renewals. The lease is the one of the first client, unless a lock sets its own.
    ///
    /// A majority of the servers must answer this call; the others may become reachable later. The users
    /// (ACL) of the clients need the right to `INFO`, which identifies the servers.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if there are no clients, or if two of them lead to the same server, as its
    /// run id shows; [`Config`](Error::Config) if one of them is the client of a cluster;
    /// [`NoMajority`](Error::NoMajority) if too few servers can be reached;
    /// [`ModuleMissing`](Error::ModuleMissing), [`Authentication`](Error::Authentication) and
    /// [`Denied`](Error::Denied) if a server refuses its client. An address that cannot be reached yet may
    /// later lead to one of the other servers. This does no harm: that server does not grant the lock twice.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let clients = ["redis://a/", "redis://b/", "redis://c/"].map(|at| {
    ///     let builder = kvlock::Client::builder().lease(Duration::from_secs(10));
    ///     builder.connect_lazy(at)
    /// });
    /// let clients: Vec<_> = clients.into_iter().collect::<Result<_, _>>()?;
    /// let quorum = kvlock_quorum::Quorum::of(clients).await?;
    /// # Ok(()) }
    /// ```
    pub async fn of(clients: impl IntoIterator<Item = Client>) -> Result<Self, Error> {
        let member = |client| Arc::new(Member::new(client));
        let members: Vec<_> = clients.into_iter().map(member).collect();
        if members.is_empty() {
            return Err(Error::Invalid("a quorum needs at least one server".to_owned()));
        }
        let servers = Servers { members, tasks: TaskTracker::new(), patience: PATIENCE };
        // A closed tracker still accepts tasks, and its `wait` returns when none is left.
        servers.tasks.close();
        let answers = join_all(servers.clients().map(Client::run_id)).await;
        let mut known: Vec<(String, &Client)> = Vec::with_capacity(answers.len());
        let (mut failed, mut missing) = (0, None);
        for (answer, client) in answers.into_iter().zip(servers.clients()) {
            let id = match answer {
                Ok(id) => id,
                Err(trouble) if trouble.is_retryable() => {
                    failed += 1;
                    missing = Some(trouble);
                    continue;
                }
                Err(trouble) => return Err(trouble),
            };
            if let Some((_, other)) = known.iter().find(|(other, _)| *other == id) {
                let text =
                    format!("{} and {} are the same server", other.address(), client.address());
                return Err(Error::Invalid(text));
            }
            known.push((id, client));
        }
        match missing {
            Some(trouble) if known.len() < servers.majority() => Err(Error::NoMajority {
                failed,
                servers: servers.members.len(),
                trouble: Box::new(trouble),
            }),
            _ => Ok(Self { servers: Arc::new(servers) }),
        }
    }

    /// Sets how long each server may take to answer a request, or to accept a connection. Default: 500 ms. A
    /// later answer does not count, and its grant is released. Set it to a small part of the lease. A server
    /// that hangs delays each of the two requests of an attempt by at most this time, and only if
    /// it is needed for the majority. More than a day counts as a day.
    #[must_use]
    pub fn server_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.servers).patience = timeout.min(PATIENCE_MAX);
        self
    }

    /// Returns the lock with this name: 1 to 65,536 bytes. Sends nothing.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> QuorumLock {
        QuorumLock::new(self.servers.clone(), name.as_ref())
    }

    /// Waits until the background work of dropped guards and acquires is done, as [`Client::settled`] does.
    /// While a server cannot be reached, this takes about half a minute, or as long as the longest
    /// lease if that is more. So put a timeout around it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the work continues.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(quorum: kvlock_quorum::Quorum, guard: kvlock_quorum::QuorumGuard) {
    /// drop(guard);
    /// quorum.settled().await; // now it is released
    /// # }
    /// ```
    pub async fn settled(&self) {
        self.servers.tasks.wait().await;
        join_all(self.servers.clients().map(Client::settled)).await;
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> = self.servers.clients().map(Client::address).collect();
        f.debug_struct("Quorum").field("servers", &addresses).finish_non_exhaustive()
    }
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
