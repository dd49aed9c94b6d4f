//! A real cluster: node processes, joined by `redis-cli --cluster create`.

use crate::options::Options;
use crate::resp::Value;
use crate::server::Server;
use crate::{cmd, observe, wait};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest wait for the nodes to agree, or for a replica to take over.
pub(crate) const AGREEMENT: Duration = Duration::from_secs(60);

/// All nodes of a cluster. They are killed when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Starts `masters` masters (at least three), which share the slots, with `replicas` replicas each. All
    /// nodes load the module. Returns when every node reports that the cluster is up, and every replica
    /// follows.
    pub fn start(masters: usize, replicas: usize) -> Self {
        Self::start_with(&Server::options(), masters, replicas)
    }

    /// Like [`start`](Self::start), with these options for all nodes.
    pub fn start_with(options: &Options, masters: usize, replicas: usize) -> Self {
        let count = masters * (1 + replicas);
        Self::start_each((0..count).map(|_| options.clone()), replicas)
    }

    /// Like [`start`](Self::start), with a node for each of these options.
    pub fn start_each(options: impl IntoIterator<Item = Options>, replicas: usize) -> Self {
        let nodes: Vec<Server> = options.into_iter().map(|o| o.cluster().start()).collect();
        let cluster = Self { nodes };
        let addresses = cluster.addresses(" ");
        cluster.redis_cli(&format!("create {addresses} --cluster-replicas {replicas}"));
        cluster.wait_until_agreed();
        cluster
    }

    /// The nodes. Those that were masters after the start come first.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The cluster's URL for the client, with all nodes.
    pub fn url(&self) -> String {
        format!("redis-cluster://{}", self.addresses(","))
    }

    fn addresses(&self, separator: &str) -> String {
        self.nodes.iter().map(address).collect::<Vec<_>>().join(separator)
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: impl AsRef<[u8]>) -> i64 {
        self.nodes[0].connect().call(cmd!["CLUSTER", "KEYSLOT", key.as_ref()]).integer()
    }

    /// The master that has the slot of the key, as the first living node sees it.
    pub fn node_for(&self, key: impl AsRef<[u8]>) -> &Server {
        let slot = self.slot_of(key);
        let asked = self.nodes.iter().find(|node| node.is_running()).expect("a living node");
        let port = port_of(slot, &asked.connect().run("CLUSTER SLOTS"));
        let port = port.unwrap_or_else(|| panic!("nobody has slot {slot}"));
        self.nodes.iter().find(|node| i64::from(node.port()) == port).expect("it is one of ours")
    }

    /// The identifier of a node in the cluster.
    pub fn id_of(&self, node: &Server) -> String {
        node.connect().run("CLUSTER MYID").text()
    }

    /// A replica of the given master, among the nodes that run. Waits until there is one: on a busy machine, nodes
    /// are also replaced without a fault.
    pub fn replica_of(&self, master: &Server) -> &Server {
        let follows = |node: &&Server| {
            node.is_running()
                && observe::info_field(&mut node.connect(), "master_port")
                    == Some(master.port().to_string())
        };
        wait::until("it has a replica", AGREEMENT, || {
            self.nodes.iter().find(follows).ok_or_else(|| "none".to_owned())
        })
    }

    /// Waits until a replica has taken over, and all living nodes see it as a master.
    pub fn wait_for_takeover(&self, replica: &Server) {
        wait::until("the replica has taken over", AGREEMENT, || {
            match observe::info_field(&mut replica.connect(), "role") {
                Some(role) if role == "master" => Ok(()),
                role => Err(format!("{role:?}")),
            }
        });
        let id = self.id_of(replica);
        for node in self.nodes.iter().filter(|node| node.is_alive()) {
            let mut node = node.connect();
            wait::until("all know it", AGREEMENT, || {
                let nodes = node.run("CLUSTER NODES").text();
                let line = nodes.lines().find(|line| line.starts_with(&id)).unwrap_or_default();
                // The first eight fields describe the node. Its slots follow.
                let has_slots = line.split(' ').nth(8).is_some();
                if line.contains("master") && has_slots { Ok(()) } else { Err(nodes) }
            });
        }
    }

    /// Runs a coordinated failover from a master to its replica. Returns the replica.
    pub fn fail_over(&self, master: &Server) -> &Server {
        let replica = self.replica_of(master);
        let mut there = replica.connect();
        let mut asked: Option<Instant> = None;
        wait::until("the replica has taken over", AGREEMENT, || {
            // The replica gives up after five seconds if its master does not agree.
            if asked.is_none_or(|at| at.elapsed() > Duration::from_secs(6)) {
                asked = Some(Instant::now());
                there.run("CLUSTER FAILOVER");
            }
            if is_master(replica) { Ok(()) } else { Err(there.run("ROLE").to_string()) }
        });
        replica
    }

    /// Moves the slots from 0 to `slots - 1` with their keys from one node to another, as an operator would.
    /// The node `from` must have them. Returns when all nodes agree again.
    pub fn reshard(&self, from: &Server, to: &Server, slots: u32) {
        let [source, target, at] = [self.id_of(from), self.id_of(to), address(&self.nodes[0])];
        self.wait_until_checked(&at);
        self.redis_cli(&format!(
            "reshard {at} --cluster-from {source} --cluster-to {target} --cluster-slots {slots}"
        ));
        wait::until("all nodes see where the slots are", AGREEMENT, || {
            self.tell_masters(to, &target, slots);
            self.has_one_view()
        });
        self.wait_until_agreed();
    }

    /// Announces `to`, the new node of the lowest slots, to each master that does not know it. `redis-cli` has
    /// done so too. But an older message of the previous node may arrive later, and Redis 7.0 then believes
    /// the older message.
    fn tell_masters(&self, to: &Server, target: &str, slots: u32) {
        for master in self.nodes.iter().filter(|node| node.is_running() && is_master(node)) {
            let mut master = master.connect();
            let seen = master.run("CLUSTER SLOTS");
            let port = Some(i64::from(to.port()));
            for slot in (0..i64::from(slots)).filter(|slot| port_of(*slot, &seen) != port) {
                master.run(&format!("CLUSTER SETSLOT {slot} NODE {target}"));
            }
        }
    }

    /// Starts one more node, a master without slots. Returns when all nodes know the new node.
    pub fn join(&mut self, options: &Options) {
        let node = options.clone().cluster().start();
        self.redis_cli(&format!("add-node {} {}", address(&node), address(&self.nodes[0])));
        self.nodes.push(node);
        self.wait_until_agreed();
    }

    /// Takes the last node, which must have no slots, out of the cluster, and kills it.
    pub fn leave(&mut self) {
        let node = self.nodes.pop().expect("a node");
        self.redis_cli(&format!("del-node {} {}", address(&self.nodes[0]), self.id_of(&node)));
        drop(node);
        self.wait_until_agreed();
    }

    /// Waits until redis-cli finds nothing wrong with the cluster: otherwise it refuses to move slots.
    fn wait_until_checked(&self, at: &str) {
        let cli = self.nodes[0].kind().cli();
        wait::until("redis-cli finds the cluster in order", AGREEMENT, || {
            let check = Command::new(&cli).args(["--cluster", "check", at]).output();
            let check = check.expect("run redis-cli");
            let text = || String::from_utf8_lossy(&check.stdout).into_owned();
            if check.status.success() { Ok(()) } else { Err(text()) }
        });
    }

    /// Waits until all living nodes report that the cluster is up, the replicas among them follow their
    /// masters, and all have the same view of the cluster.
    pub fn wait_until_agreed(&self) {
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            let mut connection = node.connect();
            wait::until("the cluster is up", AGREEMENT, || {
                let info = connection.run("CLUSTER INFO").text();
                let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
                let up = info.contains("cluster_state:ok\r")
                    && info.contains("cluster_slots_ok:16384\r")
                    && info.contains(&known);
                let link = observe::info_field(&mut connection, "master_link_status");
                if up && link.as_deref() != Some("down") {
                    Ok(())
                } else {
                    Err(format!("{link:?} {info}"))
                }
            });
        }
        self.wait_for_one_view();
    }

    /// Waits until all living nodes have the same view of all nodes. Before that, a request may be redirected
    /// twice, and a replica may not get the votes to take over. The view includes the epochs: a node that
    /// does not know the latest epoch could use it again for its next slots. Then one of the two nodes with
    /// that epoch could lose its slots.
    fn wait_for_one_view(&self) {
        wait::until("all nodes see the same roles and slots", AGREEMENT, || self.has_one_view());
    }

    fn has_one_view(&self) -> Result<(), String> {
        let views: Vec<_> =
            self.nodes.iter().filter(|node| node.is_running()).map(roles_as_seen_by).collect();
        let one = views.windows(2).all(|pair| pair[0] == pair[1]);
        if one { Ok(()) } else { Err(format!("{views:#?}")) }
    }

    fn redis_cli(&self, line: &str) {
        let mut command = Command::new(self.nodes[0].kind().cli());
        command.arg("--cluster").args(line.split(' ')).arg("--cluster-yes");
        let output = command.output().expect("run redis-cli");
        let text = String::from_utf8_lossy(&output.stdout);
        // Some versions report a failed step and still exit with 0.
        let failed = !output.status.success() || text.contains("[ERR]");
        assert!(
            !failed,
            "{command:?}: {}\n{text}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Returns whether the node reports that it is a master.
pub fn is_master(node: &Server) -> bool {
    observe::info_field(&mut node.connect(), "role").as_deref() == Some("master")
}

/// Returns whether a reply is the redirection of the given kind, `MOVED` or `ASK`.
pub fn is_redirect(reply: &Value, kind: &str) -> bool {
    matches!(reply, Value::Error { code, .. } if code == kind)
}

/// The epoch of each node, and the latest epoch, as known to the given node.
pub(crate) fn epochs(node: &Server) -> Vec<String> {
    nodes_as_seen_by(node, |words| format!("{} {}", words[0], words[6]))
}

/// The name, role, primary, epoch and slots of each node, and the latest epoch.
fn roles_as_seen_by(node: &Server) -> Vec<String> {
    nodes_as_seen_by(node, |words| {
        let replica = words[2].contains("slave");
        format!("{} {replica} {} {} {}", words[0], words[3], words[6], words[8..].join(" "))
    })
}

/// A text for each node, made by `of` from the node's line of `CLUSTER NODES`, and the latest epoch.
fn nodes_as_seen_by(node: &Server, of: impl Fn(&[&str]) -> String) -> Vec<String> {
    let mut connection = node.connect();
    let text = connection.run("CLUSTER NODES").text();
    // Fields of a line: name, address, flags, master, two times, epoch, link, slots.
    let words = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut nodes: Vec<String> = words.map(|words| of(&words)).collect();
    nodes.sort_unstable();
    nodes.extend(observe::cluster_info_field(&mut connection, "cluster_current_epoch"));
    nodes
}

/// The port of the master that has the given slot, in an answer to `CLUSTER SLOTS`.
fn port_of(slot: i64, slots: &Value) -> Option<i64> {
    let mut ranges = slots.elements().iter();
    let range = ranges.find(|range| (range[0].integer()..=range[1].integer()).contains(&slot))?;
    Some(range[2][1].integer())
}

fn address(node: &Server) -> String {
    format!("127.0.0.1:{}", node.port())
}
