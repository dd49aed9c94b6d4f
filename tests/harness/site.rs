//! A primary with replicas and Sentinels, each server behind a [`Proxy`]. The servers and the Sentinels
//! connect to a server through its proxy, so a test can cut these connections. Clients may connect directly or
//! through the proxy.

use crate::options::Options;
use crate::proxy::Proxy;
use crate::server::Server;
use crate::{Connection, Kind, Value, cmd, observe, wait};
use std::time::{Duration, Instant};

/// The Sentinels' name for the primary.
pub const NAME: &str = "mymaster";

/// Longest duration of most waits here. Waits for the end of a failover may take twice as long.
const AGREEMENT: Duration = Duration::from_secs(60);

/// Time after which a failover that has not succeeded is requested again. Longer than the Sentinels' failover
/// timeout.
const GIVEN_UP: Duration = Duration::from_secs(10);

const SENTINELS: usize = 3;
const QUORUM: usize = 2;

/// The servers, their proxies and the Sentinels. The processes end when this is dropped.
#[derive(Debug)]
pub struct Site {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    sentinels: Vec<Server>,
}

impl Site {
    /// Starts a site with the given number of servers.
    pub fn of(servers: usize) -> Self {
        Self::start(&vec![Server::options(); servers])
    }

    /// Starts one server for each element of `options`; the first is the primary. Returns when the others
    /// follow the primary and all Sentinels know all servers and each other.
    pub fn start(options: &[Options]) -> Self {
        let proxies: Vec<Proxy> = options.iter().map(|_| Proxy::default()).collect();
        let mut servers: Vec<Server> = Vec::new();
        for (proxy, options) in proxies.iter().zip(options) {
            let mut options = options.clone().config("replica-announce-port", proxy.port());
            if let Some(primary) = proxies.first().filter(|_| !servers.is_empty()) {
                options = options.config("replicaof", format_args!("127.0.0.1 {}", primary.port()));
            }
            let server = options.start();
            proxy.lead_to(&server);
            servers.push(server);
        }
        let (kind, port) = (servers[0].kind().clone(), proxies[0].port());
        for replica in &servers[1..] {
            observe::wait_for_replica(&mut servers[0].connect(), &mut replica.connect());
        }
        let sentinels: Vec<Server> =
            (0..SENTINELS).map(|_| sentinel_at(&kind, port).start()).collect();
        wait_until_acquainted(&sentinels, servers.len() - 1);
        Self { servers, proxies, sentinels }
    }

    /// The server with the given number, reached without its proxy.
    pub fn server(&self, number: usize) -> &Server {
        &self.servers[number]
    }

    /// The server that is the [`primary`](Self::primary), reached without its proxy.
    pub fn primary_server(&self) -> &Server {
        self.server(self.primary())
    }

    /// The proxy before the given server.
    pub fn proxy(&self, number: usize) -> &Proxy {
        &self.proxies[number]
    }

    /// The Sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// Number of servers.
    pub fn size(&self) -> usize {
        self.servers.len()
    }

    /// The site's URL for the client.
    pub fn url(&self) -> String {
        let ports = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port()));
        let hosts = ports.collect::<Vec<_>>().join(",");
        format!("redis-sentinel://{hosts}/?sentinelServiceName={NAME}")
    }

    /// The number of the server that is the primary according to the first Sentinel.
    pub fn primary(&self) -> usize {
        let port = primary_port(&self.sentinels[0]);
        let is_it = |proxy: &Proxy| Some(proxy.port()) == port;
        self.proxies.iter().position(is_it).expect("it is one of ours")
    }

    /// The number of a server other than `before` that is the primary according to at least one Sentinel.
    pub fn successor_of(&self, before: usize) -> Option<usize> {
        let given_up = self.proxies[before].port();
        let port = self.sentinels.iter().filter_map(primary_port).find(|port| *port != given_up)?;
        self.proxies.iter().position(|proxy| proxy.port() == port)
    }

    /// Makes the Sentinels fail over, and returns the new primary.
    pub fn fail_over(&self) -> usize {
        let before = self.primary();
        let mut asked: Option<Instant> = None;
        // Sentinel refuses during or just after a failover, and gives up if it cannot reach the replica.
        wait::until("a failover succeeds", 2 * AGREEMENT, || {
            if self.primary() != before {
                return Ok(());
            }
            if asked.is_none_or(|at| at.elapsed() > GIVEN_UP) {
                let ask = cmd!["SENTINEL", "FAILOVER", NAME];
                let answer = self.sentinels[0].connect().call(ask);
                asked = (!answer.is_error()).then(Instant::now);
                return Err(answer.to_string());
            }
            Err("it goes on".to_owned())
        });
        self.wait_for_successor(before)
    }

    /// Waits until all Sentinels have replaced the primary `before`, and the next primary has its role.
    /// Returns the next primary.
    pub fn wait_for_successor(&self, before: usize) -> usize {
        let given_up = self.proxies[before].port();
        wait::until("the Sentinels agree on another primary", 2 * AGREEMENT, || {
            let ports: Vec<_> = self.sentinels.iter().map(primary_port).collect();
            let agreed = ports.iter().all(|port| port.is_some() && *port == ports[0]);
            if !agreed || ports[0] == Some(given_up) {
                return Err(format!("{ports:?}"));
            }
            let primary = self.primary();
            self.has_role(primary, "master").map(|()| primary)
        })
    }

    /// Waits until the given server has the given role.
    pub fn wait_for_role(&self, number: usize, role: &str) {
        wait::until("it has that role", AGREEMENT, || self.has_role(number, role));
    }

    fn has_role(&self, number: usize, role: &str) -> Result<(), String> {
        // A server that changes its role closes connections.
        let seen = Connection::open(self.servers[number].port()).ok().and_then(|mut server| {
            server.send(cmd!["ROLE"]);
            server.receive(AGREEMENT).ok()
        });
        match seen {
            Some(Value::Array(seen)) if seen[0].text() == role => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    }

    /// Waits until there is one primary, which the first Sentinel knows, and all others follow it.
    pub fn wait_until_in_order(&self) {
        // The Sentinels do not reconfigure a former primary for about ten seconds.
        wait::until("one is the primary and the others follow it", 2 * AGREEMENT, || {
            let (primary, replicas) = (self.primary(), self.size() - 1);
            let all = format!("connected_slaves:{replicas}\r");
            let states: Vec<String> = self.servers.iter().map(replication).collect();
            let in_order = states.iter().enumerate().all(|(number, state)| {
                if number == primary {
                    state.contains("role:master") && state.contains(&all)
                } else {
                    state.contains("role:slave") && state.contains("master_link_status:up")
                }
            });
            if in_order { Ok(()) } else { Err(format!("primary {primary}: {states:#?}")) }
        });
    }

    /// Waits until `count` replicas follow the given server.
    pub fn wait_for_replicas(&self, number: usize, count: i64) {
        wait::until_is("its replicas follow it", AGREEMENT, count, || {
            observe::info_number(&mut self.servers[number].connect(), "connected_slaves")
        });
    }
}

/// The replication state that a server reports, or a text in place of it if the server does not reply.
fn replication(server: &Server) -> String {
    let Ok(mut server) = Connection::open(server.port()) else { return "gone".to_owned() };
    server.send(cmd!["INFO", "replication"]);
    server.receive(AGREEMENT).map_or_else(|gone| format!("{gone:?}"), |info| info.text())
}

/// Waits until these Sentinels know each other and the given number of replicas.
fn wait_until_acquainted(sentinels: &[Server], replicas: usize) {
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

/// Options of a Sentinel that watches the given primary.
pub fn sentinel_of(primary: &Server) -> Options {
    sentinel_at(primary.kind(), primary.port())
}

/// Options of a Sentinel that watches the primary at the given port.
fn sentinel_at(kind: &Kind, port: u16) -> Options {
    Server::options()
        .kind(kind)
        .sentinel()
        .config("sentinel monitor", format_args!("{NAME} 127.0.0.1 {port} {QUORUM}"))
        .config("sentinel down-after-milliseconds", format_args!("{NAME} 1000"))
        .config("sentinel failover-timeout", format_args!("{NAME} 6000"))
}

/// The port of the primary according to the Sentinel; `None` if the Sentinel does not reply.
fn primary_port(sentinel: &Server) -> Option<u16> {
    let mut connection = Connection::open(sentinel.port()).ok()?;
    connection.send(cmd!["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
    let answer = connection.receive(AGREEMENT).ok()?;
    Some(answer[1].text().parse().expect("a port"))
}
