//! Checks of a quorum's servers: that they differ, and that a majority can be reached.

use super::{Stage, assert_matches, assert_no_majority, clients, ok, soon};
use harness::{Server, cmd};
use kvlock_quorum::{Client, Error, Quorum};

#[tokio::test(flavor = "multi_thread")]
async fn the_same_server_twice_is_refused() {
    let (a, b) = (Server::start(), Server::start());
    let by_name = format!("redis://localhost:{}/", a.port());
    let told = soon(Quorum::connect([a.url(), b.url(), by_name])).await;
    let Err(Error::Invalid(text)) = told else { panic!("{told:?}") };
    assert!(text.contains("localhost") && text.contains("127.0.0.1"), "{text}");
    let client = Client::connect(a.url()).await.unwrap();
    assert_matches!(soon(Quorum::of([client.clone(), client])).await, Err(Error::Invalid(_)));
    assert_matches!(soon(Quorum::of([])).await, Err(Error::Invalid(_)));
    let none: [&str; 0] = [];
    assert_matches!(soon(Quorum::connect(none)).await, Err(Error::Invalid(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_timeout_may_be_as_long_as_any_duration() {
    let stage = Stage::set(3).await;
    let quorum = stage.quorum.clone().server_timeout(std::time::Duration::MAX);
    ok(ok(quorum.lock("k").acquire()).await.release()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_out_of_range_is_refused_before_any_server_is_asked() {
    let stage = Stage::set(3).await;
    stage.taken_at(0..3);
    for lease in [std::time::Duration::ZERO, std::time::Duration::MAX] {
        let lock = stage.quorum.lock("k").lease(lease);
        assert_matches!(soon(lock.try_acquire()).await, Err(Error::Invalid(_)));
        assert_matches!(soon(lock.acquire()).await, Err(Error::Invalid(_)));
    }
    (0..3).for_each(|server| drop(stage.connect(server).run("DEL k")));
}

/// Two addresses of one server, which is down when the quorum checks that its servers differ.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_reached_by_two_addresses_is_counted_once() {
    let servers: Vec<_> = (0..4).map(|_| Server::start()).collect();
    let mut all = clients(&servers, &Client::builder());
    let twice = redis::Client::open(format!("redis://localhost:{}/", servers[3].port())).unwrap();
    all.push(Client::builder().build(&twice).unwrap());
    servers[3].kill9();
    let quorum = ok(Quorum::of(all)).await.server_timeout(super::SOON);
    servers[3].restart();
    let stage = Stage { servers, quorum };
    stage.taken_at([1, 2]);
    // Two servers are free, one of them with two addresses: they count as two.
    assert!(ok(stage.quorum.lock("k").try_acquire()).await.is_none());
    stage.connect(1).run("DEL k");
    let guard = ok(stage.quorum.lock("k").try_acquire()).await.expect("three are free");
    assert_eq!(guard.servers(), 3);
    ok(guard.release()).await;
    stage.connect(2).run("DEL k");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_must_be_reachable_at_first_and_no_login_may_fail() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    servers[0].connect().call(cmd!["ACL", "SETUSER", "default", "-info"]);
    let told = soon(Quorum::of(clients(&servers, &Client::builder()))).await;
    assert_matches!(told, Err(Error::Denied(_)));
    servers[0].kill9();
    ok(Quorum::of(clients(&servers, &Client::builder()))).await;
    servers[1].kill9();
    let told = soon(Quorum::of(clients(&servers, &Client::builder()))).await;
    assert_no_majority(told, 2, 3);
    let without = Server::options().without_module().start();
    let told = soon(Quorum::connect([servers[2].url(), without.url()])).await;
    assert_matches!(told, Err(Error::ModuleMissing(_)));
}
