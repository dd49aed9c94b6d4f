//! A primary with replicas and Sentinels, each server behind a [`Proxy`]: all that the servers and
//! the Sentinels say to a server goes through its proxy, so that it can be cut off from them. Clients
//! may take either way.

use crate::options::Options;
use crate::proxy::Proxy;
use crate::sentinel::{
    AGREEMENT, NAME, SENTINELS, primary_port, sentinel_at, url_of, wait_until_acquainted,
    wait_until_agreed,
};
use crate::server::Server;
use crate::{Connection, Value, cmd, observe, wait};

/// All of them; they are killed when this is dropped.
#[derive(Debug)]
pub struct Site {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    sentinels: Vec<Server>,
}

impl Site {
    /// One server for each of these; the first is the primary. Returns when the others follow it
    /// and all Sentinels know all there is to know.
    pub fn start(options: &[Options]) -> Self {
        let proxies: Vec<Proxy> = options.iter().map(|_| Proxy::new()).collect();
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

    /// The server with that number, reached without its proxy.
    pub fn server(&self, number: usize) -> &Server {
        &self.servers[number]
    }

    /// The proxy before that server.
    pub fn proxy(&self, number: usize) -> &Proxy {
        &self.proxies[number]
    }

    /// The Sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// How many servers there are.
    pub fn size(&self) -> usize {
        self.servers.len()
    }

    /// The address of all this as the client takes it.
    pub fn url(&self) -> String {
        url_of(&self.sentinels)
    }

    /// The server that the first Sentinel takes for the primary.
    pub fn primary(&self) -> usize {
        let port = primary_port(&self.sentinels[0]);
        self.proxies.iter().position(|proxy| proxy.port() == port).expect("it is one of ours")
    }

    /// Another server than that one, if any Sentinel takes it for the primary.
    pub fn successor_of(&self, before: usize) -> Option<usize> {
        let given_up = self.proxies[before].port();
        let port = self.sentinels.iter().map(primary_port).find(|port| *port != given_up)?;
        self.proxies.iter().position(|proxy| proxy.port() == port)
    }

    /// Has the Sentinels make another server the primary, and returns that.
    pub fn fail_over(&self) -> usize {
        let before = self.primary();
        // Refused while there was one just now.
        wait::until("a failover begins", AGREEMENT, || {
            let answer = self.sentinels[0].connect().call(cmd!["SENTINEL", "FAILOVER", NAME]);
            if answer.is_error() { Err(answer.to_string()) } else { Ok(()) }
        });
        self.wait_for_successor(before)
    }

    /// Returns the next primary when the one before has been given up by all Sentinels.
    pub fn wait_for_successor(&self, before: usize) -> usize {
        wait_until_agreed(&self.sentinels, self.proxies[before].port());
        let primary = self.primary();
        self.wait_for_role(primary, "master");
        primary
    }

    /// Waits until that server has that role.
    pub fn wait_for_role(&self, number: usize, role: &str) {
        wait::until("it has that role", AGREEMENT, || {
            // A server that changes its role closes connections.
            let seen = Connection::open(self.servers[number].port()).ok().and_then(|mut server| {
                server.send(cmd!["ROLE"]);
                server.receive(AGREEMENT).ok()
            });
            match seen {
                Some(Value::Array(seen)) if seen[0].text() == role => Ok(()),
                seen => Err(format!("{seen:?}")),
            }
        });
    }

    /// Waits until there is one primary, which the first Sentinel knows, and all others follow it.
    pub fn wait_until_in_order(&self) {
        // The Sentinels let one that was deposed be for some ten seconds.
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

    /// Waits until that many replicas follow that server.
    pub fn wait_for_replicas(&self, number: usize, count: i64) {
        wait::until("its replicas follow it", AGREEMENT, || {
            let mut server = self.servers[number].connect();
            match observe::info_number(&mut server, "connected_slaves") {
                seen if seen == count => Ok(()),
                seen => Err(seen.to_string()),
            }
        });
    }
}

/// What a server says of its part; what went wrong if it does not.
fn replication(server: &Server) -> String {
    let Ok(mut server) = Connection::open(server.port()) else { return "gone".to_owned() };
    server.send(cmd!["INFO", "replication"]);
    server.receive(AGREEMENT).map_or_else(|gone| format!("{gone:?}"), |info| info.text())
}
