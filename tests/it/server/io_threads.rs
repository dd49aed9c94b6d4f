//! Tests servers with I/O threads. Commands and the module still run in the main thread, but other threads may
//! read the commands and write the replies.

use harness::{Connection, Kind, Server, Value, cmd, observe, on_each_server, wait};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Number of clients that wait for one lock, each on a separate connection.
const WAITERS: usize = 24;

/// Number of clients with separate locks, which keep the threads busy.
const BUSY: usize = 16;

/// Minimum number of grants to the waiters before the test ends.
const GRANTS: i64 = 200;

/// Number of pairs of commands that a busy client sends before it reads the replies.
const DEPTH: usize = 8;

/// State that all clients share; its holders, token and grants are those of the waiters' lock.
#[derive(Default)]
struct Shared {
    holders: AtomicI64,
    token: AtomicI64,
    grants: AtomicI64,
    ends: AtomicBool,
}

impl Shared {
    fn is_running(&self) -> bool {
        !self.ends.load(Ordering::SeqCst)
    }
}

fn wait_in_queue(mut client: Connection, owner: &str, shared: &Shared) {
    while shared.is_running() {
        let grant = client.call(cmd!["LOCK.WAIT", "shared", owner, 60_000, 0]);
        let token = grant.elements().first().expect("a grant").integer();
        assert_eq!(shared.holders.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
        assert!(shared.token.swap(token, Ordering::SeqCst) < token, "tokens grow");
        shared.grants.fetch_add(1, Ordering::SeqCst);
        shared.holders.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(client.call(cmd!["LOCK.RELEASE", "shared", owner]), Value::Integer(0));
    }
}

/// Sends many commands at once, and checks that complete replies arrive in the order of the commands.
fn keep_busy(mut client: Connection, key: &str, shared: &Shared) {
    let mut last = 0;
    while shared.is_running() {
        for _ in 0..DEPTH {
            client.send(cmd!["LOCK.ACQUIRE", key, "o", 60_000, "VALUE", "v".repeat(100)]);
            client.send(cmd!["LOCK.RELEASE", key, "o"]);
        }
        for _ in 0..DEPTH {
            let grant = client.receive(PATIENCE).expect("a grant");
            let token = grant.elements().first().expect("a token").integer();
            assert!(token > last, "tokens grow");
            last = token;
            assert_eq!(client.receive(PATIENCE).expect("an answer"), Value::Integer(0));
        }
    }
}

fn locks_are_handed_over_by_io_threads(kind: Kind) {
    let server = Server::options().kind(&kind).io_threads(3).start();
    let (shared, mut control) = (Shared::default(), server.connect());
    let by_threads = |control: &mut Connection| {
        ["io_threaded_reads_processed", "io_threaded_writes_processed"]
            .map(|field| observe::info_number(control, field))
    };
    let done = thread::scope(|scope| {
        for number in 0..WAITERS {
            let (client, shared) = (server.connect(), &shared);
            scope.spawn(move || wait_in_queue(client, &format!("o{number}"), shared));
        }
        for number in 0..BUSY {
            let (client, shared) = (server.connect(), &shared);
            scope.spawn(move || keep_busy(client, &format!("k{number}"), shared));
        }
        let enough = || shared.grants.load(Ordering::SeqCst) >= GRANTS;
        let done = catch_unwind(AssertUnwindSafe(|| {
            wait::until("threads work and waiters are served", PATIENCE, || {
                let by_threads = by_threads(&mut control);
                let done = enough() && !by_threads.contains(&0);
                let shared = || format!("{:?} grants, by threads {by_threads:?}", shared.grants);
                if done { Ok(()) } else { Err(shared()) }
            });
        }));
        // Ends the clients in any case, because the scope waits for them.
        shared.ends.store(true, Ordering::SeqCst);
        done
    });
    done.unwrap_or_else(|why| resume_unwind(why));
    observe::wait_for_waiters(&mut control, "shared", 0);
    assert_eq!(observe::info_number(&mut control, "kvlock_caught_panics"), 0);
    server.assert_alive();
}

on_each_server!(locks_are_handed_over_by_io_threads);
