//! A service that takes locks all the time, through a Sentinel failover every ten seconds: nobody
//! who waits may be forgotten, no lock may be left behind and no task may hang.

use crate::setting::Setting;
use harness::random::{Random, Seed};
use harness::site::Site;
use harness::{Connection, observe};
use kvlock::{Client, Error};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const LEASE: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_secs(10);

const WORKERS: usize = 12;
const KEYS: usize = 3;

/// Whoever was not served for so long is stuck: far more than a failover, and a lease that a lost
/// release leaves behind.
const STUCK: Duration = Duration::from_secs(60);

/// How often each worker had its turn.
type Turns = Arc<Vec<AtomicU64>>;

async fn work(
    client: Client,
    number: usize,
    turns: Turns,
    over: Arc<AtomicBool>,
    mut random: Random,
) {
    while !over.load(Ordering::SeqCst) {
        let lock = client.lock(format!("k{}", number % KEYS));
        let lock = if number.is_multiple_of(4) { lock.shared() } else { lock };
        match lock.acquire().await {
            Ok(guard) => {
                turns[number].fetch_add(1, Ordering::SeqCst);
                let time = Duration::from_millis(1 + random.below(99));
                let done = guard.run_until_lost(tokio::time::sleep(time)).await;
                assert!(done.as_ref().err().is_none_or(Error::is_lost), "{done:?}");
                if let Err(trouble) = guard.release().await {
                    assert!(trouble.is_lost() || trouble.is_retryable(), "{trouble}");
                }
            }
            Err(trouble) => assert!(trouble.is_retryable(), "{trouble}"),
        }
    }
}

/// Runs it for that long.
pub(crate) fn run(time: Duration, seed: &Seed) -> ExitCode {
    let runtime = Runtime::new().expect("a runtime");
    let options = Setting::Default.options(LEASE);
    let site = Site::start(&[options.clone(), options.clone(), options]);
    let builder = Setting::Default.builder(2).lease(LEASE);
    let client = runtime.block_on(builder.connect(site.url())).expect("the primary answers");
    let turns: Turns = Arc::new((0..WORKERS).map(|_| AtomicU64::new(0)).collect());
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for number in 0..WORKERS {
        let random = Random::new(seed.number).part(number as u64);
        let work = work(client.clone(), number, turns.clone(), over.clone(), random);
        tasks.spawn_on(work, runtime.handle());
    }
    let (start, mut failovers, mut wrongs) = (Instant::now(), 0, Vec::new());
    let read = || turns.iter().map(|turns| turns.load(Ordering::SeqCst)).collect::<Vec<_>>();
    while start.elapsed() < time && wrongs.is_empty() {
        let begun = Instant::now();
        site.fail_over();
        failovers += 1;
        let before = read();
        let all = |now: &[u64]| before.iter().zip(now).all(|(before, now)| now > before);
        while !all(&read()) && begun.elapsed() < STUCK {
            std::thread::sleep(Duration::from_millis(10));
        }
        if !all(&read()) {
            wrongs.push(format!("failover {failovers}: had {before:?} turns, and {:?}", read()));
        }
        std::thread::sleep(EVERY.saturating_sub(begun.elapsed()));
    }
    over.store(true, Ordering::SeqCst);
    let ended = runtime.block_on(async {
        let all = async {
            while tasks.join_next().await.transpose()?.is_some() {}
            Ok(())
        };
        let ended: Result<Result<(), tokio::task::JoinError>, _> =
            tokio::time::timeout(STUCK, all).await;
        let settled = tokio::time::timeout(STUCK, client.settled()).await;
        (ended, settled)
    });
    match ended {
        (Ok(Ok(())), Ok(())) => {}
        other => wrongs.push(format!("tasks hang or failed: {other:?}")),
    }
    wrongs.extend(leftovers(&mut site.server(site.primary()).connect()));
    let total: u64 = read().iter().sum();
    println!(
        "{}: {failovers} failovers in {} s, {total} turns of {WORKERS} workers, {} wrongs",
        seed.origin(),
        start.elapsed().as_secs(),
        wrongs.len()
    );
    wrongs.iter().for_each(|wrong| println!("WRONG {wrong}"));
    if wrongs.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is still there when all have gone and the last lease is over.
fn leftovers(primary: &mut Connection) -> Vec<String> {
    let keys: Vec<String> = (0..KEYS).map(|number| format!("k{number}")).collect();
    let end = Instant::now() + STUCK;
    loop {
        let left = observe::left_behind(primary, &keys);
        if left.is_empty() || Instant::now() > end {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
