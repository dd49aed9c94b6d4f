//! Failovers that somebody asked for, under load.

use crate::seen::Seen;
use crate::setting::Setting;
use harness::proxy::Proxy;
use harness::site::Site;
use harness::{Server, Value, cmd, observe, wait};
use kvlock::{Client, Error, Guard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const LOCKS: usize = 2;
const TASKS: usize = 6;

/// How often the roles change in a try.
const CHANGES: usize = 3;

/// How long anything may take that must happen.
const SOON: Duration = Duration::from_secs(60);

/// A lock under load, and who believes that it is his.
#[derive(Debug, Default)]
struct Lock {
    holders: Mutex<Vec<Arc<Mutex<Option<Guard>>>>>,
    last_token: AtomicU64,
    granted: AtomicU64,
    doubled: AtomicU64,
    lost: AtomicU64,
    tokens_back: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lock {
    /// Works under the lock for a moment.
    async fn hold(&self, guard: Guard, time: Duration) {
        let token = guard.token().value();
        let own = Arc::new(Mutex::new(Some(guard)));
        {
            let mut holders = locked(&self.holders);
            self.granted.fetch_add(1, Ordering::SeqCst);
            let believes =
                |slot: &Mutex<Option<Guard>>| locked(slot).as_ref().is_some_and(|g| !g.is_lost());
            let others = holders.iter().filter(|other| believes(other)).count() as u64;
            if others > 0 && believes(&own) {
                self.doubled.fetch_add(1, Ordering::SeqCst);
            }
            if self.last_token.fetch_max(token, Ordering::SeqCst) >= token {
                self.tokens_back.fetch_add(1, Ordering::SeqCst);
            }
            holders.push(own.clone());
        }
        tokio::time::sleep(time).await;
        // From here on nobody believes it any more.
        let guard = locked(&own).take();
        locked(&self.holders).retain(|other| !Arc::ptr_eq(other, &own));
        let Some(guard) = guard else { return };
        if matches!(guard.release().await, Err(Error::Lost)) {
            self.lost.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Tasks that take locks in turns.
struct Load {
    locks: Arc<[Lock; LOCKS]>,
    over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Load {
    fn start(clients: &[Client], runtime: &Runtime, time: Duration) -> Self {
        let locks = Arc::<[Lock; LOCKS]>::default();
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (client, locks) = (clients[task % clients.len()].clone(), locks.clone());
            let over = over.clone();
            let work = async move {
                let number = task % LOCKS;
                while !over.load(Ordering::SeqCst) {
                    let lock = client.lock(format!("k{number}"));
                    match lock.acquire_within(Duration::from_secs(1)).await {
                        Ok(Some(guard)) => locks[number].hold(guard, time).await,
                        Ok(None) => {}
                        Err(trouble) => {
                            assert!(trouble.is_retryable(), "{trouble}");
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                    }
                }
            };
            tasks.spawn_on(work, runtime.handle());
        }
        Self { locks, over, tasks }
    }

    fn granted(&self) -> u64 {
        self.locks.iter().map(|lock| lock.granted.load(Ordering::SeqCst)).sum()
    }

    /// Waits until more has been granted.
    fn goes_on(&self) {
        let before = self.granted();
        wait::until("locks are granted", SOON, || match self.granted() {
            now if now >= before + 20 => Ok(()),
            now => Err(format!("{now}, and {before} before")),
        });
    }

    fn end(mut self, runtime: &Runtime) -> Seen {
        self.over.store(true, Ordering::SeqCst);
        runtime.block_on(async {
            while let Some(done) = self.tasks.join_next().await {
                done.expect("a task");
            }
        });
        let mut seen = Seen::default();
        for lock in self.locks.iter() {
            let read = |number: &AtomicU64| number.load(Ordering::SeqCst);
            seen.granted += read(&lock.granted);
            seen.double_grants += read(&lock.doubled);
            seen.lost += read(&lock.lost);
            seen.tokens_back += read(&lock.tokens_back);
        }
        seen
    }
}

/// `FAILOVER` again and again, with leases of 100 ms. The clients reach whichever is the primary at
/// one address.
pub(crate) fn coordinated(setting: Setting, runtime: &Runtime) -> Seen {
    const LEASE: Duration = Duration::from_millis(100);
    let options = setting.options(LEASE);
    let first = options.clone().start();
    let second = options.replica_of(&first).start();
    observe::wait_for_replica(&mut first.connect(), &mut second.connect());
    let address = Proxy::new();
    address.lead_to(&first);
    let client = || async {
        let builder = setting.builder(1).lease(LEASE).reply_timeout(Duration::from_secs(1));
        let url = format!("redis://127.0.0.1:{}/", address.port());
        builder.connect(url).await.expect("the primary answers")
    };
    let clients = [runtime.block_on(client()), runtime.block_on(client())];
    let load = Load::start(&clients, runtime, Duration::from_millis(10));
    load.goes_on();
    let mut pair: [&Server; 2] = [&first, &second];
    for _ in 0..CHANGES {
        let [before, after] = pair;
        wait::until("the failover begins", SOON, || {
            let answer = before.connect().call(cmd!["FAILOVER", "TIMEOUT", 10_000]);
            if answer.is_error() { Err(answer.to_string()) } else { Ok(()) }
        });
        wait::until("the roles have changed", SOON, || {
            let role = |server: &Server| observe::info_field(&mut server.connect(), "role");
            let roles = (role(before), role(after));
            let state = observe::info_field(&mut before.connect(), "master_failover_state");
            if roles == (Some("slave".into()), Some("master".into())) {
                Ok(())
            } else {
                Err(format!("{roles:?} {state:?}"))
            }
        });
        address.lead_to(after);
        observe::wait_for_replica_link(&mut before.connect());
        load.goes_on();
        pair = [after, before];
    }
    let mut seen = load.end(runtime);
    for server in [&first, &second] {
        server.assert_alive();
        let panics = observe::info_number(&mut server.connect(), "kvlock_caught_panics");
        assert_eq!(panics, 0);
    }
    // As long as writes are paused nothing is renewed.
    if seen.lost > 0 {
        let note =
            "leases of 100 ms were over before they could be renewed, and their holders told";
        seen.notes.insert(note.to_owned());
    }
    seen
}

/// Each server is shut down in order and started again: the replicas first, and the primary after
/// the Sentinels have made another one.
pub(crate) fn rolling(setting: Setting, runtime: &Runtime) -> Seen {
    const LEASE: Duration = Duration::from_secs(3);
    let options = setting.options(LEASE);
    let site = Site::start(&[options.clone(), options.clone(), options]);
    let client = || async {
        setting.builder(2).lease(LEASE).connect(site.url()).await.expect("the primary answers")
    };
    let clients = [runtime.block_on(client()), runtime.block_on(client())];
    let load = Load::start(&clients, runtime, Duration::from_millis(10));
    load.goes_on();
    let first = site.primary();
    let again = |number: usize| {
        site.server(number).shut_down();
        site.server(number).restart();
        observe::wait_for_replica_link(&mut site.server(number).connect());
    };
    (0..site.size()).filter(|number| *number != first).for_each(again);
    load.goes_on();
    let after = site.fail_over();
    site.wait_for_role(first, "slave");
    site.wait_for_replicas(after, 2);
    load.goes_on();
    again(first);
    load.goes_on();
    let seen = load.end(runtime);
    let role = site.server(after).connect().run("ROLE");
    assert_eq!(role[0], Value::bulk("master"), "it stayed the primary");
    seen
}
