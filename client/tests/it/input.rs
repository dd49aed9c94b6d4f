//! Mistakes of the caller, and of whoever set the server up: each is told for what it is.

use super::{Stage, soon};
use harness::{Server, cmd};
use kvlock::{Client, Error};
use std::time::Duration;

fn is_invalid<T>(outcome: Result<T, Error>, about: &str) -> bool {
    matches!(outcome, Err(Error::Invalid(text)) if text.contains(about))
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_leases_out_of_range_are_refused_at_the_call() {
    let stage = Stage::set().await;
    let commands = |stage: &Stage| {
        let mut control = stage.server.connect();
        harness::observe::info_field(&mut control, "cmdstat_lock.acquire")
    };
    for name in [Vec::new(), vec![b'x'; 65_537]] {
        let lock = stage.client.lock(name);
        assert!(is_invalid(lock.acquire().await, "name"));
        assert!(is_invalid(lock.try_acquire().await, "name"));
        assert!(is_invalid(lock.info().await, "name"));
        assert!(is_invalid(lock.force_release().await, "name"));
    }
    let lock = stage.client.lock("k");
    let ten_years = Duration::from_millis(315_360_000_000);
    let bad = [Duration::ZERO, Duration::from_millis(9), ten_years * 2, Duration::MAX];
    for lease in bad {
        assert!(is_invalid(lock.clone().lease(lease).acquire().await, "lease"));
        assert!(is_invalid(lock.clone().fixed_lease(lease).try_acquire().await, "lease"));
        let build = Client::builder().lease(lease).connect(stage.server.url()).await;
        assert!(is_invalid(build, "lease"));
    }
    assert_eq!(commands(&stage), None, "nothing was sent");
    let mut guard = lock.acquire().await.unwrap();
    assert!(is_invalid(guard.extend(Duration::ZERO).await, "lease"));
    assert!(soon(stage.client.lock(vec![b'x'; 65_536]).acquire()).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_beyond_the_servers_limit_is_refused_and_nothing_is_held() {
    let server = Server::options().module_config("max-lease-ms", 60_000).start();
    let mut stage = Stage::of(server, Client::builder()).await;
    let lock = stage.client.lock("k").lease(Duration::from_secs(61));
    assert!(is_invalid(soon(lock.acquire()).await, "lease-ms"));
    stage.assert_nothing_is_left();
    let mut guard = soon(stage.client.lock("k").acquire()).await.unwrap();
    assert!(is_invalid(guard.extend(Duration::from_secs(61)).await, "lease-ms"));
    // It is kept with the lease that it had: one renewal is refused, and one is not.
    crate::wait_for_renewals(&mut stage.control, 2);
    assert!(!guard.is_lost());
    assert!(stage.control.run("PTTL k").integer() <= 30_000);
    soon(guard.release()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_wait_is_no_mistake() {
    let stage = Stage::set().await;
    let lock = stage.client.lock("k");
    soon(lock.acquire_within(Duration::MAX)).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_out_of_range_are_refused() {
    let address = "redis://127.0.0.1:1/";
    let zero = Client::builder().reply_timeout(Duration::ZERO);
    assert!(
        matches!(zero.connect(address).await, Err(Error::Config(text)) if text.contains("timeout"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_of_another_client_is_refused() {
    let stage = Stage::set().await;
    let other = Client::connect(stage.server.url()).await.unwrap();
    let lock = stage.client.lock("k").owner(&other.owner());
    assert!(is_invalid(lock.acquire().await, "owner"));
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_are_none_are_refused() {
    for address in ["", "127.0.0.1", "http://127.0.0.1/", "redis://"] {
        let outcome = Client::connect(address).await;
        assert!(matches!(outcome, Err(Error::Config(_))), "{address}: {outcome:?}");
    }
    let nobody = Client::connect("redis://127.0.0.1:1/").await.unwrap_err();
    assert!(matches!(nobody, Error::Connection(_)) && nobody.is_retryable(), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_module_is_told_and_what_to_do() {
    let server = Server::options().without_module().start();
    let missing = Client::connect(server.url()).await.unwrap_err();
    assert!(matches!(missing, Error::ModuleMissing(_)), "{missing:?}");
    let text = missing.to_string();
    assert!(text.contains("loadmodule") && text.contains("kvlock.so"), "{text}");
    let client = Client::from_redis(&redis::Client::open(server.url()).unwrap()).unwrap();
    let missing = client.lock("k").acquire().await.unwrap_err();
    assert!(matches!(missing, Error::ModuleMissing(_)), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_and_missing_rights_are_told() {
    let server = Server::start();
    let mut control = server.connect();
    control.run("ACL SETUSER alice on >secret ~orders:* +lock.acquire +lock.wait +lock.release +lock.renew +lock.cancel +lock.info +client");
    let address = |login: &str| format!("redis://{login}@127.0.0.1:{}/", server.port());

    let wrong = Client::connect(address("alice:wrong")).await.unwrap_err();
    assert!(matches!(wrong, Error::Authentication(_)) && !wrong.is_retryable(), "{wrong:?}");
    assert!(!format!("{wrong} {wrong:?}").contains("alice:wrong"));

    let alice = Client::connect(address("alice:secret")).await.unwrap();
    let guard = alice.lock("orders:42").acquire().await.unwrap();
    let denied = alice.lock("orders:42").force_release().await.unwrap_err();
    assert!(matches!(denied, Error::Denied(_)), "{denied:?}");
    guard.release().await.unwrap();
    let denied = alice.lock("other").acquire().await.unwrap_err();
    assert!(matches!(denied, Error::Denied(_)) && !denied.is_retryable(), "{denied:?}");
    assert!(!format!("{alice:?} {:?}", alice.lock("x")).contains("secret"));

    control.run("CONFIG SET requirepass other");
    control.run("AUTH other");
    let refused = Client::connect(server.url()).await.unwrap_err();
    assert!(matches!(refused, Error::Authentication(_)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_something_else_is_told_and_left_alone() {
    let mut stage = Stage::set().await;
    stage.control.call(cmd!["SET", "k", "precious"]);
    let lock = stage.client.lock("k");
    assert!(matches!(lock.acquire().await, Err(Error::NotALock)));
    assert!(matches!(lock.try_acquire().await, Err(Error::NotALock)));
    assert!(matches!(lock.info().await, Err(Error::NotALock)));
    assert!(matches!(lock.force_release().await, Err(Error::NotALock)));
    soon(stage.client.settled()).await;
    assert_eq!(stage.control.run("GET k").text(), "precious");
    stage.control.run("DEL k");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_is_in_the_middle_of_is_told() {
    let mut stage = Stage::set().await;
    stage.control.run("CONFIG SET min-replicas-to-write 1");
    let trouble = soon(stage.client.lock("k").try_acquire()).await.unwrap_err();
    assert_eq!((trouble.code(), trouble.is_retryable()), (Some("NOREPLICAS"), true));
    stage.control.run("CONFIG SET min-replicas-to-write 0");
    stage.control.run("REPLICAOF 127.0.0.1 1");
    let trouble = soon(stage.client.lock("k").try_acquire()).await.unwrap_err();
    assert_eq!((trouble.code(), trouble.is_retryable()), (Some("READONLY"), true));
}
