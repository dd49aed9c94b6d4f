//! Grants and renewals that replicas have to confirm.

use super::sentinel::settle;
use super::{SOON, Stage, Suspended, ok, soon, visit, wait_for_renewals};
use harness::proxy::Proxy;
use harness::{Server, Value, cmd, observe, wait};
use kvlock::{Client, Error};
use nix::sys::signal::Signal;
use std::time::Duration;

/// Time to wait for a replica that does not answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Longest time to wait for a replica that answers.
const AMPLE: Duration = Duration::from_secs(10);

/// A primary with one replica, and a client that wants the replica to confirm.
async fn set(lease: Duration, patience: Duration) -> (Stage, Server) {
    let server = Server::start();
    let replica = add_replica(&server);
    let client = client(&server, lease, patience).await;
    (Stage { control: server.connect(), server, client }, replica)
}

/// The pause delays the release of the grant, and is longer than this test.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_confirmation_is_reported_within_the_patience_of_the_client() {
    let mut stage =
        Stage::with(Client::builder().patience(PATIENCE).min_replicas(1, PATIENCE)).await;
    let lock = stage.client.lock("k");
    let acquired = tokio::spawn(async move { lock.acquire().await });
    // The client is blocked in `WAIT`.
    observe::wait_for_info(&mut stage.control, "blocked_clients", 1);
    stage.control.run("CLIENT PAUSE 600000 WRITE");
    assert_short(soon(acquired).await.unwrap(), 0, 1);
    assert!(!stage.is_free("k"));
    stage.control.run("CLIENT UNPAUSE");
    soon(stage.client.settled()).await;
    assert!(stage.is_free("k"));
}

async fn client(server: &Server, lease: Duration, patience: Duration) -> Client {
    // The reply timeout is twice as long as the longest time for the replicas.
    let builder = Client::builder().lease(lease).reply_timeout(2 * AMPLE).patience(PATIENCE);
    builder.min_replicas(1, patience).connect(server.url()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_no_replica_confirms_is_released_and_reported() {
    let (mut stage, replica) = set(Duration::from_secs(60), PATIENCE).await;
    replica.signal(Signal::SIGSTOP);
    assert_short(soon(stage.client.lock("k").acquire()).await, 0, 1);
    assert!(stage.is_free("k"), "undone by the time that it is told");
    assert_short(soon(stage.client.lock("k").try_acquire()).await, 0, 1);
    assert_short(soon(stage.client.lock("k").acquire_within(SOON)).await, 0, 1);
    // A grant after a wait is released too.
    stage.taken("k");
    let waiter = stage.in_line(stage.client.lock("k"));
    stage.control.run("LOCK.RELEASE k somebody");
    assert_short(ok(waiter).await, 0, 1);
    assert!(stage.is_free("k"));
    replica.signal(Signal::SIGCONT);
    settle(&stage.server, &replica);
    let other = client(&stage.server, SOON, AMPLE).await;
    visit(&other.lock("k")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_renewals_no_replica_confirms_is_lost_before_its_lease_ends() {
    let (mut stage, replica) = set(Duration::from_secs(3), AMPLE).await;
    let guard = ok(stage.client.lock("k").acquire()).await;
    replica.signal(Signal::SIGSTOP);
    assert_eq!(soon(guard.lost()).await, kvlock::Loss::NotReplicated);
    // The primary has nevertheless renewed the lock: it is still held when the client reports its loss.
    assert_eq!(stage.owner_of("k").as_deref(), Some(guard.owner()));
    replica.signal(Signal::SIGCONT);
    settle(&stage.server, &replica);
    assert!(matches!(soon(guard.release()).await, Ok(()) | Err(Error::Lost(_))));

    let mut guard = ok(stage.client.lock("m").acquire()).await;
    wait_for_renewals(&mut stage.control, 3);
    ok(guard.extend(Duration::from_secs(60))).await;
    assert!(!guard.is_lost());
}

/// The server sets the shorter lease. It refuses only to wait for the replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_shorter_lease_counts_even_if_its_confirmation_is_refused() {
    let (mut stage, _replica) = set(Duration::from_secs(60), AMPLE).await;
    let mut guard = ok(stage.client.lock("k").acquire()).await;
    let short = Duration::from_secs(10);
    stage.control.run("ACL SETUSER default -wait");
    let told = soon(guard.extend(short)).await;
    assert!(matches!(told, Err(Error::Denied(_))), "{told:?}");
    assert!(guard.lease_left() < short, "{guard:?}");
    stage.control.run("ACL SETUSER default +wait");
    ok(guard.release()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reentry_that_no_replica_confirms_does_not_extend_the_validity() {
    let (server, clock) = (Server::start(), Suspended::new());
    let replica = add_replica(&server);
    let client = clock.renewing().min_replicas(1, AMPLE).connect(server.url()).await.unwrap();
    let lock = client.lock("k").owner(&client.owner());
    let guard = ok(lock.acquire()).await;
    replica.signal(Signal::SIGSTOP);
    // A re-entry asks for 2 s at first.
    clock.suspend(guard.lease_left() - Duration::from_millis(1_800));
    let before = guard.lease_left();
    let again = soon(lock.acquire()).await;
    let after = guard.lease_left();
    assert!(after <= before, "{before:?} before, {after:?} after {again:?}");
    replica.signal(Signal::SIGCONT);
}

/// The server has replied that the lock is lost. This needs no confirmation by replicas.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_lock_is_lost_at_once_even_without_confirming_replicas() {
    let (mut stage, replica) = set(Duration::from_secs(12), PATIENCE).await;
    let all = strict(&stage.server, 1, Duration::from_secs(12), PATIENCE).await;
    for client in [stage.client.clone(), all] {
        let gone = ok(client.lock("k").acquire()).await;
        // The renewals of both locks are sent in one batch.
        let stays = ok(client.lock("stays").acquire()).await;
        replica.signal(Signal::SIGSTOP);
        stage.control.run("LOCK.FORCERELEASE k");
        let began = std::time::Instant::now();
        assert_eq!(soon(gone.lost()).await, kvlock::Loss::Forgotten);
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        assert!(!stays.is_lost());
        replica.signal(Signal::SIGCONT);
        settle(&stage.server, &replica);
        ok(stays.release()).await;
    }
}

/// A client that wants all replicas to confirm.
async fn strict(server: &Server, there_are: u32, lease: Duration, patience: Duration) -> Client {
    let builder = Client::builder().lease(lease).reply_timeout(2 * AMPLE).patience(PATIENCE);
    builder.all_replicas(there_are, patience).connect(server.url()).await.unwrap()
}

fn wait_until_told_of(server: &Server, count: usize) {
    wait::until_is("the primary tells of so many replicas", SOON, count, || {
        server.connect().run("ROLE")[2].elements().len()
    });
}

fn add_replica(server: &Server) -> Server {
    let replica = Server::options().replica_of(server).start();
    settle(server, &replica);
    replica
}

fn assert_short(told: Result<impl std::fmt::Debug, Error>, confirmed: u32, wanted: u32) {
    let told = told.unwrap_err();
    let Error::NotReplicated { confirmed: seen, wanted: of, .. } = told else { panic!("{told:?}") };
    assert!((seen, of) == (confirmed, wanted) && told.is_retryable(), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_replicas_are_the_configured_and_the_connected_ones() {
    let server = Server::start();
    let first = add_replica(&server);
    wait_until_told_of(&server, 1);
    let client = strict(&server, 1, SOON, AMPLE).await;
    visit(&client.lock("k")).await;
    let named = strict(&server, 2, SOON, PATIENCE).await;
    assert_short(soon(named.lock("k").acquire()).await, 1, 2);

    // One more replica, which the client's configuration does not count.
    let second = add_replica(&server);
    wait_until_told_of(&server, 2);
    for number in 0..50 {
        let key = format!("k{number}");
        let guard = ok(client.lock(&key).acquire()).await;
        for replica in [&first, &second] {
            let there = replica.connect().call(cmd!["HGET", &key, guard.owner()]);
            assert_eq!(there, Value::bulk("1"), "{key}");
        }
        ok(guard.release()).await;
    }
    let seen = strict(&server, 1, SOON, PATIENCE).await;
    second.signal(Signal::SIGSTOP);
    assert_short(soon(seen.lock("k").acquire()).await, 1, 2);

    // When the second replica has died and the primary lists only the first, this client still requires both.
    second.kill9();
    wait_until_told_of(&server, 1);
    assert_short(soon(seen.lock("k").try_acquire()).await, 1, 2);
    assert_eq!(server.connect().run("EXISTS k"), Value::Integer(0), "undone");
    second.restart();
    settle(&server, &second);
    visit(&client.lock("k")).await;
}

/// Only the replica's end of the connection breaks, so the primary lists the replica twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_reconnects_soon_still_counts() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let at = format_args!("127.0.0.1 {}", proxy.port()).to_string();
    let replica = Server::options().config("replicaof", at).start();
    settle(&server, &replica);
    let client = strict(&server, 1, SOON, AMPLE).await;
    visit(&client.lock("k")).await;
    proxy.forsake();
    wait_until_told_of(&server, 2);
    // While the replica is listed twice, the client wants two confirmations.
    let impatient = strict(&server, 1, SOON, PATIENCE).await;
    assert_short(soon(impatient.lock("k").acquire()).await, 1, 2);
    proxy.heal();
    wait_until_told_of(&server, 1);
    visit(&impatient.lock("k")).await;
    visit(&client.lock("k")).await;
}

/// `WAIT` has a separate error for this case, which does not help the caller.
#[tokio::test(flavor = "multi_thread")]
async fn a_demoted_primary_returns_the_error_for_its_role() {
    let (mut stage, replica) = set(Duration::from_secs(60), AMPLE).await;
    let all = strict(&stage.server, 1, Duration::from_secs(60), AMPLE).await;
    for client in [stage.client.clone(), all] {
        let mut guard = ok(client.lock("k").acquire()).await;
        replica.connect().run("REPLICAOF NO ONE");
        stage.control.call(cmd!["REPLICAOF", "127.0.0.1", replica.port()]);
        let told = soon(guard.extend(Duration::from_secs(50))).await.unwrap_err();
        assert_eq!(told.code(), Some("READONLY"), "{told:?}");
        assert!(told.is_retryable());
        // Restores the roles.
        stage.control.run("REPLICAOF NO ONE");
        replica.connect().call(cmd!["REPLICAOF", "127.0.0.1", stage.server.port()]);
        settle(&stage.server, &replica);
        ok(guard.release()).await;
    }
}
