//! A lock that two clients may be granted: one by the first primary, and another by the primary that the
//! Sentinels name after a failover or a restart.

use super::TryResult;
use crate::setting::Setting;
use harness::clock::Clock;
use harness::site::Site;
use harness::{Options, observe};
use kvlock::{Builder, Client, Error, Guard};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::time::sleep;

/// The lease of locks that are held through a failover: longer than a failover takes.
pub(super) const LEASE: Duration = Duration::from_secs(12);

/// Longest time for an acquire that must succeed in the end.
const LONG: Duration = Duration::from_secs(120);

/// Number of replicas; the last one is promoted if possible.
pub(super) const REPLICAS: usize = 2;

/// The servers of one try, and the runtime of its clients.
pub(super) struct Stage {
    pub(super) site: Site,
    pub(super) setting: Setting,
    /// Number of the server that is the first primary.
    pub(super) before: usize,
    /// A separate runtime for each try, so that no task continues in the next try.
    pub(super) runtime: Runtime,
}

impl Stage {
    /// Starts a primary with its replicas for a setting. The replicas use the clock, if there is one.
    pub(super) fn start(setting: Setting, clock: Option<&Clock>) -> Self {
        Self::start_with(setting, setting.options(LEASE, REPLICAS as u32), clock)
    }

    /// Like [`start`](Self::start), with these options for the servers.
    pub(super) fn start_with(setting: Setting, options: Options, clock: Option<&Clock>) -> Self {
        let replica = clock.map_or_else(|| options.clone(), |clock| options.clone().clock(clock));
        let last = replica.clone().config("replica-priority", 1);
        let site = Site::start(&[options, replica, last]);
        let before = site.primary();
        let stage = Self { site, setting, before, runtime: Runtime::new().expect("a runtime") };
        stage.wait_for_replicas();
        // End the quarantine that may have begun when the primary started.
        observe::end_quarantine(&mut stage.site.server(before).connect());
        stage
    }

    pub(super) fn wait_for_replicas(&self) {
        self.site.wait_for_replicas(self.before, REPLICAS as i64);
    }

    fn connect(&self, builder: Builder, url: String) -> Client {
        self.runtime.block_on(builder.connect(url)).expect("the primary answers")
    }

    fn builder(&self) -> Builder {
        self.setting.builder(REPLICAS as u32).lease(LEASE).patience(Duration::from_secs(60))
    }

    /// A client connected to the first primary only. It does not follow a failover.
    pub(super) fn inside(&self) -> Client {
        self.connect(self.builder().reply_timeout(LONG), self.site.server(self.before).url())
    }

    /// A client that asks the Sentinels, so it follows a failover.
    pub(super) fn outside(&self) -> Client {
        self.connect(self.builder(), self.site.url())
    }

    /// Ends the try, and returns the result for these locks.
    pub(super) fn end(self, locks: &[Arc<Contest>]) -> TryResult {
        let mut seen = TryResult::default();
        for lock in locks {
            let token = |guard: &OnceLock<Guard>| guard.get().map(|guard| guard.token().value());
            let tokens = (token(&lock.inside), token(&lock.outside));
            seen.granted += u64::from(tokens.0.is_some());
            seen.doubled |= lock.doubled.load(Ordering::SeqCst);
            // A grant of the replaced primary must have the smaller token.
            let is_back = tokens.1.is_some_and(|after| tokens.0.is_some_and(|it| it >= after));
            seen.tokens_back += u64::from(is_back);
        }
        self.runtime.shutdown_background();
        seen
    }
}

/// One lock, the guard that the first primary granted (`inside`), and the guard of another client, which
/// follows the Sentinels (`outside`).
#[derive(Debug)]
pub(super) struct Contest {
    key: &'static str,
    pub(super) inside: OnceLock<Guard>,
    pub(super) outside: OnceLock<Guard>,
    doubled: AtomicBool,
    over: AtomicBool,
}

impl Contest {
    pub(super) fn of(key: &'static str) -> Arc<Self> {
        let [doubled, over] = [false, false].map(AtomicBool::new);
        let [inside, outside] = [OnceLock::new(), OnceLock::new()];
        Arc::new(Self { key, inside, outside, doubled, over })
    }

    /// Records a guard in `side`, and whether now both clients believe that they hold the lock.
    fn granted(&self, side: &OnceLock<Guard>, guard: Guard) {
        side.set(guard).expect("once");
        let believes = |guard: &OnceLock<Guard>| guard.get().is_some_and(|guard| !guard.is_lost());
        if believes(&self.inside) && believes(&self.outside) {
            self.doubled.store(true, Ordering::SeqCst);
        }
    }

    /// Acquires the lock at the first primary, with a lease that is not renewed. Returns `false` if the
    /// request was refused, or was not confirmed because replicas were missing.
    pub(super) async fn take(&self, client: &Client) -> bool {
        match client.lock(self.key).fixed_lease(LEASE).try_acquire().await {
            Ok(guard) => self.granted(&self.inside, guard.expect("it is free")),
            Err(Error::NotReplicated { .. }) => {}
            Err(trouble) => assert_eq!(trouble.code(), Some("NOREPLICAS"), "{trouble}"),
        }
        self.inside.get().is_some()
    }

    /// Requests the lock from the first primary until it is granted or [`give_up`](Self::give_up) is called.
    /// The lease is renewed.
    pub(super) async fn insist(self: Arc<Self>, client: Client) {
        while !self.over.load(Ordering::SeqCst) {
            match client.lock(self.key).try_acquire().await {
                Ok(Some(guard)) => return self.granted(&self.inside, guard),
                Ok(None) | Err(Error::NotReplicated { .. }) => {}
                Err(trouble) => assert!(trouble.is_retryable(), "{trouble}"),
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) fn give_up(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Acquires the lock, and records its guard in `side`. Repeats the request after an error such as missing
    /// replicas. The lease is renewed.
    async fn acquire_on(&self, side: &OnceLock<Guard>, client: &Client) {
        let end = Instant::now() + LONG;
        loop {
            match client.lock(self.key).acquire_within(LONG).await {
                Ok(Some(guard)) => return self.granted(side, guard),
                Err(trouble) if trouble.is_retryable() && Instant::now() < end => {
                    sleep(Duration::from_millis(50)).await;
                }
                other => panic!("{}: {other:?}", self.key),
            }
        }
    }

    pub(super) async fn acquire_inside(&self, client: &Client) {
        self.acquire_on(&self.inside, client).await;
    }

    /// Acquires the lock from the primary that the Sentinels name.
    pub(super) async fn acquire(self: Arc<Self>, client: Client) {
        self.acquire_on(&self.outside, &client).await;
    }

    /// Tries for the given time to acquire the lock from the primary that the Sentinels name.
    pub(super) async fn try_outside(&self, client: &Client, within: Duration) {
        let guard = client.lock(self.key).acquire_within(within).await.expect("it answers");
        guard.into_iter().for_each(|guard| self.granted(&self.outside, guard));
    }
}
