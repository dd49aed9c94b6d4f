//! The clock of a server jumps while a lock is held.

use super::{Stage, clients, soon, wait_for_servers};
use harness::Server;
use harness::clock::Clock;
use kvlock_quorum::{Client, Quorum};
use std::time::Duration;

const HOUR_MS: i64 = 3_600_000;

async fn stage(clocks: &[Clock]) -> (Stage, Quorum) {
    let start = |clock: &Clock| Server::options().clock(clock).start();
    let stage = Stage::of(clocks.iter().map(start).collect(), Client::builder()).await;
    let other = Quorum::of(clients(&stage.servers, &Client::builder())).await.unwrap();
    (stage, other.server_timeout(super::SOON))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_while_more_than_a_majority_holds_it_harms_nobody() {
    let clocks: Vec<Clock> = (0..5).map(|_| Clock::new()).collect();
    let (stage, other) = stage(&clocks).await;
    let mut last = 0;
    for ahead_ms in [HOUR_MS, -HOUR_MS] {
        let lock = stage.quorum.lock("k").lease(Duration::from_secs(600));
        let guard = soon(lock.acquire()).await.unwrap();
        wait_for_servers(&guard, 5);
        clocks[2].set(ahead_ms);
        for _ in 0..10 {
            assert!(soon(other.lock("k").try_acquire()).await.unwrap().is_none());
        }
        assert!(!guard.is_lost());
        // It did not know the lock any more, or knows it for longer: it is released all the same.
        assert!(guard.token().value() > last);
        last = guard.token().value();
        soon(guard.release()).await.unwrap();
        stage.assert_nothing_is_left();
        // Whoever is next has the larger token, whatever that server makes of the date.
        let next = soon(other.lock("k").acquire()).await.unwrap();
        assert!(next.token().value() > last, "{} after {last}", next.token());
        last = next.token().value();
        soon(next.release()).await.unwrap();
        stage.assert_nothing_is_left();
    }
}
