//! A real primary with replicas, and three Sentinels that watch over them.

use crate::kind::Kind;
use crate::options::Options;
use crate::server::Server;
use crate::{cmd, observe, wait};
use std::time::Duration;

/// By what name the Sentinels know the primary.
pub const NAME: &str = "mymaster";

/// How long a failover and what follows from it may take.
pub(crate) const AGREEMENT: Duration = Duration::from_secs(60);

pub(crate) const SENTINELS: usize = 3;
const QUORUM: usize = 2;

/// All of them; they are killed when this is dropped.
#[derive(Debug)]
pub struct Watched {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Watched {
    /// A primary with that many replicas, all with the module. Returns when the replicas follow
    /// and all Sentinels know all there is to know.
    pub fn start(replicas: usize) -> Self {
        let primary = Server::start();
        let replica = |_| Server::options().replica_of(&primary).start();
        let replicas: Vec<_> = (0..replicas).map(replica).collect();
        for replica in &replicas {
            observe::wait_for_replica(&mut primary.connect(), &mut replica.connect());
        }
        let sentinels = (0..SENTINELS).map(|_| sentinel_of(&primary).start()).collect();
        let servers = [primary].into_iter().chain(replicas).collect();
        let watched = Self { servers, sentinels };
        wait_until_acquainted(&watched.sentinels, watched.servers.len() - 1);
        watched
    }

    /// The servers; after the start the primary is the first.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The Sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The address of all this as the client takes it.
    pub fn url(&self) -> String {
        url_of(&self.sentinels)
    }

    /// Asks for another primary, and returns it when it is one and all Sentinels say so.
    pub fn fail_over(&self) -> &Server {
        let before = self.primary();
        let first = &self.sentinels[0];
        // Refused while there is one or was just now; given up when the Sentinel does not reach the replica.
        wait::until("a failover succeeds", AGREEMENT, || {
            if primary_port(first) != before.port() {
                return Ok(());
            }
            Err(first.connect().call(cmd!["SENTINEL", "FAILOVER", NAME]).to_string())
        });
        self.wait_for_successor(before)
    }

    /// Returns the next primary when the one before has been given up by all Sentinels.
    pub fn wait_for_successor(&self, before: &Server) -> &Server {
        wait_until_agreed(&self.sentinels, before.port());
        let primary = self.primary();
        wait::until("it is a primary", AGREEMENT, || {
            let role = observe::info_field(&mut primary.connect(), "role");
            if role.as_deref() == Some("master") { Ok(()) } else { Err(format!("{role:?}")) }
        });
        primary
    }

    /// The server that the first Sentinel takes for the primary.
    pub fn primary(&self) -> &Server {
        let port = primary_port(&self.sentinels[0]);
        self.servers.iter().find(|server| server.port() == port).expect("it is one of ours")
    }
}

/// Waits until these Sentinels agree on another primary than the one at that port.
pub(crate) fn wait_until_agreed(sentinels: &[Server], given_up: u16) {
    wait::until("the Sentinels agree on another primary", AGREEMENT, || {
        let ports: Vec<_> = sentinels.iter().map(primary_port).collect();
        let agreed = ports[0] != given_up && ports.iter().all(|port| *port == ports[0]);
        if agreed { Ok(()) } else { Err(format!("{ports:?}")) }
    });
}

/// Waits until these Sentinels know each other and that many replicas.
pub(crate) fn wait_until_acquainted(sentinels: &[Server], replicas: usize) {
    for sentinel in sentinels {
        let mut connection = sentinel.connect();
        wait::until("it knows the others", AGREEMENT, || {
            let known = connection.call(cmd!["SENTINEL", "MASTER", NAME]);
            let is = |field: &str, count: usize| known.field(field).text() == count.to_string();
            let all = is("num-other-sentinels", sentinels.len() - 1) && is("num-slaves", replicas);
            if all { Ok(()) } else { Err(known.to_string()) }
        });
    }
}

/// The address of what these Sentinels watch over.
pub(crate) fn url_of(sentinels: &[Server]) -> String {
    let ports = sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port()));
    let hosts = ports.collect::<Vec<_>>().join(",");
    format!("redis-sentinel://{hosts}/?sentinelServiceName={NAME}")
}

/// A Sentinel that watches over that primary, to be started.
pub fn sentinel_of(primary: &Server) -> Options {
    sentinel_at(primary.kind(), primary.port())
}

/// A Sentinel that watches over the primary that is reached at that port.
pub(crate) fn sentinel_at(kind: &Kind, port: u16) -> Options {
    Server::options()
        .kind(kind)
        .sentinel()
        .config("sentinel monitor", format_args!("{NAME} 127.0.0.1 {port} {QUORUM}"))
        .config("sentinel down-after-milliseconds", format_args!("{NAME} 1000"))
        .config("sentinel failover-timeout", format_args!("{NAME} 6000"))
}

/// At what port that Sentinel says that the primary is.
pub(crate) fn primary_port(sentinel: &Server) -> u16 {
    let answer = sentinel.connect().call(cmd!["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
    answer[1].text().parse().expect("a port")
}
