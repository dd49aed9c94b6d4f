//! Locks on several independent servers, of which a majority must grant them.

mod failures;
mod identity;

use super::{SOON, assert_matches, ok, soon};
use harness::{Connection, Server, Value, cmd, wait};
use kvlock::Builder;
use kvlock_quorum::{Client, Error, Quorum, QuorumGuard};
use nix::sys::signal::Signal;
use std::time::Duration;

/// Independent servers, and a quorum of them.
pub(super) struct Stage {
    servers: Vec<Server>,
    pub(super) quorum: Quorum,
}

impl Stage {
    pub(super) async fn set(count: usize) -> Self {
        Self::with(count, Client::builder()).await
    }

    async fn with(count: usize, builder: Builder) -> Self {
        Self::of((0..count).map(|_| Server::start()).collect(), builder).await
    }

    async fn of(servers: Vec<Server>, builder: Builder) -> Self {
        let quorum = Quorum::of(clients(&servers, &builder)).await.unwrap();
        // The timeout is long, so that replies count even on a slow machine.
        Self { servers, quorum: quorum.server_timeout(SOON) }
    }

    pub(super) fn connect(&self, server: usize) -> Connection {
        self.servers[server].connect()
    }

    /// Indices of the running servers on which the lock `k` is held.
    fn holders(&self) -> Vec<usize> {
        let held = |server: &usize| {
            self.servers[*server].is_running()
                && self.connect(*server).run("EXISTS k") == Value::Integer(1)
        };
        (0..self.servers.len()).filter(held).collect()
    }

    /// Acquires the lock `k` for another owner on these servers, for a long time.
    pub(super) fn taken_at(&self, servers: impl IntoIterator<Item = usize>) {
        for server in servers {
            let reply = self.connect(server).run("LOCK.ACQUIRE k somebody 600000");
            assert_eq!(reply[1], Value::Integer(1), "{reply}");
        }
    }

    fn signal(&self, servers: impl IntoIterator<Item = usize>, signal: Signal) {
        servers.into_iter().for_each(|server| self.servers[server].signal(signal));
    }

    /// Waits until no running server has the lock.
    fn assert_nothing_is_left(&self) {
        wait::until_is("nothing is left", SOON, vec![], || self.holders());
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_nothing_is_left();
        }
    }
}

/// Clients of these servers, which need not be running.
fn clients(servers: &[Server], builder: &Builder) -> Vec<Client> {
    let client = |server: &Server| {
        builder.clone().build(&redis::Client::open(server.url()).unwrap()).unwrap()
    };
    servers.iter().map(client).collect()
}

fn wait_for_servers(guard: &QuorumGuard, count: usize) {
    wait::until_is("so many servers hold it", SOON, count, || guard.servers());
}

fn assert_no_majority<T: std::fmt::Debug>(told: Result<T, Error>, down: usize, of: usize) {
    match &told {
        Err(trouble @ Error::NoMajority { failed, servers, .. }) => {
            assert!((*failed, *servers) == (down, of) && trouble.is_retryable(), "{told:?}");
        }
        _ => panic!("{told:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_held_by_another_owner_does_not_matter_and_a_majority_does() {
    let stage = Stage::set(5).await;
    stage.taken_at([0, 1]);
    let guard = ok(stage.quorum.lock("k").acquire()).await;
    wait_for_servers(&guard, 3);
    // When the lock becomes free on another server, the guard acquires it there too.
    stage.connect(0).run("LOCK.RELEASE k somebody");
    wait_for_servers(&guard, 4);
    ok(guard.release()).await;

    stage.taken_at([2]);
    stage.connect(0).run("LOCK.ACQUIRE k somebody 600000");
    assert!(ok(stage.quorum.lock("k").try_acquire()).await.is_none());
    let lock = stage.quorum.lock("k");
    assert!(ok(lock.acquire_within(Duration::from_millis(300))).await.is_none());
    wait::until_is("only the other holds it", SOON, vec![0, 1, 2], || stage.holders());
    // A waiter gets the lock when it is free on a majority.
    let lock = stage.quorum.lock("k");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    stage.connect(0).run("LOCK.RELEASE k somebody");
    let guard = ok(waiter).await.unwrap();
    assert!(guard.servers() >= 3);
    ok(guard.release()).await;
    stage.connect(1).run("DEL k");
    stage.connect(2).run("DEL k");
}

#[tokio::test(flavor = "multi_thread")]
async fn quorums_of_one_and_two_tolerate_no_failure() {
    for count in [1, 2] {
        let stage = Stage::set(count).await;
        let guard = ok(stage.quorum.lock("k").acquire()).await;
        assert_eq!(guard.servers(), count);
        ok(guard.release()).await;
        stage.servers[0].kill9();
        let told = soon(stage.quorum.lock("k").try_acquire()).await;
        assert_no_majority(told, 1, count);
    }
}

/// Raises the token of a lock on one server, as a quorum does.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_raised_on_all_servers_or_unchanged() {
    let mut stage = super::Stage::set().await;
    let lease = Duration::from_secs(3);
    let mut guard = ok(stage.client.lock("k").lease(lease).acquire()).await;
    let (own, token) = (guard.token(), kvlock::Token::from(guard.token().value() + 1_000_000));
    ok(guard.raise_token(token, lease)).await;
    assert!(guard.token() == token && token > own);
    let ages_ahead = kvlock::Token::from(1 << 51);
    assert_matches!(soon(guard.raise_token(ages_ahead, SOON)).await, Err(Error::Invalid(_)));
    assert!(guard.token() == token && guard.lease_left() < lease);
    // Each renewal sends the token again, in case the server has lost it.
    stage.control.call(cmd!["HSET", "k", "fencing-token", format!("t{}", own.value())]);
    wait::until_is("it is raised again", SOON, format!("t{}", token.value()), || {
        stage.control.run("HGET k fencing-token").text()
    });
    ok(guard.release()).await;
    let mut reader = ok(stage.client.lock("k").shared().acquire()).await;
    assert_matches!(soon(reader.raise_token(token, SOON)).await, Err(Error::Invalid(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_all_servers_refuse_is_refused() {
    let stage = Stage::set(1).await;
    stage.connect(0).run("CONFIG SET kvlock.max-lease-ms 1000");
    stage.connect(0).run("SET text 1");
    for (name, lease_ms) in [("", 500), ("k", 1), ("k", 2000), ("text", 500)] {
        let lock = stage.quorum.lock(name).lease(Duration::from_millis(lease_ms));
        let told = soon(lock.acquire()).await.unwrap_err();
        match name {
            "text" => assert_eq!(told.code(), Some("WRONGTYPE")),
            _ => assert_matches!(told, Error::Invalid(_), "{name}, {lease_ms}"),
        }
    }
}
