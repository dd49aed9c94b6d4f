//! Tasks that acquire, hold and release locks, and take down what they see, while something else
//! happens to the cluster.

use super::{FAILOVER, meanwhile, soon};
use harness::checker::{Limits, assert_correct};
use harness::history::{CallId, Outcome, Recorder, Request};
use harness::random::Random;
use harness::wait;
use kvlock::{Client, Error, Guard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// How many tasks each client has.
const TASKS: usize = 6;

pub(super) struct Load {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) grants: usize,
    /// Holds that were lost.
    pub(super) losses: u64,
}

struct Shared {
    keys: Vec<String>,
    lease: Duration,
    recorder: Recorder,
    over: AtomicBool,
    /// How many grants each task has had.
    grants: Vec<AtomicU64>,
    losses: AtomicU64,
}

impl Load {
    /// Begins. The clients all have the same lease.
    pub(super) fn start(clients: &[Client], keys: &[String]) -> Self {
        let count = clients.len() * TASKS;
        let shared = Arc::new(Shared {
            keys: keys.to_vec(),
            lease: Duration::from_secs(10),
            recorder: Recorder::new(),
            over: AtomicBool::new(false),
            grants: (0..count).map(|_| AtomicU64::new(0)).collect(),
            losses: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        for task in 0..count {
            tasks.spawn(work(clients[task % clients.len()].clone(), shared.clone(), task));
        }
        Self { shared, tasks }
    }

    /// Every single task gets a lock from now on, several times: nobody is left waiting.
    pub(super) fn wait_for_progress(&self) {
        let now = || self.shared.grants.iter().map(|grants| grants.load(Ordering::SeqCst));
        let before: Vec<u64> = now().collect();
        wait::until("every task gets on", 2 * FAILOVER, || {
            let stuck: Vec<usize> = now()
                .zip(&before)
                .enumerate()
                .filter_map(|(task, (now, before))| (now < before + 3).then_some(task))
                .collect();
            if stuck.is_empty() { Ok(()) } else { Err(format!("tasks {stuck:?} have not")) }
        });
    }

    /// Ends it; everybody ends soon. What they saw could be that of correct locks.
    pub(super) async fn end(mut self) -> Seen {
        self.shared.over.store(true, Ordering::SeqCst);
        while let Some(done) = soon(self.tasks.join_next()).await {
            done.unwrap();
        }
        // How fast it is while nodes are down is not the question here.
        let limits = Limits { prompt: 4 * FAILOVER, ..Limits::default() };
        let calls = self.shared.recorder.calls();
        meanwhile(|| assert_correct(&calls, &limits));
        let granted =
            calls.iter().filter(|call| matches!(call.answer, Some((_, Outcome::Granted { .. }))));
        Seen { grants: granted.count(), losses: self.shared.losses.load(Ordering::SeqCst) }
    }
}

async fn work(client: Client, shared: Arc<Shared>, task: usize) {
    let mut random = Random::new(1).part(task as u64);
    let mut turn = 0_u64;
    while !shared.over.load(Ordering::SeqCst) {
        turn += 1;
        // Half of all turns are on the first two keys, so that somebody is waiting.
        let of_all = if random.percent(50) { 2 } else { shared.keys.len() };
        let key = &shared.keys[random.below(of_all as u64) as usize];
        let owner = format!("{task}:{turn}");
        let taken = shared.acquire(&client, key, &owner).await;
        let Some((guard, call)) = taken else { continue };
        shared.grants[task].fetch_add(1, Ordering::SeqCst);
        // Some work, that looks what it believes.
        for _ in 0..random.below(3) {
            shared.looks(&guard, call);
            let _any = client.lock(key).info().await;
        }
        shared.looks(&guard, call);
        shared.release(guard, key, &owner).await;
    }
}

impl Shared {
    async fn acquire(&self, client: &Client, key: &str, owner: &str) -> Option<(Guard, CallId)> {
        let request = Request::Acquire { lease: self.lease, timeout: Some(Duration::ZERO) };
        let call = self.recorder.sent(key, owner, request);
        match client.lock(key).acquire().await {
            Ok(guard) => {
                let token = guard.token().value();
                self.recorder.answered(call, Outcome::Granted { token, holds: 1 });
                Some((guard, call))
            }
            // Given back by now, or in a moment.
            Err(Error::NotReplicated { .. }) => {
                self.recorder.answered(call, Outcome::Unknown);
                None
            }
            Err(trouble) => panic!("{owner} on {key}: {trouble}"),
        }
    }

    /// Takes down until when the guard says that it holds.
    fn looks(&self, guard: &Guard, call: CallId) {
        let now = self.recorder.now();
        if !guard.is_lost() {
            self.recorder.believed(call, now);
        }
    }

    async fn release(&self, guard: Guard, key: &str, owner: &str) {
        let call = self.recorder.sent(key, owner, Request::Release);
        let outcome = match guard.release().await {
            Ok(()) => Outcome::Released { left: 0 },
            Err(trouble) if trouble.is_lost() => {
                self.losses.fetch_add(1, Ordering::SeqCst);
                Outcome::Refused
            }
            // It goes on in the background.
            Err(trouble) if trouble.is_retryable() => Outcome::Unknown,
            Err(trouble) => panic!("{owner} on {key}: {trouble}"),
        };
        self.recorder.answered(call, outcome);
    }
}
