//! Tests the claims of docs/migrating-from-redisson.md with the real Redisson. `scripts/test redisson`
//! downloads Redisson, and runs these tests.

#![allow(missing_docs, clippy::print_stdout, reason = "these are tests, and tell what they saw")]

use harness::kind::workspace;
use harness::transcript::{redisson, run_file};
use harness::{Connection, Kind, Server, cmd, observe, wait};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn told(name: &str) {
    run_file(&workspace().join("tests/redisson").join(name), &Kind::chosen());
}

#[test]
fn redisson_and_kvlock_exclude_each_other() {
    told("exclusion.txt");
}

#[test]
fn redissons_waiters_are_notified_of_a_free_lock() {
    told("waking.txt");
}

#[test]
fn combinations_that_must_not_be_mixed() {
    told("mixing.txt");
}

#[test]
fn replicas_and_clusters() {
    told("topologies.txt");
}

/// Number of Redisson threads that contend for one lock.
const THREADS: usize = 20;

/// Duration of the contention.
const LENGTH: Duration = Duration::from_secs(20);

/// Longest wait for the lock. A thread may wait for the whole contention.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of kvlock, or a thread of a Redisson client, that contends for the lock. `connection` leads to the
/// server, or to the program that runs Redisson.
struct Contender {
    connection: Connection,
    lock: Vec<Vec<u8>>,
    unlock: Vec<Vec<u8>>,
}

impl Contender {
    /// A thread of the Redisson client with the given number.
    fn of_redisson(redisson: &Server, server: &Server, client: usize) -> Self {
        let mut connection = redisson.connect();
        let server = format!("address: \"{}\", clientName: \"{client}\"", server.url());
        let connected =
            connection.call(cmd!["connect", format!("{{singleServerConfig: {{{server}}}}}")]);
        assert!(!connected.is_error(), "{connected}");
        let lock = cmd!["getLock", "k", ".", "lock", 10, "SECONDS"];
        Self { connection, lock, unlock: cmd!["getLock", "k", ".", "unlock"] }
    }

    fn of_kvlock(server: &Server, number: usize) -> Self {
        let owner = format!("owner{number}");
        let lock = cmd!["LOCK.WAIT", "k", owner, 10_000, 0];
        Self { connection: server.connect(), lock, unlock: cmd!["LOCK.RELEASE", "k", owner] }
    }

    fn lock(&mut self) {
        self.connection.send(&self.lock);
        let answer = self.connection.receive(PATIENCE).expect("it is granted in the end");
        assert!(!answer.is_error() && !answer.is_nil(), "{answer}");
    }

    fn unlock(&mut self) {
        let answer = self.connection.call(&self.unlock);
        assert!(!answer.is_error() && !answer.is_nil(), "{answer}");
    }
}

/// The resource that the lock guards.
#[derive(Default)]
struct Guarded {
    holders: AtomicUsize,
    overlaps: AtomicUsize,
    /// Number of holds. It may be too small if two holds overlap.
    count: AtomicU64,
}

impl Guarded {
    /// Acquires the lock repeatedly. Returns the number of holds, and the longest wait.
    fn contend(&self, mut contender: Contender) -> (u64, Duration) {
        let (begun, mut longest) = (Instant::now(), Duration::ZERO);
        for grants in 0.. {
            let asked = Instant::now();
            contender.lock();
            longest = longest.max(asked.elapsed());
            let over = begun.elapsed() > LENGTH;
            if !over {
                self.hold();
            }
            contender.unlock();
            if over {
                return (grants, longest);
            }
        }
        unreachable!("it is over at some time");
    }

    fn hold(&self) {
        let others = self.holders.fetch_add(1, Ordering::SeqCst);
        self.overlaps.fetch_add(others.min(1), Ordering::SeqCst);
        let before = self.count.load(Ordering::SeqCst);
        wait::pass(Duration::from_millis(1));
        self.count.store(before + 1, Ordering::SeqCst);
        self.holders.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Number of Redisson clients. The server counts each as one Redisson process.
const CLIENTS: usize = 2;

/// Fails if two contenders hold the lock at once. With `redisson-turn share`, also fails if Redisson gets less
/// than half of its fair share of the grants. Shares are fair if each client of Redisson and of kvlock gets the
/// same number of grants.
#[test]
fn many_clients_at_one_lock() {
    let redisson = redisson();
    for kvlock in [1, 2, 20] {
        for turn in ["no", "share"] {
            let (server, guarded) = (Server::start(), Guarded::default());
            server.connect().call(cmd!["CONFIG", "SET", "kvlock.redisson-turn", turn]);
            let thread = |number| Contender::of_redisson(&redisson, &server, number % CLIENTS);
            let all: Vec<Contender> = (0..THREADS)
                .map(thread)
                .chain((0..kvlock).map(|number| Contender::of_kvlock(&server, number)))
                .collect();
            let shares: Vec<(u64, Duration)> = thread::scope(|scope| {
                let contend = |one| scope.spawn(|| guarded.contend(one));
                let contending: Vec<_> = all.into_iter().map(contend).collect();
                contending.into_iter().map(|one| one.join().expect("it goes on")).collect()
            });
            let sum = |shares: &[(u64, Duration)]| shares.iter().map(|share| share.0).sum::<u64>();
            let longest = |shares: &[(u64, Duration)]| shares.iter().map(|share| share.1).max();
            let (theirs, ours) = shares.split_at(THREADS);
            let (grants, least) = (sum(theirs), theirs.iter().map(|share| share.0).min());
            println!(
                "{kvlock} clients of LOCK.WAIT, {CLIENTS} of Redisson with {THREADS} threads, redisson-turn {turn}: \
                 {grants} grants of Redisson, least of a thread {least:?}, its longest wait {:?}; {} of \
                 kvlock, its longest wait {:?}",
                longest(theirs),
                sum(ours),
                longest(ours),
            );
            assert_eq!(guarded.overlaps.into_inner(), 0);
            assert_eq!(guarded.count.into_inner(), sum(&shares));
            let places = u64::try_from(CLIENTS + kvlock).expect("few");
            let half = sum(&shares) * CLIENTS as u64 / places / 2;
            assert!(turn == "no" || grants >= half, "{grants} grants are less than {half}");
        }
    }
}

/// `unlock()` deletes the key, and the module serves the wait queue just after that. A `tryLock()` may come in
/// between.
#[test]
fn a_kvlock_waiter_is_usually_served_before_a_try_lock() {
    const TIMES: usize = 200;
    let (redisson, server) = (redisson(), Server::start());
    let thread = || Contender::of_redisson(&redisson, &server, 0);
    let (mut holder, mut thief, mut waiter) =
        (thread(), thread(), Contender::of_kvlock(&server, 0));
    let (over, stolen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let overtaken = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let taken = thief.connection.call(cmd!["getLock", "k", ".", "tryLock"]);
                if taken.text() == "true" {
                    stolen.fetch_add(1, Ordering::SeqCst);
                    thief.unlock();
                }
            }
        });
        let mut control = server.connect();
        let overtaken = (0..TIMES).filter(|_| {
            holder.lock();
            waiter.connection.send(&waiter.lock);
            observe::wait_for_waiters(&mut control, "k", 1);
            let before = stolen.load(Ordering::SeqCst);
            holder.unlock();
            let granted = waiter.connection.receive(PATIENCE).expect("it is granted in its turn");
            let overtaken = stolen.load(Ordering::SeqCst) > before;
            assert!(!granted.is_error() && !granted.is_nil(), "{granted}");
            waiter.unlock();
            overtaken
        });
        let overtaken = overtaken.count();
        over.store(true, Ordering::SeqCst);
        overtaken
    });
    println!("overtaken by tryLock() in {overtaken} of {TIMES}");
    assert!(overtaken < TIMES / 2);
}
