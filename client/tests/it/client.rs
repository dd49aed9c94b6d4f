//! The client crate on real servers. In a separate package, so that the crate's features are checked without
//! these tests.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "these are tests: a panic is how one fails, and their numbers are small"
)]

mod bound;
mod cancel;
mod cluster;
mod dials;
mod election;
mod input;
mod limits;
mod lock;
mod loss;
mod multi;
mod once;
mod quorum;
mod replicated;
mod runtimes;
mod sentinel;
mod sharing;
mod stalls;
mod story;
mod telemetry;
mod tls;
mod trouble;
mod waiting;

use assert_matches::assert_matches;
use harness::proxy::Proxy;
use harness::{Connection, Server, Value, cmd, observe, wait};
use kvlock::{Builder, Client, Clock, Error, Guard, Lock};
use std::fmt::Debug;
use std::future::poll_fn;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Time limit of each step of a test.
const SOON: Duration = Duration::from_secs(20);

/// Time in which a reply would arrive, to show that none does.
const MOMENT: Duration = Duration::from_millis(500);

/// A lease longer than any test. As long as a test does not change the lease or the clock, the lease does not
/// end, and is not due for renewal.
const LONG: Duration = Duration::from_secs(600);

/// Work that is done under a lock.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task that waits for a lock.
type Waiter = JoinHandle<Result<Guard, Error>>;

/// A clock that a test advances, as after a suspend of the machine. Timers do not advance with it.
#[derive(Clone, Debug)]
struct Suspended {
    start: Instant,
    slept: Arc<AtomicU64>,
}

impl Suspended {
    fn new() -> Self {
        Self { start: Instant::now(), slept: Arc::default() }
    }

    /// A client whose leases are renewed soon after a suspend of half of [`LONG`], and lost only by a longer
    /// one. So no lease is lost because the machine is slow.
    fn renewing(&self) -> Builder {
        Client::builder().lease(LONG).clock(self.clone())
    }

    fn suspend(&self, duration: Duration) {
        self.slept.fetch_add(u64::try_from(duration.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for Suspended {
    fn now(&self) -> Duration {
        self.start.elapsed() + Duration::from_millis(self.slept.load(Ordering::SeqCst))
    }
}

/// Begins `run` with some work, and then suspends the machine past the leases. Nothing else looks at a lease before
/// the work would go on. Returns the state of `run`, and whether the work went on.
async fn suspend_during<F: Future>(
    clock: &Suspended,
    run: impl FnOnce(Work) -> F,
) -> (Poll<F::Output>, bool) {
    let (go_on, gone_on) = tokio::sync::oneshot::channel();
    let wrote = Arc::new(AtomicBool::new(false));
    let writes = wrote.clone();
    let mut run = Box::pin(run(Box::pin(async move {
        gone_on.await.unwrap();
        writes.store(true, Ordering::SeqCst);
    })));
    let mut poll = async || poll_fn(|context| Poll::Ready(run.as_mut().poll(context))).await;
    assert!(poll().await.is_pending());
    clock.suspend(Duration::from_secs(40));
    go_on.send(()).unwrap();
    (poll().await, wrote.load(Ordering::SeqCst))
}

/// A server, a client of it, and a control connection. A test ends with `assert_nothing_is_left`.
struct Stage {
    server: Server,
    client: Client,
    control: Connection,
}

impl Stage {
    async fn set() -> Self {
        Self::with(Client::builder()).await
    }

    async fn with(builder: Builder) -> Self {
        Self::of(Server::start(), builder).await
    }

    async fn of(server: Server, builder: Builder) -> Self {
        let client = builder.connect(server.url()).await.unwrap();
        Self { control: server.connect(), server, client }
    }

    /// Like [`with`](Self::with), with a proxy between the client and the server.
    async fn behind(builder: Builder) -> (Self, Proxy) {
        let mut stage = Self::set().await;
        let proxy = Proxy::before(&stage.server);
        stage.client = builder.connect(proxy.url()).await.unwrap();
        (stage, proxy)
    }

    /// One more client of the server.
    async fn other(&self) -> Client {
        Client::connect(self.server.url()).await.unwrap()
    }

    /// Another owner takes the lock for a long time.
    fn taken(&mut self, key: &str) {
        let reply = self.control.call(cmd!["LOCK.ACQUIRE", key, "somebody", 600_000]);
        assert_eq!(reply[1], Value::Integer(1), "{reply}");
    }

    /// Starts a waiter and returns it once it is queued.
    fn in_line(&mut self, lock: Lock) -> Waiter {
        let key = lock.key().to_owned();
        let info = self.control.call(cmd!["LOCK.INFO", &*key]);
        let waiter = waits(&lock);
        let before = info.field("waiters").integer();
        observe::wait_for_waiters(&mut self.control, key, before + 1);
        waiter
    }

    fn owner_of(&mut self, key: &str) -> Option<String> {
        let info = self.control.call(cmd!["LOCK.INFO", key]);
        let owner = info.field("owner");
        (!owner.is_nil()).then(|| owner.text())
    }

    fn is_free(&mut self, key: &str) -> bool {
        self.control.call(cmd!["EXISTS", key]) == Value::Integer(0)
    }

    fn wait_until_free(&mut self, key: &str) {
        wait::until("the lock is free", SOON, || {
            if self.is_free(key) { Ok(()) } else { Err(format!("{:?}", self.owner_of(key))) }
        });
    }

    /// Kills the server and restarts it from its disk.
    fn restart(&mut self) {
        self.server.restart();
        self.control = self.server.connect();
    }

    /// Waits until the first session has a reader. Returns the id of the reader's connection.
    fn reader(&mut self) -> i64 {
        wait::until("it is read", SOON, || {
            let list = self.control.run("SESSION.LIST");
            match list[0].field("reader") {
                Value::Integer(reader) => Ok(*reader),
                other => Err(other.to_string()),
            }
        })
    }

    /// Cuts the reader's connection, and waits for the next one.
    fn cut_the_reader(&mut self) {
        let before = self.reader();
        self.control.call(cmd!["CLIENT", "KILL", "ID", before]);
        wait::until("it is read anew", SOON, || match self.reader() {
            now if now != before => Ok(()),
            now => Err(now.to_string()),
        });
    }

    /// Asserts that no client waits, that all locks left belong to `somebody`, and that only readers of
    /// sessions are blocked.
    fn assert_nothing_is_left(&mut self) {
        let control = &mut self.control;
        wait::until("nothing is left", SOON, || {
            let keys = control.run("KEYS *");
            let mut keys: Vec<String> = keys.elements().iter().map(Value::text).collect();
            keys.retain(|key| {
                let elses = control.call(cmd!["HEXISTS", key, "somebody"]);
                !key.starts_with("kvlock:") && elses != Value::Integer(1)
            });
            let waiters = control.run("LOCK.LIST COUNT 10");
            let sessions = observe::info_number(control, "kvlock_sessions");
            let blocked = observe::info_number(control, "blocked_clients") - sessions;
            if keys.is_empty() && waiters.elements().is_empty() && blocked <= 0 {
                Ok(())
            } else {
                Err(format!("keys {keys:?}, waiters {waiters}, {blocked} blocked"))
            }
        });
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() && self.server.is_running() {
            self.assert_nothing_is_left();
        }
    }
}

/// Number of times that a server has run a command.
fn calls(control: &mut Connection, command: &str) -> usize {
    let calls = observe::info_field(control, &format!("cmdstat_{command}"));
    let calls = calls.as_deref().and_then(|c| c.strip_prefix("calls=")?.split(',').next());
    calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
}

/// Waits until `look` returns more than `than`.
fn wait_for_more<T: PartialOrd + Debug>(than: T, mut look: impl FnMut() -> T) {
    wait::until("it is more", SOON, || match look() {
        seen if seen > than => Ok(()),
        seen => Err(format!("{seen:?}, not more than {than:?}")),
    });
}

/// Waits for `more` renewals.
fn wait_for_renewals(control: &mut Connection, more: usize) {
    let before = calls(control, "lock.renew");
    wait_for_more(before + more - 1, || calls(control, "lock.renew"));
}

/// Waits until the rest of a lock's lease on the given server is longer than `more_than` milliseconds.
fn wait_for_lease(server: &Server, key: &[u8], more_than: i64) {
    let mut there = server.connect();
    wait_for_more(more_than, || there.call(cmd!["PTTL", key]).integer());
}

/// Awaits a future with a time limit.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("it comes soon")
}

/// Awaits a future with a time limit, and unwraps its result.
#[track_caller]
fn ok<T, E: Debug>(what: impl Future<Output = Result<T, E>>) -> impl Future<Output = T> {
    let at = Location::caller();
    async move { soon(what).await.unwrap_or_else(|trouble| panic!("{at}: {trouble:?}")) }
}

/// Starts a task that acquires a lock.
fn waits(lock: &Lock) -> Waiter {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await })
}

/// Acquires a lock, and releases it.
async fn visit(lock: &Lock) {
    ok(ok(lock.acquire()).await.release()).await;
}

/// Checks that a waiter gets the lock, and releases it.
async fn assert_served(waiter: Waiter) {
    ok(ok(waiter).await.unwrap().release()).await;
}
