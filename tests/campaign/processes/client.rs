//! A client process: takes locks with the crate `kvlock`, works under them, and says when it
//! believes to hold which.

use super::role::Role;
use super::said::{End, Grant, Said, now};
use super::store::{Cell, Till, next};
use harness::random::Random;
use kvlock::{Client, Clock, Error, Guard, Lock};
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep};

/// How often it looks at a guard while there is nothing else to do.
const BEAT: Duration = Duration::from_millis(5);

/// Of a step of work, what lies between the look at the guard and the write.
const THOUGHT: Duration = Duration::from_millis(1);

/// Says it in one write: a process that is killed has said it or not.
fn say(said: &Said) {
    let line = serde_json::to_string(said).expect("it can be said") + "\n";
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).expect("somebody listens");
}

/// A clock that does not run as time does, as no clock should.
#[derive(Debug)]
struct Wrong {
    percent: u32,
}

impl Clock for Wrong {
    fn now(&self) -> Duration {
        // Far from the start, where a client may take a moment for long ago.
        Duration::from_secs(1000) + Duration::from_nanos(now()) * self.percent / 100
    }
}

/// Does what the role says, until it is killed.
pub(super) fn run(role: Role) {
    let threads = usize::try_from(role.threads).expect("a number of threads");
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(threads).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = connect(&role).await;
        let role = Arc::new(role);
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..role.tasks {
            let random = Random::new(role.seed).part(task);
            let till = (role.store > 0).then(|| Till::open(role.store));
            let worker = Worker { client: client.clone(), role: role.clone(), random, till };
            tasks.spawn(worker.work());
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("a task goes on for ever");
        }
    });
}

async fn connect(role: &Role) -> Client {
    let mut builder = Client::builder();
    if role.clock != 100 {
        builder = builder.clock(Wrong { percent: u32::try_from(role.clock).expect("percent") });
    }
    let client = builder.connect(role.address.as_str()).await.expect("the server answers");
    // The owners of a client differ in the number only.
    let name = format!("name-of-{}", std::process::id());
    let guard = client.lock(name).try_acquire().await.expect("it answers").expect("it is free");
    let (uuid, _) = guard.owner().split_once(':').expect("a client and a number");
    say(&Said::Ready { client: uuid.to_owned() });
    guard.release().await.expect("it was held");
    client
}

/// A task that takes one lock after the other.
struct Worker {
    client: Client,
    role: Arc<Role>,
    random: Random,
    till: Option<Till>,
}

/// A lock that is held, and what has been said of it.
struct Tenure {
    guard: Guard,
    grant: Grant,
    until: u64,
    /// When the guard was last asked, and said that the lock is held.
    looked: u64,
    renewed: bool,
}

impl Worker {
    async fn work(mut self) {
        let role = self.role.clone();
        let keys: Vec<&str> = role.keys.split(',').collect();
        loop {
            let key = *self.random.pick(&keys);
            let renewed = !self.random.percent(role.fixed);
            let part = role.lease_ms / 10 + self.random.below(role.lease_ms / 5);
            let lock = self.client.lock(key);
            let lock = if renewed {
                lock.lease(Duration::from_millis(role.lease_ms))
            } else {
                lock.fixed_lease(Duration::from_millis(part))
            };
            match self.acquire(&lock).await {
                Ok(Some(guard)) => self.hold(key, guard, renewed).await,
                Ok(None) => {}
                Err(trouble) => {
                    assert!(trouble.is_retryable(), "{trouble}");
                    say(&Said::Trouble { what: trouble.to_string() });
                }
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
        if got.is_none() {
            let limit_ns = u64::try_from(limit.as_nanos()).expect("not for centuries");
            say(&Said::Waited { limit_ns, took_ns: now() - asked });
        }
        Ok(got)
    }

    async fn hold(&mut self, key: &str, guard: Guard, renewed: bool) {
        let from = now();
        let grant = Grant { key: key.to_owned(), token: guard.token().value() };
        let until = believed_until(&guard).unwrap_or(from);
        let date = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let date_ms = u64::try_from(date.as_millis()).expect("not for centuries");
        let owner = guard.owner().to_owned();
        say(&Said::Holds { grant: grant.clone(), owner, from, until, date_ms });
        let mut tenure = Tenure { guard, grant, until, looked: from, renewed };
        let (lost, cell) = self.work_under(&mut tenure).await;
        let Tenure { guard, grant, looked, .. } = tenure;
        let why = match (lost, renewed) {
            (false, _) => End::Release,
            (true, true) => End::Lost,
            (true, false) => End::Over,
        };
        // Before the release is on its way.
        say(&Said::Ends { grant: grant.clone(), at: now(), looked, why });
        if !lost {
            match guard.release().await {
                Ok(()) | Err(Error::Lost) => {}
                Err(trouble) => {
                    assert!(trouble.is_retryable(), "{trouble}");
                    say(&Said::Trouble { what: trouble.to_string() });
                }
            }
            return;
        }
        if renewed {
            self.ask_whether_lost(&grant).await;
        }
        if let (Some(till), Some(cell)) = (&mut self.till, cell)
            && self.role.careless > 0
        {
            let taken = till.write_on(&grant, cell, self.role.careless);
            say(&Said::Careless { grant, tries: self.role.careless, taken });
        }
    }

    /// Holds it as long as it is to be held, and works meanwhile. Returns whether it was lost, and
    /// what was last written to the store.
    async fn work_under(&mut self, tenure: &mut Tenure) -> (bool, Option<Cell>) {
        let end = Instant::now() + self.time_to_hold(tenure.renewed);
        let mut block = self.role.block_ms > 0 && self.random.percent(50);
        let mut cell = None;
        loop {
            if !tenure.is_held() {
                return (true, cell);
            }
            if Instant::now() >= end {
                return (false, cell);
            }
            if let Some(till) = &mut self.till {
                let next = next(till.read(&tenure.grant));
                sleep(THOUGHT).await;
                cell = Some(next);
                if !till.write(&tenure.grant, next) {
                    let (grant, looked) = (tenure.grant.clone(), tenure.looked);
                    say(&Said::Refused { grant, looked });
                }
            } else if block {
                // As no task should.
                std::thread::sleep(Duration::from_millis(self.role.block_ms));
                block = false;
            } else {
                let left = end.saturating_duration_since(Instant::now());
                sleep(left.min(BEAT)).await;
            }
        }
    }

    fn time_to_hold(&mut self, renewed: bool) -> Duration {
        let role = &self.role;
        if !renewed || self.random.percent(role.long) {
            return Duration::from_millis(role.lease_ms * 2);
        }
        match role.hold_ms {
            // Until it is lost, or the process dies.
            u64::MAX => Duration::from_secs(86_400),
            most => Duration::from_millis(self.random.below(most)),
        }
    }

    /// The guard says that it is lost: does the server, too?
    async fn ask_whether_lost(&self, grant: &Grant) {
        if let Ok(info) = self.client.lock(&grant.key).info().await
            && info.token.is_some_and(|token| token.value() == grant.token)
        {
            say(&Said::FalseLoss { grant: grant.clone() });
        }
    }
}

impl Tenure {
    /// Asks the guard, and says what is new.
    fn is_held(&mut self) -> bool {
        let looking = now();
        if let Some(until) = believed_until(&self.guard)
            && self.renewed
            && until > self.until + NEWS
        {
            self.until = until;
            say(&Said::Until { grant: self.grant.clone(), until });
        }
        if self.guard.is_lost() {
            return false;
        }
        self.looked = looking;
        true
    }
}

/// A belief that has moved by less, in nanoseconds, was measured less exactly.
const NEWS: u64 = 1_000_000;

/// Until when the guard will say that the lock is held, if nothing happens; `None` if it is lost.
/// Not too late, and too early by no more than it takes to look.
fn believed_until(guard: &Guard) -> Option<u64> {
    const EXACT: u64 = 100_000;
    loop {
        let before = now();
        let left = guard.lease_left();
        let took = now() - before;
        if left.is_zero() {
            return None;
        }
        if took <= EXACT {
            return Some(before + u64::try_from(left.as_nanos()).expect("not for centuries"));
        }
    }
}
