//! A lock on several independent servers, held while a majority of them grants it.

mod attempt;
mod guard;
mod held;
mod keeper;
mod lock;
mod seat;

pub use guard::QuorumGuard;
pub use lock::QuorumLock;

use crate::api::builder::Builder;
use crate::api::client::Client;
use crate::net::address::Address;
use crate::wire::error::Error;
use futures_util::future::join_all;
use keeper::Keeper;
use seat::Seat;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long each server may take, unless it is said.
const PATIENCE: Duration = Duration::from_millis(500);

/// Several independent servers, each with the module: the locks of a quorum are held while a
/// majority of the servers grants them. This is the algorithm called Redlock.
///
/// "Independent" means that none is a replica of another: they share nothing, and are best on
/// different machines. A majority is more than half:
///
/// | servers | majority | that may fail |
/// |---|---|---|
/// | 1 | 1 | 0: an ordinary lock |
/// | 2 | 2 | 0: worse than one server |
/// | 3 | 2 | 1 |
/// | 4 | 3 | 1: no better than 3 |
/// | 5 | 3 | 2 |
///
/// # What it buys, and what not
///
/// A server that dies, with whatever it knew, takes no lock with it, and nobody waits for a
/// failover. What a server **forgets** counts, though: one that comes back without its data grants
/// again what it had granted, and with it a second majority may come about. So let each keep an
/// append-only file with `appendfsync always`, or stay out for longer than the longest lease before
/// it comes back. And as with every lock with leases, a client that is paused after it looked can
/// write too late: only a resource that checks the [token](QuorumGuard::token) refuses that.
/// `docs/guarantees.md` has all of it.
///
/// Nobody waits in line: a quorum asks again and again at random intervals, so its locks are not
/// fair. All who use a lock must use it by the same servers.
///
/// # Validity
///
/// Redis's page on distributed locks asks for `MIN_VALIDITY = TTL - (T2 - T1) - CLOCK_DRIFT`: the
/// lease, less the time since the first server was asked, less what clocks may differ. Here that is
/// counted for each server by itself, from before the sending of the last command that set its
/// lease: until sending + lease − 1 % of the lease − 2 ms − [margin](Builder::margin). The
/// lock is valid as long as a majority of the servers is: until the end of the majority-th best
/// of them. Renewals move each server's own end. Nothing is held without validity left.
///
/// # Tokens
///
/// Each server issues a token of its own, and their clocks differ. The token of the quorum is the
/// largest of those of the first majority, which is written back to a majority (`LOCK.RENEW …
/// TOKEN`) before the lock counts as held. Two majorities have a server in common, and what that
/// one grants next is larger. So the tokens of a lock increase strictly, as long as the servers keep
/// what they know. Servers take a token that is up to a day ahead of their clock. One server whose
/// tokens are further ahead is done without.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), kvlock::Error> {
/// let quorum = kvlock::Quorum::connect([
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
    patience: Duration,
}

/// The servers, and what looks after locks on them.
pub(crate) struct Servers {
    pub(crate) seats: Vec<Arc<Seat>>,
    pub(crate) keeper: Arc<Keeper>,
}

impl Servers {
    /// More than half.
    pub(crate) fn majority(&self) -> usize {
        self.seats.len() / 2 + 1
    }

    /// See [`Background::spawn`](crate::engine::background::Background::spawn).
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(first) = self.seats.first() {
            first.client.inner.spawn(work);
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.keeper.close();
    }
}

impl Quorum {
    /// Connects to the servers, with the default settings.
    ///
    /// # Errors
    ///
    /// Those of [`of`](Self::of), and [`Invalid`](Error::Invalid) if an address is none.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is left.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), kvlock::Error> {
    /// let quorum = kvlock::Quorum::connect(["redis://a/", "redis://b/", "redis://c/"]).await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect<A: TryInto<Address>>(
        addresses: impl IntoIterator<Item = A>,
    ) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        let clients = addresses.into_iter().map(|at| Builder::default().client_at(at.try_into()?));
        let clients = clients.collect::<Result<Vec<_>, Error>>()?;
        Self::of(clients).await
    }

    /// The servers of these clients. Each keeps its own margin and its own time for renewals; the
    /// lease is that of the first, unless a lock asks for another.
    ///
    /// A majority of the servers has to answer now; the others may come later. To tell servers
    /// apart the clients' users need the right to `INFO`.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if there are no clients, one of them is of a cluster, or two lead
    /// to the same server, as its run id shows; [`NoMajority`](Error::NoMajority) if too few can be reached;
    /// [`ModuleMissing`](Error::ModuleMissing), [`Authentication`](Error::Authentication) and
    /// [`Denied`](Error::Denied) if one of them does not let us. Whoever could not be reached and
    /// turns out to be one of the others does no harm: he grants nothing twice.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is left.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let clients = ["redis://a/", "redis://b/", "redis://c/"].map(|at| {
    ///     let builder = kvlock::Client::builder().lease(Duration::from_secs(10));
    ///     Ok(builder.build(&redis::Client::open(at)?)?)
    /// });
    /// let clients: Vec<_> = clients.into_iter().collect::<Result<_, kvlock::Error>>()?;
    /// let quorum = kvlock::Quorum::of(clients).await?;
    /// # Ok(()) }
    /// ```
    pub async fn of(clients: impl IntoIterator<Item = Client>) -> Result<Self, Error> {
        let seats: Vec<_> = clients.into_iter().map(|client| Arc::new(Seat::new(client))).collect();
        if seats.is_empty() {
            return Err(Error::Invalid("a quorum needs at least one server".to_owned()));
        }
        let servers = Servers { keeper: Arc::default(), seats };
        let answers = join_all(servers.seats.iter().map(|seat| seat.identity())).await;
        let mut known: Vec<(String, &Seat)> = Vec::with_capacity(answers.len());
        let (mut failed, mut missing) = (0, None);
        for (answer, seat) in answers.into_iter().zip(&servers.seats) {
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
                let text = format!("{} and {} are the same server", other.place(), seat.place());
                return Err(Error::Invalid(text));
            }
            known.push((id, seat));
        }
        match missing {
            Some(trouble) if known.len() < servers.majority() => Err(Error::NoMajority {
                failed,
                servers: servers.seats.len(),
                trouble: Box::new(trouble),
            }),
            _ => Ok(Self { servers: Arc::new(servers), patience: PATIENCE }),
        }
    }

    /// How long each server may take to answer a try, or to let us connect: 500 ms by default. What
    /// takes longer does not count, and is undone. Make it small compared with the lease; a server
    /// that hangs delays an acquire by this at most, and only if it is needed for the majority.
    ///
    /// ```no_run
    /// # fn example(quorum: kvlock::Quorum) {
    /// let quorum = quorum.server_timeout(std::time::Duration::from_millis(50));
    /// # }
    /// ```
    #[must_use]
    pub fn server_timeout(mut self, timeout: Duration) -> Self {
        self.patience = timeout;
        self
    }

    /// The lock of that name: any bytes, 1 to 65,536 of them. Nothing is sent yet.
    ///
    /// ```no_run
    /// # async fn example(quorum: kvlock::Quorum) -> Result<(), kvlock::Error> {
    /// let guard = quorum.lock("orders:42").acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, name: impl AsRef<[u8]>) -> QuorumLock {
        QuorumLock::new(self.servers.clone(), self.patience, name.as_ref())
    }

    /// Waits until what guards and acquires have left to be done is done, as
    /// [`Client::settled`] does. While a server cannot be reached it takes up to half a minute: put
    /// a timeout around it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the work goes on.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(quorum: kvlock::Quorum, guard: kvlock::QuorumGuard) {
    /// drop(guard);
    /// quorum.settled().await; // now it is released
    /// # }
    /// ```
    pub async fn settled(&self) {
        // What the first one does in the background may leave something to the others.
        for seat in &self.servers.seats {
            seat.client.settled().await;
        }
        join_all(self.servers.seats.iter().map(|seat| seat.client.settled())).await;
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<_> = self.servers.seats.iter().map(|seat| seat.place()).collect();
        f.debug_struct("Quorum").field("servers", &places).finish_non_exhaustive()
    }
}
