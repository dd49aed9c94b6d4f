//! TLS with real certificates, and the user that the documents give an application.

use super::{soon, wait_for_renewals};
use harness::cluster::Cluster;
use harness::{Kind, Options, Server, Value, cmd, observe, port};
use kvlock::{Address, Client, Error};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use redis::{ClientTlsConfig, TlsCertificates};
use std::fs;
use std::time::Duration;
use tempfile::TempDir;

/// Somebody who signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn certificate(&self) -> String {
        self.0.pem()
    }

    /// A server of that name, which talks to those who have a certificate as well.
    fn certified(&self, mut options: Options, name: &str, files: &TempDir) -> Options {
        let [certificate, key] = self.certify(name);
        for (option, text) in [
            ("tls-ca-cert-file", self.certificate()),
            ("tls-cert-file", certificate),
            ("tls-key-file", key),
        ] {
            let path = files.path().join(option);
            fs::write(&path, text).unwrap();
            options = options.config(option, path.display());
        }
        options
    }

    /// A certificate and its key.
    fn certify(&self, name: &str) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        [certificate, key.serialize_pem()]
    }
}

/// A server that talks TLS to those who have a certificate of its authority.
struct Stage {
    server: Server,
    authority: Authority,
    tls_port: u16,
    _files: TempDir,
}

impl Stage {
    fn set() -> Self {
        let authority = Authority::new();
        let files = TempDir::with_prefix("kvlock-tls-").unwrap();
        let tls_port = port::free();
        let options = Server::options().config("tls-port", tls_port);
        let server = authority.certified(options, "localhost", &files).start();
        server.connect().run(&of_the_documents("ACL SETUSER shop"));
        Self { server, authority, tls_port, _files: files }
    }

    /// Somebody who trusts that authority and comes with a certificate of this one.
    fn login(&self, trusted: &Authority, own: &Authority) -> redis::Client {
        let address = format!("rediss://shop:secret@localhost:{}/", self.tls_port);
        login(address, trusted, own)
    }
}

fn login(address: String, trusted: &Authority, own: &Authority) -> redis::Client {
    let [client_cert, client_key] = own.certify("shop").map(String::into_bytes);
    let certificates = TlsCertificates {
        client_tls: Some(ClientTlsConfig { client_cert, client_key }),
        root_cert: Some(trusted.certificate().into_bytes()),
    };
    redis::Client::build_with_tls(address, certificates).unwrap()
}

/// The line of `docs/operations.md` that begins so.
pub(super) fn of_the_documents(begin: &str) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/operations.md");
    let page = fs::read_to_string(page).unwrap();
    page.lines().find(|line| line.starts_with(begin)).expect("the line").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_the_documents_can_do_all_that_a_client_does() {
    let stage = Stage::set();
    let redis = stage.login(&stage.authority, &stage.authority);
    let builder = Client::builder().lease(Duration::from_millis(600));
    let client = builder.build(&redis).unwrap();
    let mut eye = stage.server.connect();
    let lock = client.lock("orders:42");
    let guard = soon(lock.acquire()).await.unwrap();
    // By the watchdog.
    wait_for_renewals(&mut eye, 1);
    let same = lock.clone();
    let waiter = tokio::spawn(async move { same.acquire().await });
    observe::wait_for_waiters(&mut eye, "orders:42", 1);
    soon(guard.release()).await.unwrap();
    let guard = soon(waiter).await.unwrap().unwrap();
    assert_eq!(soon(lock.info()).await.unwrap().token, Some(guard.token()));
    assert!(soon(lock.acquire_within(Duration::from_millis(100))).await.unwrap().is_none());
    soon(guard.release()).await.unwrap();
    soon(client.settled()).await;
    assert_eq!(eye.run("EXISTS orders:42"), Value::Integer(0));

    // And nothing else.
    assert!(matches!(soon(client.lock("other").acquire()).await, Err(Error::Denied(_))));
    assert!(matches!(soon(lock.force_release()).await, Err(Error::Denied(_))));
    assert!(matches!(soon(client.list(10)).await, Err(Error::Denied(_))));
    eye.call(cmd!["ACL", "SETUSER", "shop", "-lock.renew"]);
    let guard = soon(lock.acquire()).await.unwrap();
    soon(guard.lost()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_trusts_somebody_else_is_not_connected() {
    let stage = Stage::set();
    let strangers = Authority::new();
    for redis in [
        stage.login(&strangers, &stage.authority),
        stage.login(&stage.authority, &strangers),
        redis::Client::open(format!("redis://shop:secret@localhost:{}/", stage.tls_port)).unwrap(),
    ] {
        let builder = Client::builder().reply_timeout(Duration::from_secs(2));
        let client = builder.build(&redis).unwrap();
        let told = soon(client.lock("orders:42").try_acquire()).await.unwrap_err();
        assert!(matches!(told, Error::Connection(_) | Error::Timeout), "{told:?}");
    }
    stage.server.assert_alive();
}

/// The nodes name each other's port for TLS to those who come that way.
#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_of_a_cluster_are_talked_to_with_tls() {
    let authority = Authority::new();
    let files = TempDir::with_prefix("kvlock-tls-").unwrap();
    // Redis 7.0 names one port only.
    let chosen = Kind::chosen();
    let kind = if chosen.is_redis_7_0() { Kind::named("redis-8") } else { chosen };
    let ports = [port::free(), port::free(), port::free()];
    let node = |tls_port| {
        let options = Server::options().kind(&kind).config("tls-port", tls_port);
        authority.certified(options, "127.0.0.1", &files)
    };
    let cluster = Cluster::start_each(ports.map(node), 0);
    let cli = "CONFIG SET requirepass secret";
    cluster.nodes().iter().for_each(|node| drop(node.connect().run(cli)));

    let seed = format!("rediss://:secret@127.0.0.1:{}/", ports[0]);
    let seed = login(seed, &authority, &authority).get_connection_info().clone();
    let client = soon(Client::connect(Address::cluster([seed]).unwrap())).await.unwrap();
    for number in 0..30 {
        let guard = soon(client.lock(format!("k{number}")).acquire()).await.unwrap();
        soon(guard.release()).await.unwrap();
    }
    for node in cluster.nodes() {
        let mut eye = node.connect();
        eye.run("AUTH secret");
        assert!(observe::info_number(&mut eye, "kvlock_granted") > 0);
    }
}
