//! A holder that is stopped, and goes on when the lock is another's; and one that is killed.

use super::{SOON, Stage, soon};
use harness::wait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Set for the process that plays the holder: the address of the server.
const ADDRESS: &str = "KVLOCK_TEST_HOLDER";
const LEASE: Duration = Duration::from_millis(500);

/// The holder, when this test binary is started again by [`Holder::start`]; else nothing.
#[tokio::test(flavor = "multi_thread")]
async fn holder_process() {
    let Ok(address) = std::env::var(ADDRESS) else {
        return;
    };
    let client = kvlock::Client::connect(address).await.unwrap();
    loop {
        let guard = client.lock("k").lease(LEASE).acquire().await.unwrap();
        while !guard.is_lost() {
            let mut out = std::io::stdout().lock();
            writeln!(out, "write {}", guard.token()).and_then(|()| out.flush()).unwrap();
        }
    }
}

/// Takes writes, unless they are of a token that is older than one it has seen.
#[derive(Debug, Default)]
struct Store {
    latest: u64,
    accepted: usize,
    /// Tokens of writes that came too late.
    refused: Vec<u64>,
}

impl Store {
    fn write(&mut self, token: u64) {
        if token < self.latest {
            self.refused.push(token);
        } else {
            self.latest = token;
            self.accepted += 1;
        }
    }
}

struct Holder(Child);

impl Holder {
    fn start(address: &str, store: &Arc<Mutex<Store>>) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "client::frozen::holder_process", "--nocapture"])
            .env(ADDRESS, address)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let store = store.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(token) = line.strip_prefix("write ") {
                    store.lock().unwrap().write(token.parse().unwrap());
                }
            }
        });
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_holder_writes_nothing_after_the_next_ones_token() {
    let stage = Stage::set().await;
    let store: Arc<Mutex<Store>> = Arc::default();
    let holder = Holder::start(&stage.server.url(), &store);
    let rounds = 5;
    for _ in 0..rounds {
        // It is at work, not only on its way.
        let before = store.lock().unwrap().accepted;
        wait::until("the holder writes", SOON, || {
            let accepted = store.lock().unwrap().accepted;
            if accepted > before { Ok(()) } else { Err(accepted.to_string()) }
        });
        holder.signal(Signal::SIGSTOP);
        let guard = soon(stage.client.lock("k").acquire()).await.unwrap();
        store.lock().unwrap().write(guard.token().value());
        holder.signal(Signal::SIGCONT);
        // It has noticed when it is in line again.
        wait::until("it waits", SOON, || {
            let info = stage.server.connect().run("LOCK.INFO k");
            if info.field("waiters").integer() == 1 { Ok(()) } else { Err(info.to_string()) }
        });
        assert!(!guard.is_lost());
        store.lock().unwrap().write(guard.token().value());
        guard.release().await.unwrap();
    }
    let store = store.lock().unwrap();
    assert!(store.accepted > 2 * rounds);
    // Between the question and the write it can be stopped: that one is refused by its token. A
    // holder that did not look at the clock would have written until a timer told it.
    assert!(store.refused.len() <= rounds, "{} writes came too late", store.refused.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_a_killed_process_is_free_when_its_lease_ends() {
    let stage = Stage::set().await;
    let store: Arc<Mutex<Store>> = Arc::default();
    let holder = Holder::start(&stage.server.url(), &store);
    wait::until("the holder writes", SOON, || {
        if store.lock().unwrap().accepted > 0 { Ok(()) } else { Err("nothing".to_owned()) }
    });
    drop(holder); // SIGKILL
    let guard = soon(stage.client.lock("k").acquire()).await.unwrap();
    assert!(guard.token().value() > store.lock().unwrap().latest);
    guard.release().await.unwrap();
}
