//! A lock from one process to another, work under a lock, and the beginning and end of a client.

use super::{SOON, Stage, soon};
use harness::{Server, port};
use kvlock::{Address, Client, Error, Token};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_handed_over_is_renewed_and_released_by_whoever_took_it_over() {
    let mut stage = Stage::set().await;
    let lease = Duration::from_millis(1_500);
    let guard = soon(stage.client.lock("k").lease(lease).acquire()).await.unwrap();
    let (owner, token) = (guard.owner().to_owned(), guard.token());
    let left = soon(guard.detach()).await.unwrap();
    assert!(left > Duration::ZERO && left < lease, "{left:?}");

    let other = Client::connect(stage.server.url()).await.unwrap();
    let guard = soon(other.lock("k").lease(lease).adopt(&owner, token)).await.unwrap();
    assert_eq!((guard.token(), guard.owner(), guard.holds()), (token, &*owner, 1));
    // A whole lease is three renewals of one client, and six of two.
    crate::wait_for_renewals(&mut stage.control, 3);
    assert!(!guard.is_lost());
    assert_eq!(stage.owner_of("k").as_ref(), Some(&owner));
    soon(guard.release()).await.unwrap();
    assert!(stage.is_free("k"));
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_nobody_takes_over_ends_with_its_lease() {
    let mut stage = Stage::set().await;
    let lock = stage.client.lock("k").lease(Duration::from_millis(600));
    let guard = soon(lock.acquire()).await.unwrap();
    let (owner, token) = (guard.owner().to_owned(), guard.token());
    soon(guard.detach()).await.unwrap();
    stage.wait_until_free("k");
    // Granted anew, it would have another token.
    let late = soon(lock.adopt(&owner, token)).await;
    assert!(matches!(late, Err(Error::Lost)), "{late:?}");
    assert!(stage.is_free("k"));

    stage.taken("k");
    let late = soon(lock.adopt(&owner, token)).await;
    assert!(matches!(late, Err(Error::Lost)), "{late:?}");
    assert_eq!(stage.owner_of("k").as_deref(), Some("somebody"));
    stage.control.run("DEL k");
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_of_the_owner_hold_is_not_handed_over() {
    let stage = Stage::set().await;
    let lock = stage.client.lock("k").owner(&stage.client.owner());
    let outer = soon(lock.acquire()).await.unwrap();
    let inner = soon(lock.acquire()).await.unwrap();
    let refused = soon(inner.detach()).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    soon(stage.client.settled()).await;
    assert_eq!(outer.holds(), 1, "it was released");
    soon(outer.release()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn work_under_a_lock_ends_with_the_lock_and_the_lock_with_the_work() {
    let mut stage = Stage::set().await;
    let lock = stage.client.lock("k");
    let token = soon(lock.with(async |guard| guard.token())).await.unwrap();
    assert!(token > Token::from(0) && stage.is_free("k"));

    let short = stage.client.lock("k").lease(Duration::from_millis(300));
    let mut control = stage.server.connect();
    let work = short.with(async move |_| {
        control.run("LOCK.FORCERELEASE k");
        std::future::pending::<()>().await;
    });
    let lost = soon(work).await;
    assert!(matches!(lost, Err(Error::Lost)), "{lost:?}");
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_can_be_made_before_its_server_is_there() {
    let port = port::free();
    let address: Address = format!("redis://127.0.0.1:{port}/").parse().unwrap();
    let client = Client::builder().patience(SOON).connect_lazy(address).unwrap();
    let unready = soon(client.ready()).await;
    assert!(unready.as_ref().is_err_and(Error::is_retryable), "{unready:?}");
    let lock = client.lock("k");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let server = Server::options().port(port).start();
    let guard = soon(waiting).await.unwrap().unwrap();
    soon(client.ready()).await.unwrap();
    assert!(matches!(Client::connect_lazy("http://h"), Err(Error::Config(_))));
    drop(guard);
    assert!(client.shutdown(SOON).await);
    assert_eq!(server.connect().run("EXISTS k"), harness::Value::Integer(0));
}
