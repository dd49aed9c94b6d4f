//! TLS with real certificates, and the ACL user from `docs/operations.md`.

use super::{LONG, assert_matches, ok, soon, visit, wait_for_renewals};
use crate::dials::close_while_idle;
use crate::story::{ALONE, ELECTION, SHARED, Story};
use harness::cluster::Cluster;
use harness::{Kind, Options, Server, cmd, observe, port, site, wait};
use kvlock::{Address, Client, Error};
use redis::{ClientTlsConfig, TlsCertificates};
use std::fs;
use std::time::Duration;
use tempfile::TempDir;

/// A self-signed certificate, and its key.
type Identity = [String; 2];

fn identity(name: &str) -> Identity {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    [made.cert.pem(), made.signing_key.serialize_pem()]
}

/// Options of a server with the identity `own` that trusts clients with the identity `trusted`.
fn talks_to(mut options: Options, own: &Identity, trusted: &Identity, files: &TempDir) -> Options {
    for (option, text) in
        [("tls-cert-file", &own[0]), ("tls-key-file", &own[1]), ("tls-ca-cert-file", &trusted[0])]
    {
        let path = files.path().join(option);
        fs::write(&path, text).unwrap();
        options = options.config(option, path.display());
    }
    options
}

/// A client with the identity `own` that trusts servers with the identity `trusted`.
fn login(address: &str, own: &Identity, trusted: &Identity) -> redis::Client {
    let [client_cert, client_key] = own.clone().map(String::into_bytes);
    let certificates = TlsCertificates {
        client_tls: Some(ClientTlsConfig { client_cert, client_key }),
        root_cert: Some(trusted[0].clone().into_bytes()),
    };
    redis::Client::build_with_tls(address, certificates).unwrap()
}

/// A server with TLS, its identity, and the identity of its client, the shop.
struct Stage {
    server: Server,
    address: String,
    own: Identity,
    shop: Identity,
    _files: TempDir,
}

impl Stage {
    fn set() -> Self {
        let files = TempDir::with_prefix("kvlock-tls-").unwrap();
        let (tls_port, own, shop) = (port::free(), identity("localhost"), identity("shop"));
        let options = Server::options().config("tls-port", tls_port);
        let server = talks_to(options, &own, &shop, &files).start();
        server.connect().run(&of_the_documents("ACL SETUSER shop"));
        let address = format!("rediss://shop:secret@localhost:{tls_port}/");
        Self { server, address, own, shop, _files: files }
    }
}

/// The first line of `docs/operations.md` with the prefix `begin`.
pub(super) fn of_the_documents(begin: &str) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/operations.md");
    let page = fs::read_to_string(page).unwrap();
    page.lines().find(|line| line.starts_with(begin)).expect("the line").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_acl_allows_everything_a_client_does() {
    let stage = Stage::set();
    let redis = login(&stage.address, &stage.shop, &stage.own);
    let builder = Client::builder().lease(Duration::from_secs(3));
    let client = builder.build(&redis).unwrap();
    let mut eye = stage.server.connect();
    let lock = client.lock("orders:42");
    let guard = ok(lock.acquire()).await;
    // The watchdog renews it.
    wait_for_renewals(&mut eye, 1);
    ok(guard.release()).await;
    let (there, slot) = (stage.server.connect(), "tls".to_owned());
    let mut story = Story { client: client.clone(), there, slot };
    for chapter in [ALONE, SHARED, ELECTION] {
        story.tell(chapter).await;
    }

    // Other keys and commands are refused.
    assert!(matches!(soon(client.lock("other").acquire()).await, Err(Error::Denied(_))));
    assert_matches!(soon(lock.force_release()).await, Err(Error::Denied(_)));
    assert_matches!(soon(client.list(10)).await, Err(Error::Denied(_)));
    eye.call(cmd!["ACL", "SETUSER", "shop", "-lock.renew"]);
    let guard = ok(lock.acquire()).await;
    soon(guard.lost()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_closed_while_idle_is_no_error() {
    let stage = Stage::set();
    let everyone = stage.address.replace("shop:secret@", "");
    let client = Client::from_redis(&login(&everyone, &stage.shop, &stage.own)).unwrap();
    close_while_idle(&client, &mut stage.server.connect()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_trusts_another_authority_does_not_connect() {
    let stage = Stage::set();
    let (at, Stage { own, shop, .. }) = (&*stage.address, &stage);
    for redis in [
        login(at, shop, &identity("localhost")),
        login(at, &identity("shop"), own),
        redis::Client::open(at.replace("rediss", "redis")).unwrap(),
    ] {
        let builder = Client::builder().reply_timeout(Duration::from_secs(2));
        let client = builder.build(&redis).unwrap();
        let told = soon(client.lock("orders:42").try_acquire()).await.unwrap_err();
        assert_matches!(told, Error::Connection(_) | Error::Timeout);
    }
    stage.server.assert_alive();
}

/// The nodes report each other's TLS port to clients that connect with TLS.
#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_of_a_cluster_use_tls() {
    let (own, shop) = (identity("127.0.0.1"), identity("shop"));
    let files = TempDir::with_prefix("kvlock-tls-").unwrap();
    // Redis 7.0 reports only one port of each node.
    let chosen = Kind::chosen();
    let kind = if chosen.is_redis_7_0() { Kind::named("redis-8.0") } else { chosen };
    let ports = [port::free(), port::free(), port::free()];
    let node = |tls_port| {
        let options = Server::options().kind(&kind).config("tls-port", tls_port);
        talks_to(options, &own, &shop, &files)
    };
    let cluster = Cluster::start_each(ports.map(node), 0);
    let cli = "CONFIG SET requirepass secret";
    cluster.nodes().iter().for_each(|node| drop(node.connect().run(cli)));

    let seed = format!("rediss://:secret@127.0.0.1:{}/", ports[0]);
    let seed = login(&seed, &shop, &own).get_connection_info().clone();
    let client = ok(Client::connect(Address::cluster([seed]).unwrap())).await;
    for number in 0..30 {
        visit(&client.lock(format!("k{number}"))).await;
    }
    for node in cluster.nodes() {
        let mut eye = node.connect();
        eye.run("AUTH secret");
        assert!(observe::info_number(&mut eye, "kvlock_granted") > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_sentinels_that_use_tls_is_followed() {
    let (own, files) = (identity("127.0.0.1"), TempDir::with_prefix("kvlock-tls-").unwrap());
    let [first, second, at] = [port::free(), port::free(), port::free()];
    let with_tls = |options: Options, port: u16| {
        let options = options.config("tls-port", port).config("tls-replication", "yes");
        talks_to(options, &own, &own, &files)
    };
    let primary = with_tls(Server::options(), first).start();
    let follows = format_args!("127.0.0.1 {first}").to_string();
    let replica = with_tls(Server::options().config("replicaof", follows), second).start();
    let monitors = format_args!("{} 127.0.0.1 {first} 1", site::NAME).to_string();
    let sentinel = Server::options().sentinel().config("sentinel monitor", monitors);
    let sentinel = with_tls(sentinel, at).start();
    observe::wait_for_replica(&mut primary.connect(), &mut replica.connect());

    let login = |port| {
        let address = format!("rediss://127.0.0.1:{port}/");
        login(&address, &own, &own).get_connection_info().clone()
    };
    let address = Address::behind_sentinels([login(at)], site::NAME, login(first)).unwrap();
    let client = ok(Client::connect(address)).await;
    let guard = ok(client.lock("k").acquire()).await;
    observe::wait_for_replica(&mut primary.connect(), &mut replica.connect());
    let mut asks = sentinel.connect();
    wait::until("it knows the replica, and fails over", LONG, || {
        let answer = asks.call(cmd!["SENTINEL", "FAILOVER", site::NAME]);
        if answer.is_error() { Err(answer.to_string()) } else { Ok(()) }
    });
    let named = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", site::NAME);
    wait::until_is("the replica is the primary", LONG, second.to_string(), || {
        asks.run(&named)[1].text()
    });
    // The lock is renewed there at once, and the next one is acquired there.
    wait_for_renewals(&mut replica.connect(), 1);
    let other = ok(client.lock("other").acquire()).await;
    assert_eq!(replica.connect().run("ROLE")[0].text(), "master");
    assert!(!guard.is_lost());
    for guard in [guard, other] {
        ok(guard.release()).await;
    }
}
