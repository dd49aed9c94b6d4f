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

    /// Whether a lock that had to be waited for is confirmed with its full lease before its guard is
    /// handed out. Not by default: then that is done when it has been held for two thirds of a
    /// second, which spares a round trip, and those who hold it for less a command.
    ///
    /// A waiter is granted a lock for two seconds, so that one that has died costs no more. Without
    /// the confirmation the guard is believed in for that time, less the [`margin`](Self::margin), until
    /// the first renewal: who blocks all threads of the runtime for longer, right after the acquire,
    /// loses the lock, and so does who cannot reach the server for that long. Confirmed all the same are [fixed leases](crate::Lock::fixed_lease), what
    /// [replicas](Self::min_replicas) have to confirm, margins of more than half a second, and what
    /// was waited for so long that the clocks may differ by a second.
    ///
    /// Confirm where a quarantine keeps grants over failovers: a primary that was replaced, and goes on
    /// granting for a few seconds, would grant what it has offered once more when the two seconds are over.
    pub fn confirm(mut self, confirm: bool) -> Self {
        self.settings.confirm = confirm;
        self
    }

    /// How long after this client has gone, or cannot reach the server any more, its
    /// [bound](crate::Lock::bound) locks are free: 10 s by default, 100 ms to a minute. A heartbeat goes
    /// to the server every tenth of it.
    ///
    /// Make it longer than the longest pause of the process, and than a restart of the server: bound
    /// locks are lost after a silence of nine tenths of it, less the [`margin`](Self::margin).
    pub fn session_ttl(mut self, ttl: Duration) -> Self {
        self.settings.session_ttl = ttl;
        self
    }

    /// For tests: when a session of which nothing is wanted is closed.
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

    /// How long a waiting acquire puts up with a server that cannot be reached, is loading, or is
    /// being replaced, before it gives the error: 30 s by default. Zero gives it at once. Meanwhile the client
    /// tries to connect at intervals that grow to a second at most, once for all that wait.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// Lets at least that many replicas confirm each grant and each renewal, within that time; by
    /// default none is asked. Zero replicas are none.
    ///
    /// A grant that falls short is released again, and the acquire is
    /// [`NotReplicated`](crate::Error::NotReplicated). A renewal that falls short is tried again, and if
    /// that goes on the lock is lost when its lease ends. An answer that the lock is gone counts at once,
    /// whatever replicas confirm. Costs one more round trip for each
    /// acquire, and a connection on which the server confirms one after the other: at each node a
    /// client acquires no more locks in a second than its replicas answer in turn, a thousand if
    /// that takes a millisecond. With a replica down, so many held locks that their renewals come in
    /// more than 25 batches of 500 wait for each other's timeouts. Several clients share that load.
    /// The server counts connections: a replica that reconnects while the primary still waits for its
    /// old connection, `repl-timeout` at most, may answer for two.
    /// What it does and does not guarantee:
    /// [Failover](crate#failover).
    pub fn min_replicas(mut self, at_least: u32, timeout: Duration) -> Self {
        let replicas = Replicas { at_least, timeout, all: false };
        self.settings.replicas = (at_least > 0).then_some(replicas);
        self
    }

    /// Lets *all* replicas confirm each grant and each renewal, within that time: `there_are` of
    /// them, or more if the primary has more. At least one.
    ///
    /// With this no grant that you were told of is lost in a failover, whichever replica is
    /// promoted, and a primary that was replaced without knowing it grants and renews nothing. The
    /// condition: a primary that dies does not come back without its data before it is replaced,
    /// because its replicas would copy the empty data set. Let servers keep their data
    /// (`appendfsync always`), do not restart them automatically, or set `kvlock.quarantine-ms`. The
    /// price: while one replica is down or cut off, nobody is granted a lock, and those who hold one
    /// lose it when its lease ends. Also after a failover, until the former primary is back as a
    /// replica.
    ///
    /// Say how many replicas there are, because nobody else knows: a primary tells only of those
    /// that follow it at the moment, and one that is cut off from all of them would tell of none.
    /// That is asked with each check all the same, and a replica that this client has seen once
    /// counts from then on, also when it is gone. So a replica may be added while clients run;
    /// to take one away for good, start them anew. One that reconnects while the primary still waits
    /// for its old connection, `repl-timeout` at most, is told of twice by the primary: nothing is
    /// confirmed until that is over, since its answers could be taken for those of two.
    ///
    /// In a cluster each master has replicas of its own: `there_are` at least, and what was seen of
    /// one counts for that one.
    ///
    /// Takes the place of [`min_replicas`](Self::min_replicas), and does with what falls short the
    /// same. The user needs the right to `WAIT` and `ROLE`.
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
