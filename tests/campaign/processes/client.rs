//! A client process: acquires locks with the crate `kvlock`, and works while it holds them. For each grant, it
//! reports the time in which it believes that it holds the lock.

use super::messages::{Message, Role, Tenure, now};
use super::store::{Counters, Numbers, next};
use harness::random::Random;
use kvlock::{Client, Clock, Error, Guard, Lock};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::time::sleep;

/// Interval of checks of a guard while there is nothing else to do.
const BEAT: Duration = Duration::from_millis(5);

/// Duration of a step of work, between the check of the guard and the write.
const THOUGHT: Duration = Duration::from_millis(1);

/// Smaller changes of a belief are not reported: they are within the error of measurement.
const NEWS: Duration = Duration::from_millis(1);

/// Half an hour, longer than a run. If the client's date differs from the server's by more than this, the
/// test has set it wrong.
const FAR_MS: u64 = 1_800_000;

/// Counter of grants at a time when the client's date was wrong by more than [`FAR_MS`].
pub(super) const WRONG_DAY: &str = "grants on a day that is an hour wrong";

/// Writes a report at once, so that a killed process has written it completely or not at all.
fn send(message: &Message) {
    let line = serde_json::to_string(message).expect("it can be serialized") + "\n";
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).expect("somebody listens");
}

fn count(what: &str) {
    send(&Message::Count(what.to_owned()));
}

/// Counts an error that is expected when connections are cut. Panics if a retry cannot help.
fn let_be(trouble: &Error) {
    assert!(trouble.is_retryable(), "{trouble}");
    count("acquires and releases that failed, and were let be");
}

/// A clock that runs at a quarter of the real speed.
#[derive(Debug)]
struct Wrong;

impl Clock for Wrong {
    fn now(&self) -> Duration {
        // Not near zero: a client could subtract a duration from it.
        Duration::from_secs(1000) + now() / 4
    }
}

/// Runs the tasks of a role until the process is killed.
pub(super) fn run(role: Role) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(role.threads).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = connect(&role).await;
        let role = Arc::new(role);
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..role.tasks {
            let random = Random::new(role.seed).part(task);
            let store = role.store.map(Counters::open);
            let worker = Worker { client: client.clone(), role: role.clone(), random, store };
            tasks.spawn(worker.work());
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("a task goes on for ever");
        }
    });
}

async fn connect(role: &Role) -> Client {
    let builder = Client::builder();
    let builder = if role.wrong_clock { builder.clock(Wrong) } else { builder };
    let client = builder.connect(role.address.as_str()).await.expect("the server answers");
    // The owners of a client differ only in the number at their end.
    let name = format!("name-of-{}", std::process::id());
    let guard = client.lock(name).try_acquire().await.expect("it answers").expect("it is free");
    let (uuid, _) = guard.owner().split_once(':').expect("a client and a number");
    send(&Message::Ready(uuid.to_owned()));
    guard.release().await.expect("it was held");
    client
}

/// A task that acquires one lock after another.
struct Worker {
    client: Client,
    role: Arc<Role>,
    random: Random,
    store: Option<Counters>,
}

impl Worker {
    async fn work(mut self) {
        loop {
            let watched = !self.random.percent(self.role.fixed);
            let percent = 10 + self.random.below(20);
            let lease = Duration::from_millis(self.role.lease_ms);
            let lock = self.client.lock(self.random.pick(&self.role.keys));
            let lock = match watched {
                true => lock.lease(lease),
                false => lock.fixed_lease(lease.mul_f64(percent as f64 / 100.0)),
            };
            match self.acquire(&lock).await {
                Ok(Some(guard)) => self.hold(guard, watched).await,
                Ok(None) => count("waits that ended without the lock"),
                Err(trouble) => let_be(&trouble),
            }
        }
    }

    async fn acquire(&mut self, lock: &Lock) -> Result<Option<Guard>, Error> {
        if !self.random.percent(self.role.limited) {
            return lock.acquire().await.map(Some);
        }
        let limit = Duration::from_millis(1 + self.random.below(self.role.lease_ms));
        let asked = now();
        let got = lock.acquire_within(limit).await?;
        let took = now() - asked;
        if got.is_none() && took < limit {
            send(&Message::Violation(format!("Early: a wait of {limit:?} ended after {took:?}")));
        }
        Ok(got)
    }

    async fn hold(&mut self, guard: Guard, watched: bool) {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let from = now();
        let mut tenure = Tenure {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            key: String::from_utf8_lossy(guard.key()).into_owned(),
            token: guard.token().value(),
            watched,
            from,
            until: believed_until(&guard).unwrap_or(from),
            looked: from,
            released: None,
            lost: None,
            taken: 0,
        };
        send(&Message::Tenure(tenure.clone()));
        let date = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // A token is about the server's date in microseconds.
        if u128::from(tenure.token / 1000).abs_diff(date.as_millis()) > FAR_MS.into() {
            count(WRONG_DAY);
        }
        let (is_lost, written) = self.work_under(&guard, &mut tenure).await;
        let end = if is_lost { &mut tenure.lost } else { &mut tenure.released };
        *end = Some(now());
        if is_lost && watched {
            self.ask_whether_lost(&tenure).await;
            if let (Some(store), Some(numbers)) = (&mut self.store, written) {
                tenure.taken = store.write_on(&tenure, numbers, self.role.careless);
            }
        }
        // Reported before the release is sent.
        send(&Message::Tenure(tenure));
        if !is_lost
            && let Err(trouble) = guard.release().await
            && !trouble.is_lost()
        {
            let_be(&trouble);
        }
    }

    /// Works under the guard for the planned time, or until the lock is lost. Returns whether the lock was
    /// lost, and the numbers last sent to the store.
    async fn work_under(&mut self, guard: &Guard, tenure: &mut Tenure) -> (bool, Option<Numbers>) {
        let end = now() + self.time_to_hold(tenure.watched);
        let mut block = self.role.block_ms > 0 && self.random.percent(50);
        let mut written = None;
        loop {
            if !still_holds(guard, tenure) {
                return (true, written);
            }
            let left = end.saturating_sub(now());
            if left.is_zero() {
                return (false, written);
            }
            if let Some(store) = &mut self.store {
                let numbers = next(store.read(tenure));
                sleep(THOUGHT).await;
                written = Some(numbers);
                if !store.write(tenure, numbers) {
                    count("late writes of holders who had looked, refused");
                }
            } else if block {
                // Blocks the thread, as no task should.
                std::thread::sleep(Duration::from_millis(self.role.block_ms));
                block = false;
            } else {
                sleep(left.min(BEAT)).await;
            }
        }
    }

    fn time_to_hold(&mut self, watched: bool) -> Duration {
        let role = &self.role;
        if !watched || self.random.percent(role.long) {
            return Duration::from_millis(role.lease_ms * 2);
        }
        // Without a limit, the lock is held until it is lost or the process dies.
        let for_ever = Duration::from_secs(86_400);
        role.hold_ms.map_or(for_ever, |most| Duration::from_millis(self.random.below(most)))
    }

    /// After a guard has reported a loss, asks the server. Counts the case in which the server still has the
    /// grant.
    async fn ask_whether_lost(&self, tenure: &Tenure) {
        if let Ok(info) = self.client.lock(&tenure.key).info().await
            && info.token.is_some_and(|token| token.value() == tenure.token)
        {
            count("lost, while the server had it still");
        }
    }
}

/// Returns whether the guard still holds the lock. Reports a belief that has been extended.
fn still_holds(guard: &Guard, tenure: &mut Tenure) -> bool {
    let looking = now();
    if let Some(until) = believed_until(guard)
        && tenure.watched
        && until > tenure.until + NEWS
    {
        tenure.until = until;
        send(&Message::Tenure(tenure.clone()));
    }
    if guard.is_lost() {
        return false;
    }
    tenure.looked = looking;
    true
}

/// Time until which the guard will report that the lock is held, without a renewal; `None` if it is lost.
/// Never late; early by at most 100 µs.
fn believed_until(guard: &Guard) -> Option<Duration> {
    const EXACT: Duration = Duration::from_micros(100);
    loop {
        let before = now();
        let left = guard.lease_left();
        if left.is_zero() {
            return None;
        }
        if now() - before <= EXACT {
            return Some(before + left);
        }
    }
}
