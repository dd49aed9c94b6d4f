//! A client that follows redirects, as every client of a cluster does.

use harness::{Connection, Value, cmd};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long an answer may take: longer than any wait of the traffic.
const PATIENCE: Duration = Duration::from_secs(20);

/// One connection to each node, and where each key was last said to be.
pub(crate) struct Client {
    nodes: BTreeMap<u16, Connection>,
    homes: BTreeMap<String, u16>,
    first: u16,
}

/// Where to go with a command.
enum Place {
    At(u16),
    /// There, and with the word that makes an importing node serve it.
    Asking(u16),
}

impl Client {
    pub(crate) fn new(ports: &[u16]) -> Self {
        let connect = |port: &u16| (*port, Connection::open(*port).unwrap());
        let nodes = ports.iter().map(connect).collect();
        Self { nodes, homes: BTreeMap::new(), first: ports[0] }
    }

    /// The answer of the node that serves the key now. `before` and `after` hear of every single
    /// try, with its answer.
    pub(crate) fn call<T>(
        &mut self,
        key: &str,
        command: &[Vec<u8>],
        mut before: impl FnMut() -> T,
        mut after: impl FnMut(T, &Value),
    ) -> Value {
        let mut place = Place::At(self.home_of(key));
        loop {
            let (Place::At(port) | Place::Asking(port)) = place;
            let node = self.nodes.get_mut(&port).unwrap_or_else(|| panic!("no node {port}"));
            let asks = matches!(place, Place::Asking(_));
            if asks {
                node.send(cmd!["ASKING"]);
            }
            let mark = before();
            node.send(command);
            if asks {
                super::ok(&node.receive(PATIENCE).unwrap());
            }
            let reply = node.receive(PATIENCE).unwrap_or_else(|why| panic!("{key}: {why}"));
            after(mark, &reply);
            place = match redirect(&reply) {
                Some(Place::At(port)) => {
                    self.homes.insert(key.to_owned(), port);
                    Place::At(port)
                }
                Some(asking) => asking,
                None if is_momentary(&reply) => Place::At(self.home_of(key)),
                None => return reply,
            };
        }
    }

    fn home_of(&self, key: &str) -> u16 {
        self.homes.get(key).copied().unwrap_or(self.first)
    }
}

fn redirect(reply: &Value) -> Option<Place> {
    let Value::Error { code, text } = reply else { return None };
    let port = || text.rsplit(':').next().and_then(|port| port.parse().ok());
    match code.as_str() {
        "MOVED" => port().map(Place::At),
        "ASK" => port().map(Place::Asking),
        _ => None,
    }
}

/// Ask again, and the answer is another one.
fn is_momentary(reply: &Value) -> bool {
    matches!(reply, Value::Error { code, .. } if code == "TRYAGAIN" || code == "CLUSTERDOWN")
}
