//! A lock: its leases, its holds, and its adoption by another client.

use super::{MOMENT, SOON, Stage, assert_matches, ok, soon, visit, wait_for_renewals, waits};
use harness::{Server, Value, observe, port, wait};
use kvlock::{Address, Client, Error, Token};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_acquires_of_one_owner_all_succeed() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let lock = stage.client.lock("k").owner(&stage.client.owner());
    let waiters: Vec<_> = (0..8).map(|_| waits(&lock)).collect();
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    // The owner waits already, but these calls end within their own limits.
    assert!(ok(lock.try_acquire()).await.is_none());
    assert!(ok(lock.acquire_within(MOMENT)).await.is_none());
    stage.control.run("LOCK.RELEASE k somebody");
    let mut guards = Vec::new();
    for waiter in waiters {
        guards.push(ok(waiter).await.unwrap());
    }
    assert_eq!(guards[0].holds(), 8);
    assert_eq!(stage.control.run("LOCK.INFO k").field("holds"), &Value::Integer(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn re_entering_a_lost_lock_is_an_error() {
    let mut stage = Stage::set().await;
    let lock = stage.client.lock("k").owner(&stage.client.owner());
    let outer = ok(lock.acquire()).await;
    stage.control.run("DEL k");
    let trouble = soon(lock.acquire()).await.unwrap_err();
    assert!(trouble.is_lost() && outer.is_lost());
    // Until the outer guard is released, a reentry is an error, even if another owner has the lock.
    stage.taken("k");
    assert_matches!(soon(lock.try_acquire()).await, Err(Error::Lost(_)));
    assert!(soon(outer.release()).await.unwrap_err().is_lost());
    assert!(ok(lock.try_acquire()).await.is_none());
    stage.control.run("LOCK.RELEASE k somebody");
    visit(&lock).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nested_lease_can_lengthen_but_not_shorten() {
    let mut stage = Stage::set().await;
    let me = stage.client.owner();
    let lock = |seconds| {
        let lease = Duration::from_secs(seconds);
        stage.client.lock("k").owner(&me).fixed_lease(lease)
    };
    let (long, short, longer) = (lock(60), lock(10), lock(100));
    let outer = ok(long.acquire()).await;
    let inner = ok(short.acquire()).await;
    assert!(stage.control.run("PTTL k").integer() > 50_000);
    assert!(inner.lease_left() > Duration::from_secs(50));
    let innermost = ok(longer.acquire()).await;
    assert!(stage.control.run("PTTL k").integer() > 90_000);
    assert!(outer.lease_left() > Duration::from_secs(90));
    // A release that leaves other holds does not change the lease.
    ok(innermost.release()).await;
    assert!(stage.control.run("PTTL k").integer() > 90_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_lease_can_be_released_early_and_extended() {
    let mut stage = Stage::set().await;
    let lock = stage.client.lock("k").fixed_lease(Duration::from_secs(5));
    lock.acquire().await.unwrap().release().await.unwrap();
    assert!(stage.is_free("k"));
    let mut guard = lock.acquire().await.unwrap();
    guard.extend(Duration::from_secs(100)).await.unwrap();
    assert!(guard.lease_left() > Duration::from_secs(90));
    assert!(stage.control.run("PTTL k").integer() > 90_000);
    guard.extend(Duration::from_secs(1)).await.unwrap();
    assert!(guard.lease_left() < Duration::from_secs(1));
    soon(guard.lost()).await;
    assert!(guard.extend(Duration::from_secs(1)).await.unwrap_err().is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn long_leases_are_set_by_renewal() {
    let mut stage = Stage::set().await;
    stage.control.run("CONFIG SET slowlog-log-slower-than 0");
    let hour = Duration::from_secs(3600);
    let guard = stage.client.lock("k").lease(hour).acquire().await.unwrap();
    assert!(stage.control.run("PTTL k").integer() > 3_500_000);
    assert!(guard.lease_left() > Duration::from_secs(3500));
    // The acquire itself asks for half a minute, so that a grant whose reply is lost ends soon.
    let commands = stage.control.run("SLOWLOG GET 10");
    let mut entries = commands.elements().iter().map(|entry| &entry[3]);
    let first = entries.rfind(|command| command[0].text() == "LOCK.ACQUIRE").unwrap();
    assert_eq!(first[3].text(), "30000");
    guard.release().await.unwrap();
    let _guard = stage.client.lock("k").fixed_lease(hour).try_acquire().await.unwrap().unwrap();
    assert!(stage.control.run("PTTL k").integer() > 3_500_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_lock_is_renewed_and_released_by_its_adopter() {
    let mut stage = Stage::set().await;
    let lease = Duration::from_secs(3);
    let guard = ok(stage.client.lock("k").lease(lease).acquire()).await;
    let (owner, token) = (guard.owner().to_owned(), guard.token());
    let other = stage.other().await;
    let left = ok(guard.detach()).await;
    assert!(left > Duration::ZERO && left < lease, "{left:?}");

    let guard = ok(other.lock("k").lease(lease).adopt(&owner, token)).await;
    assert_eq!((guard.token(), guard.owner(), guard.holds()), (token, &*owner, 1));
    // Three renewals of one client take about one lease.
    wait_for_renewals(&mut stage.control, 3);
    assert!(!guard.is_lost());
    assert_eq!(stage.owner_of("k").as_ref(), Some(&owner));
    ok(guard.release()).await;
    assert!(stage.is_free("k"));
}

/// The second acquire is in flight when the first guard is detached or released with a delay.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_being_acquired_again_is_neither_detached_nor_given_a_short_lease() {
    let mut stage = Stage::set().await;
    for detaches in [true, false] {
        let lock = stage.client.lock("k").owner(&stage.client.owner());
        let first = ok(lock.acquire()).await;
        let hands_over = async {
            if detaches {
                assert_matches!(first.detach().await.map(drop), Err(Error::Invalid(_)));
            } else {
                first.release_in(Duration::from_secs(2)).await.unwrap();
            }
        };
        let (second, ()) = tokio::join!(soon(lock.acquire()), soon(hands_over));
        let second = second.unwrap();
        wait::until_is("the first has left", SOON, 1, || second.holds());
        assert!(stage.control.run("PTTL k").integer() > 10_000, "{detaches}");
        assert!(!second.is_lost());
        ok(second.release()).await;
        soon(stage.client.settled()).await;
        assert!(stage.is_free("k"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_lock_that_nobody_adopts_ends_with_its_lease() {
    let mut stage = Stage::set().await;
    let lock = stage.client.lock("k").lease(Duration::from_secs(2));
    let guard = ok(lock.acquire()).await;
    let (owner, token) = (guard.owner().to_owned(), guard.token());
    ok(guard.detach()).await;
    stage.wait_until_free("k");
    // The lock is free, but a new grant would have another token.
    assert_matches!(soon(lock.adopt(&owner, token)).await, Err(Error::Lost(_)));
    assert!(stage.is_free("k"));

    stage.taken("k");
    assert_matches!(soon(lock.adopt(&owner, token)).await, Err(Error::Lost(_)));
    assert_eq!(stage.owner_of("k").as_deref(), Some("somebody"));
}

#[tokio::test(flavor = "multi_thread")]
async fn work_under_a_lock_ends_with_the_lock_and_the_lock_with_the_work() {
    let mut stage = Stage::set().await;
    let lock = stage.client.lock("k");
    let token = ok(lock.with(async |guard| guard.token())).await;
    assert!(token > Token::from(0) && stage.is_free("k"));

    let short = stage.client.lock("k").lease(Duration::from_secs(1));
    let mut control = stage.server.connect();
    let work = short.with(async move |_| {
        control.run("LOCK.FORCERELEASE k");
        std::future::pending::<()>().await;
    });
    assert_matches!(soon(work).await, Err(Error::Lost(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_can_be_made_before_its_server_is_there() {
    let port = port::free();
    let address: Address = format!("redis://127.0.0.1:{port}/").parse().unwrap();
    let client = Client::builder().patience(SOON).connect_lazy(address).unwrap();
    let unready = soon(client.ready()).await;
    assert!(unready.as_ref().is_err_and(Error::is_retryable), "{unready:?}");
    let waiting = waits(&client.lock("k"));
    let server = Server::options().port(port).start();
    let guard = ok(waiting).await.unwrap();
    ok(client.ready()).await;
    assert!(matches!(Client::connect_lazy("http://h"), Err(Error::Config(_))));
    drop(guard);
    assert!(client.shutdown(SOON).await);
    assert_eq!(server.connect().run("EXISTS k"), Value::Integer(0));
}
