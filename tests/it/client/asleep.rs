//! A server that sleeps for longer than the lease, with the watchdog's renewals in its socket.

use super::{SOON, Stage, soon};
use harness::wait;
use kvlock::{Client, Guard};
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

const LEASE: Duration = Duration::from_millis(800);

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_knows_before_the_server_wakes_and_the_next_has_the_lock_then() {
    let mut stage = Stage::set().await;
    let other = Client::connect(stage.server.url()).await.unwrap();
    for _ in 0..2 {
        let guard = stage.client.lock("k").lease(LEASE).acquire().await.unwrap();
        let lock = other.lock("k");
        let next = tokio::spawn(async move { lock.acquire().await });
        harness::observe::wait_for_waiters(&mut stage.control, "k", 1);
        let before = stage.renewals();
        stage.wait_for_renewals(before + 1);
        stage.server.stand_still();
        soon(guard.lost()).await;
        stage.server.signal(Signal::SIGCONT);
        let next = soon(next).await.unwrap().unwrap();
        assert!(guard.is_lost() && !next.is_lost());
        assert!(next.token() > guard.token());
        next.release().await.unwrap();
    }
    stage.assert_nothing_is_left().await;
}

/// Who believes to hold the lock.
#[derive(Default)]
struct Believers {
    guards: Mutex<Vec<Arc<Guard>>>,
    granted: AtomicUsize,
    lost: AtomicUsize,
    twice: AtomicUsize,
    /// Who holds it then does so until it is lost.
    asleep: AtomicBool,
}

impl Believers {
    async fn hold(&self, guard: Guard) {
        let guard = Arc::new(guard);
        {
            let mut guards = self.guards.lock().unwrap();
            self.granted.fetch_add(1, Ordering::SeqCst);
            let others = guards.iter().any(|other| !other.is_lost());
            self.twice.fetch_add(usize::from(others && !guard.is_lost()), Ordering::SeqCst);
            guards.push(guard.clone());
        }
        let mut lost = tokio::time::timeout(LEASE / 8, guard.lost()).await.is_ok();
        while self.asleep.load(Ordering::SeqCst) && !lost {
            lost = tokio::time::timeout(LEASE / 8, guard.lost()).await.is_ok();
        }
        self.lost.fetch_add(usize::from(lost), Ordering::SeqCst);
        // From here on it is not believed any more.
        self.guards.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &guard));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_believe_at_once_however_often_the_server_sleeps() {
    let mut stage = Stage::set().await;
    let (believers, over) = (Arc::<Believers>::default(), Arc::<AtomicBool>::default());
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let client = Client::connect(stage.server.url()).await.unwrap();
        let (believers, over) = (believers.clone(), over.clone());
        tasks.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                match client.lock("k").lease(LEASE).acquire_within(SOON).await {
                    Ok(Some(guard)) => believers.hold(guard).await,
                    Ok(None) => panic!("the lock was never free"),
                    Err(trouble) => assert!(trouble.is_retryable(), "{trouble}"),
                }
            }
        });
    }
    let mut met = 0;
    for _ in 0..4 {
        let before = believers.granted.load(Ordering::SeqCst);
        wait::until("the lock goes round", SOON, || {
            let granted = believers.granted.load(Ordering::SeqCst);
            if granted > before + 3 { Ok(()) } else { Err(granted.to_string()) }
        });
        let lost = believers.lost.load(Ordering::SeqCst);
        believers.asleep.store(true, Ordering::SeqCst);
        stage.server.stand_still();
        let slept = std::time::Instant::now();
        wait::until("it has slept for longer than a lease", SOON, || {
            let slept = slept.elapsed();
            if slept > 2 * LEASE { Ok(()) } else { Err(format!("{slept:?}")) }
        });
        believers.asleep.store(false, Ordering::SeqCst);
        stage.server.signal(Signal::SIGCONT);
        // Unless the lock was on its way from one to the next.
        met += usize::from(believers.lost.load(Ordering::SeqCst) > lost);
    }
    over.store(true, Ordering::SeqCst);
    while let Some(done) = soon(tasks.join_next()).await {
        done.unwrap();
    }
    let seen = |count: &AtomicUsize| count.load(Ordering::SeqCst);
    assert_eq!(seen(&believers.twice), 0, "of {}", seen(&believers.granted));
    assert!(met > 0, "nobody held it while the server slept");
    stage.assert_nothing_is_left().await;
}
