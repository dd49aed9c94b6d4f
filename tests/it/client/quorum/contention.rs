//! Many want the same lock, of servers whose clocks are apart and of which some hang.

use super::{SOON, clients, soon};
use harness::checker::{Limits, assert_correct};
use harness::clock::Clock;
use harness::history::{Outcome, Recorder, Request};
use harness::{Server, cmd};
use kvlock_quorum::{Client, Quorum};
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CLIENTS: usize = 4;
const ROUNDS: usize = 15;
const LEASE: Duration = Duration::from_secs(30);

/// How far the clocks of the servers are ahead, in milliseconds.
const AHEAD_MS: [i64; 5] = [0, 5_000, -5_000, 3_600_000, -3_600_000];

/// Acquires and releases, and takes down what happens.
async fn contend(quorum: Quorum, name: usize, recorder: Arc<Recorder>) {
    let lock = quorum.lock("k").lease(LEASE);
    for round in 0..ROUNDS {
        let owner = format!("{name}:{round}");
        let call = recorder.sent("k", &owner, Request::Acquire { lease: LEASE, timeout: None });
        let guard = lock.acquire().await.unwrap();
        let token = guard.token().value();
        recorder.answered(call, Outcome::Granted { token, holds: 1 });
        recorder.believed(call, recorder.now() + guard.lease_left());
        tokio::task::yield_now().await;
        assert!(!guard.is_lost());
        let call = recorder.sent("k", &owner, Request::Release);
        guard.release().await.unwrap();
        recorder.answered(call, Outcome::Released { left: 0 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_overlaps_and_tokens_grow_though_clocks_are_apart_and_servers_hang() {
    let clocks = AHEAD_MS.map(|_| Clock::new());
    let servers: Vec<Server> = clocks
        .iter()
        .zip(AHEAD_MS)
        .map(|(clock, ahead_ms)| {
            clock.set(ahead_ms);
            Server::options().clock(clock).start()
        })
        .collect();
    // Their tokens are not in order among each other.
    let own = |server: &Server| {
        server.connect().call(cmd!["LOCK.ACQUIRE", "own", "test", 1000])[0].integer()
    };
    assert!(own(&servers[3]) > own(&servers[4]) + 7_000_000_000);
    let recorder = Arc::new(Recorder::new());
    let mut tasks = tokio::task::JoinSet::new();
    for name in 0..CLIENTS {
        let quorum = Quorum::of(clients(&servers, &Client::builder())).await.unwrap();
        let quorum = quorum.server_timeout(Duration::from_secs(1));
        tasks.spawn(contend(quorum, name, recorder.clone()));
    }
    // Each two of them hang for a moment, in turn: so the majorities are different ones.
    let done = Arc::new(AtomicBool::new(false));
    let hanging = {
        let done = done.clone();
        tokio::task::spawn_blocking(move || {
            let mut control = servers[0].connect();
            for turn in 0.. {
                let pair = [turn % 4 + 1, (turn + 1 + turn / 4 % 3) % 4 + 1];
                let signal =
                    |signal| pair.iter().for_each(|&server| servers[server].signal(signal));
                signal(Signal::SIGSTOP);
                harness::observe::let_pass(&mut control, Duration::from_millis(300));
                signal(Signal::SIGCONT);
                if done.load(Ordering::SeqCst) {
                    return servers;
                }
            }
            servers
        })
    };
    let all = async {
        while let Some(one) = tasks.join_next().await {
            one.unwrap();
        }
    };
    tokio::time::timeout(10 * SOON, all).await.expect("everybody gets it");
    done.store(true, Ordering::SeqCst);
    let _servers = soon(hanging).await.unwrap();

    let calls = recorder.calls();
    let mut grants: Vec<_> = calls
        .iter()
        .filter_map(|call| match call.answer {
            Some((at, Outcome::Granted { token, .. })) => Some((at, token)),
            _ => None,
        })
        .collect();
    assert_eq!(grants.len(), CLIENTS * ROUNDS);
    grants.sort_unstable();
    assert!(grants.is_sorted_by(|(_, a), (_, b)| a < b), "{grants:?}");
    assert_correct(&calls, &Limits::default());
}
