//! A server that sleeps for longer than the lease, with the watchdog's renewals in its socket.

use super::{Stage, soon};
use kvlock::Client;
use nix::sys::signal::Signal;
use std::time::Duration;

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
