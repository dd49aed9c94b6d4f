//! Settings of a client.

use crate::engine::clock::{Boottime, Clock};
use crate::engine::settings::Settings;
use crate::net::replicas::Replicas;
use std::sync::Arc;
use std::time::Duration;

/// Builder of a [`Client`](crate::Client): sets the lease, timeouts and other options.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), kvlock::Error> {
/// use std::time::Duration;
///
/// let client = kvlock::Client::builder()
///     .lease(Duration::from_secs(10))    // a dead holder delays the next one by up to this
///     .margin(Duration::from_secs(1))    // stop this long before the lease ends
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
    /// Sets the lease of locks and permits that set none of their own: 10 ms to ten years. Default: 30 s.
    ///
    /// When a holder dies, the next waiter waits for up to this time. When the server cannot be reached, a
    /// holder loses the lock within this time, less the [`margin`](Self::margin). The watchdog
    /// renews a lease that is not [fixed](crate::Lock::fixed_lease) after a third of its time.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets how long before the end of a lease its holder counts the lock as lost. Default: 500 ms.
    /// At most a quarter of the lease is used.
    ///
    /// Set it to the time that the work under a lock needs to stop. It gives no warning of other
    /// losses, for example of a forced release.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// Sets whether a lock that had to be waited for is confirmed with its full lease before its guard is
    /// returned. Default: no. Then the full lease is set when the lock has been held for two thirds of a
    /// second. That saves a round trip, and a command for each lock that is held for less.
    ///
    /// A waiter is granted a lock for at most two seconds, which limits the cost of a dead waiter.
    /// Without the confirmation the guard counts on that time, less the [`margin`](Self::margin),
    /// until the first renewal. So the lock is lost if all threads of the runtime are blocked for
    /// longer right after the acquire. It is also lost if the server cannot be reached for that
    /// long.
    ///
    /// These are always confirmed: grants that [replicas](Self::min_replicas) must confirm, and grants of
    /// which less than half may be left. After a wait of more than about 45 s less than half is
    /// left, since 1 % of the wait is deducted for clocks that differ. A lease of more than two
    /// seconds is also confirmed if it is [fixed](crate::Lock::fixed_lease), or if the margin is
    /// more than half a second.
    ///
    /// Set it if `kvlock.quarantine-ms` protects grants in failovers. A primary that was replaced may
    /// continue to grant locks for a few seconds, and renewals at the new primary do not reach it. Without
    /// the confirmation it could grant the lock again when the two seconds are over.
    pub fn confirm(mut self, confirm: bool) -> Self {
        self.settings.confirm = confirm;
        self
    }

    /// Sets how long a server keeps the waits and bound locks of this client without hearing from it: 100
    /// ms to one minute. Default: 5 s.
    ///
    /// When a client dies or cannot reach the server, its places in queues are kept and its
    /// [bound](crate::Lock::bound) locks are held for this time. The client sends a heartbeat
    /// about every tenth of this time to each server where it waits, observes or has bound locks, and
    /// for about a minute after that.
    ///
    /// Set it to more than the longest pause of the process, and to more than a restart of the
    /// server takes. Bound locks can be lost after a silence of eight tenths of it, less the
    /// [`margin`](Self::margin).
    pub fn session_ttl(mut self, ttl: Duration) -> Self {
        self.settings.session_ttl = ttl;
        self
    }

    /// Sets the time after which an unused session is closed. For tests.
    #[doc(hidden)]
    pub fn session_idle(mut self, idle: Duration) -> Self {
        self.settings.session_idle = idle;
        self
    }

    /// Sets how long the server may take to accept a connection, or to answer, including the transfer of command
    /// and answer. Default: 5 s. Must not be zero. Whatever goes wrong, an acquire exceeds its own time limit by no
    /// more than this.
    pub fn reply_timeout(mut self, timeout: Duration) -> Self {
        self.settings.reply_timeout = timeout;
        self
    }

    /// Sets how long a waiting acquire retries temporary errors before it returns the error, for
    /// example while the server cannot be reached, is loading, or is being replaced. Other calls
    /// use this time too, as their documentation says. Default: 30 s. With zero it returns the
    /// error at once. All waiting calls share the attempts to connect. The intervals between these
    /// grow to at most one second.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// Requires that at least this many replicas confirm each grant and each renewal within `timeout`.
    /// Default: none. Zero turns it off.
    ///
    /// A grant with fewer confirmations is released, and the acquire returns
    /// [`NotReplicated`](crate::Error::NotReplicated). A renewal with fewer is retried, and the lock is
    /// lost if its lease ends before one succeeds. A reply that the lock is lost counts at once, without
    /// confirmation.
    ///
    /// The cost is one more round trip for each acquire, and one more connection to each node, on
    /// which the server confirms one acquire after the other. At each node a client acquires no
    /// more locks per second than its replicas can confirm in turn: 1,000 if a confirmation takes a
    /// millisecond. Renewals use the same connection, and are confirmed in batches of up to 500.
    /// While a replica is down, each batch and each acquire waits for the timeouts of those before
    /// it. Each client has a connection of its own for this.
    ///
    /// The server counts connections: a replica that reconnects before the primary has dropped its old
    /// connection (`repl-timeout` at most) may count twice. For the guarantees see
    /// [Failover](crate#failover). The user (ACL) needs the right to `WAIT`.
    pub fn min_replicas(mut self, at_least: u32, timeout: Duration) -> Self {
        let replicas = Replicas { at_least, timeout, all: false };
        self.settings.replicas = (at_least > 0).then_some(replicas);
        self
    }

    /// Requires that *all* replicas confirm each grant and each renewal within `timeout`: `there_are` of
    /// them, or more if the primary has more. Zero counts as one.
    ///
    /// With this setting a failover loses no answered grant, whichever replica is promoted. A primary that
    /// was replaced without its knowledge can neither grant nor renew. The condition: a primary that dies
    /// does not come back without its data before it is replaced. Otherwise its replicas would copy the empty
    /// data set. Let servers keep their data (`appendfsync always`), do not restart them automatically, or
    /// set `kvlock.quarantine-ms`.
    ///
    /// The price: while one replica is down or cut off, no lock is granted, and held locks are lost when
    /// their leases end. The same is true after a failover, until the former primary is back as a replica.
    ///
    /// `there_are` is needed because a primary lists only the replicas that follow it at the moment. A
    /// primary that is cut off from all its replicas would list none. The client also reads that list with
    /// each check. A replica that it has seen once counts from then on, even after the replica is gone. So a
    /// replica can be added while clients run. To remove one for good, restart the clients.
    ///
    /// A replica that reconnects before the primary has dropped its old connection (`repl-timeout` at most)
    /// is listed twice. Until the old entry disappears nothing is confirmed, since that replica's
    /// acknowledgements could count twice.
    ///
    /// In a cluster each master has its own replicas: at least `there_are`. The replicas that were seen are
    /// remembered for each master.
    ///
    /// Replaces [`min_replicas`](Self::min_replicas). Too few confirmations have the same effect as there.
    /// The user (ACL) needs the right to `WAIT` and `ROLE`.
    pub fn all_replicas(mut self, there_are: u32, timeout: Duration) -> Self {
        let at_least = there_are.max(1);
        self.settings.replicas = Some(Replicas { at_least, timeout, all: true });
        self
    }

    /// Sets a resolver for host names, instead of the system's. Its trait is defined by redis-rs. All
    /// addresses of a name are tried. The next attempt starts when the one before has failed, or after a
    /// quarter of a second.
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

    /// Sets the provider of credentials, for example tokens of Microsoft Entra ID or IAM. The client logs in
    /// with them, and again whenever the provider supplies new ones. Sentinels use the login of their
    /// address.
    #[cfg(feature = "token-based-authentication")]
    pub fn credentials_provider(
        mut self,
        provider: impl redis::StreamingCredentialsProvider + 'static,
    ) -> Self {
        self.settings.transport.set_credentials_provider(provider);
        self
    }

    /// Sets the clock that measures leases. For tests; [`Clock`] has an example.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }
}
