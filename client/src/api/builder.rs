//! The settings of a client.

use crate::engine::clock::{Boottime, Clock};
use crate::engine::settings::Settings;
use crate::net::replicas::Replicas;
use std::sync::Arc;
use std::time::Duration;

/// How a [`Client`](crate::Client) is to work.
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
///     .connect("redis://127.0.0.1/")
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    pub(crate) settings: Settings,
    pub(crate) margin: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            margin: Duration::from_millis(500),
            clock: Arc::new(Boottime),
        }
    }
}

impl Builder {
    /// The lease of locks that do not ask for another: 30 s by default.
    ///
    /// It says how long others wait when a holder dies, and how long the server may be out of reach
    /// before a holder has to stop. It is renewed every third of it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long before the server can free a lock its holder is told that it is lost: 500 ms by
    /// default, and never more than a quarter of the lease.
    ///
    /// Make it as long as the work under a lock needs to stop.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// Sets whether a lock that had to be waited for is confirmed with its full lease before its guard is
    /// returned. Default: no. Then the full lease is set when the lock has been held for two thirds of a
    /// second, which saves a round trip, and a command for locks that are held for less.
    ///
    /// A waiter is granted a lock for two seconds, which limits the cost of a dead waiter. Without
    /// the confirmation the guard counts on that time, less the [`margin`](Self::margin), until
    /// the first renewal. So the lock is lost if all threads of the runtime are blocked for longer right after the
    /// acquire, or if the server cannot be reached for that long. Always confirmed are
    /// [fixed leases](crate::Lock::fixed_lease), grants that [replicas](Self::min_replicas) must confirm, margins of
    /// more than half a second, and waits so long that the clocks may differ by a second.
    ///
    /// Set it if a quarantine protects grants in failovers: a primary that was replaced, and continues to
    /// grant for a few seconds, would grant an offered lock again after the two seconds.
    pub fn confirm(mut self, confirm: bool) -> Self {
        self.settings.confirm = confirm;
        self
    }

    /// Time for which a server keeps what belongs to this client without hearing from it: 5 s by default,
    /// 100 ms to a minute.
    ///
    /// When a client has ended or cannot reach the server, its places in queues are kept and its
    /// [bound](crate::Lock::bound) locks are held for that time. A heartbeat is sent to each server where the client
    /// waits, observes or has bound locks, every tenth of it.
    ///
    /// Make it longer than the longest pause of the process, and than a restart of the server: bound
    /// locks are lost after a silence of eight tenths of it, less the [`margin`](Self::margin).
    pub fn session_ttl(mut self, ttl: Duration) -> Self {
        self.settings.session_ttl = ttl;
        self
    }

    /// For tests: time after which an unused session is closed.
    #[doc(hidden)]
    pub fn session_idle(mut self, idle: Duration) -> Self {
        self.settings.session_idle = idle;
        self
    }

    /// How long the server may take to answer, or to let us connect: 5 s by default. By no more than
    /// this an acquire passes the limit that it was given, whatever goes wrong.
    pub fn reply_timeout(mut self, timeout: Duration) -> Self {
        self.settings.reply_timeout = timeout;
        self
    }

    /// Sets how long a waiting acquire retries while the server cannot be reached, is loading, or is
    /// being replaced, before it returns the error. Default: 30 s. Zero returns it at once. The client
    /// tries to connect at intervals that grow to a second at most, once for all waiting calls.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// Requires that at least this many replicas confirm each grant and each renewal within `timeout`. Default:
    /// none. Zero turns it off.
    ///
    /// A grant with fewer confirmations is released, and the acquire returns
    /// [`NotReplicated`](crate::Error::NotReplicated). A renewal with fewer is retried, and the lock is lost
    /// if its lease ends before one succeeds. A reply that the lock is gone counts at once,
    /// without confirmation. The cost: one more round trip for each
    /// acquire, on a connection where the server confirms one acquire after the other. At each node a
    /// client acquires no more locks per second than its replicas can confirm in turn: 1,000 if
    /// a confirmation takes a millisecond. While a replica is down, renewals of more than 12,500 held locks
    /// (25 batches of 500) wait for each other's timeouts. Several clients share that load.
    /// The server counts connections: a replica that reconnects before the primary has dropped its
    /// old connection (`repl-timeout` at most) may count twice.
    /// For the guarantees see [Failover](crate#failover).
    pub fn min_replicas(mut self, at_least: u32, timeout: Duration) -> Self {
        let replicas = Replicas { at_least, timeout, all: false };
        self.settings.replicas = (at_least > 0).then_some(replicas);
        self
    }

    /// Requires that *all* replicas confirm each grant and each renewal within `timeout`: `there_are` of
    /// them, or more if the primary has more. At least one.
    ///
    /// With this no answered grant is lost in a failover, whichever replica is
    /// promoted, and a primary that was replaced without its knowledge can neither grant nor renew. The
    /// condition: a primary that dies does not come back without its data before it is replaced,
    /// because its replicas would copy the empty data set. Let servers keep their data
    /// (`appendfsync always`), do not restart them automatically, or set `kvlock.quarantine-ms`. The
    /// price: while one replica is down or cut off, no lock is granted, and held locks
    /// are lost when their leases end. The same is true after a failover, until the former primary is back as a
    /// replica.
    ///
    /// `there_are` is needed because a primary lists only the replicas
    /// that follow it at the moment; one that is cut off from all of them would list none.
    /// The client also reads that list with each check, and a replica that it has seen once
    /// counts from then on, also when it is gone. So a replica can be added while clients run;
    /// to remove one for good, restart them. A replica that reconnects before the primary has dropped
    /// its old connection (`repl-timeout` at most) is listed twice. Until the old entry disappears nothing is
    /// confirmed, since that replica's acknowledgements could count twice.
    ///
    /// In a cluster each master has its own replicas: at least `there_are`, and the ones seen
    /// are remembered for each master.
    ///
    /// Replaces [`min_replicas`](Self::min_replicas); too few confirmations have the
    /// same effect. The user needs the right to `WAIT` and `ROLE`.
    pub fn all_replicas(mut self, there_are: u32, timeout: Duration) -> Self {
        let at_least = there_are.max(1);
        self.settings.replicas = Some(Replicas { at_least, timeout, all: true });
        self
    }

    /// Resolves host names with redis-rs's kind of resolver, instead of the system's. All addresses of a
    /// name are tried, each a quarter of a second after the one before.
    ///
    /// # Examples
    ///
    /// ```
    /// use redis::RedisFuture;
    /// use redis::io::AsyncDNSResolver;
    /// use std::net::SocketAddr;
    ///
    /// struct Local;
    ///
    /// impl AsyncDNSResolver for Local {
    ///     fn resolve<'a, 'b: 'a>(
    ///         &'a self,
    ///         _host: &'b str,
    ///         port: u16,
    ///     ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
    ///         let addresses = [SocketAddr::from(([127, 0, 0, 1], port))];
    ///         Box::pin(async move { Ok(Box::new(addresses.into_iter()) as Box<_>) })
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), kvlock::Error> {
    /// let client = kvlock::Client::builder().dns_resolver(Local).connect_lazy("redis://locks/")?;
    /// # let _ = client;
    /// # Ok(()) }
    /// ```
    pub fn dns_resolver(mut self, resolver: impl redis::io::AsyncDNSResolver) -> Self {
        self.settings.transport.set_dns_resolver(resolver);
        self
    }

    /// Logs in with what a provider of redis-rs supplies, as tokens of Microsoft Entra ID or IAM, and
    /// again whenever it supplies new credentials. Sentinels have the login of their address.
    #[cfg(feature = "token-based-authentication")]
    pub fn credentials_provider(
        mut self,
        provider: impl redis::StreamingCredentialsProvider + 'static,
    ) -> Self {
        self.settings.transport.set_credentials_provider(provider);
        self
    }

    /// Another clock to measure leases with: for tests. [`Clock`] has an example.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }
}
