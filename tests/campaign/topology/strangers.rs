//! A primary and its replica, with strangers: clients that interfere with the locks and with other clients.
//! Clients find the primary by asking the servers for their roles.

use super::{Pair, Topology};
use crate::faults::settle;
use crate::report::Report;
use crate::round::Moment;
use crate::setting::Setting;
use crate::workload::{ClientRoute, KeyKind, Lock, WIRE_PERMITS, wire_keys};
use harness::agree::{data, differ};
use harness::random::Random;
use harness::{Connection, Server, Value, cmd, observe};
use std::path::Path;
use std::sync::Arc;
use std::thread::yield_now;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Longest time until there is a primary again.
const FAILOVER: Duration = Duration::from_secs(30);

/// Number of ways in which the workload reaches the servers.
const ROUTES: usize = 5;

/// The ACL user of the workload's clients. Strangers can delete it, which closes all its connections.
pub(crate) const GUEST: &str = "guest";

/// Fields of `INFO` that must be zero when all clients have disconnected.
const LEFT: [&str; 5] = [
    "kvlock_sessions",
    "kvlock_session_waits",
    "kvlock_unread_outcomes",
    "kvlock_observers",
    "kvlock_observed_keys",
];

/// The two servers, for clients of the current primary.
#[derive(Clone, Debug)]
pub(crate) struct WirePair(Arc<[Server; 2]>);

/// The command that creates the user [`GUEST`].
pub(crate) fn guest() -> Vec<Vec<u8>> {
    cmd!["ACL", "SETUSER", GUEST, "on", "nopass", "~*", "&*", "+@all"]
}

impl WirePair {
    /// A connection to the current primary; `None` if a server has ended, or if there is no primary within
    /// [`FAILOVER`].
    pub(crate) fn connect(&self) -> Option<Connection> {
        let deadline = Instant::now() + FAILOVER;
        while Instant::now() < deadline && self.0.iter().all(Server::is_running) {
            let primary = self.0.iter().find_map(|server| {
                let mut connection = Connection::open(server.port()).ok()?;
                let role = connection.ask(cmd!["ROLE"]).ok()?;
                let is_primary = matches!(&role, Value::Array(it) if it[0].text() == "master");
                is_primary.then_some(connection)
            });
            if primary.is_some() {
                return primary;
            }
            yield_now();
        }
        None
    }

    /// Returns whether both server processes run. Sends no command, because strangers may kill the connection.
    pub(crate) fn is_up(&self) -> bool {
        self.0.iter().all(Server::is_running)
    }
}

pub(crate) struct PairWithStrangers {
    pair: Pair,
    /// Dropped after the servers.
    _dirs: [TempDir; 2],
}

impl PairWithStrangers {
    pub(crate) fn start(setting: Setting) -> Box<dyn Topology> {
        let dirs = [in_memory(), in_memory()];
        let pair = Pair::with(setting, &[100], |options, number| {
            // Without its check of the memory, a crashed server ends quickly.
            let options = options.config("crash-memcheck-enabled", "no");
            options.dir(dirs[number].path())
        });
        for server in pair.servers() {
            server.connect().call(guest());
        }
        Box::new(Self { pair, _dirs: dirs })
    }

    /// A connection to the current primary.
    pub(crate) fn connect(&self) -> Option<Connection> {
        WirePair(self.pair.servers.clone()).connect()
    }

    /// The primary and the replica.
    pub(crate) fn roles(&self) -> (&Server, &Server) {
        self.pair.roles()
    }

    /// Difference between the data of the primary and the replica. No client may write during the comparison.
    /// Unless writes are paused, the primary may delete an expired key during the comparison, which may then
    /// count as a difference.
    pub(crate) fn difference(&self) -> Option<String> {
        let (primary, replica) = self.roles();
        observe::wait_for_replica(&mut primary.connect(), &mut replica.connect());
        let (here, there) = (data(replica), data(primary));
        differ(&here, &there).then(|| format!("the replica has {here:?}, the primary {there:?}"))
    }
}

impl Topology for PairWithStrangers {
    fn servers(&self) -> Vec<&Server> {
        self.pair.servers()
    }

    fn routes(&self, _runtime: &Runtime) -> Vec<ClientRoute> {
        vec![ClientRoute::Wire(WirePair(self.pair.servers.clone())); ROUTES]
    }

    fn keys(&self, round: u64) -> Vec<String> {
        wire_keys(round)
    }

    /// Not used: the workload chooses its leases itself.
    fn leases_ms(&self) -> &[u64] {
        &[]
    }

    fn primary(&self, random: &mut Random) -> &Server {
        self.pair.primary(random)
    }

    fn recover(&self) {
        self.servers().into_iter().for_each(settle);
        self.pair.recover();
    }

    /// Releases all locks by force, and returns the state that is left after all clients have disconnected.
    fn left_behind(&self, keys: &[String]) -> Vec<String> {
        let mut left = Vec::new();
        let mut primary = self.pair.roles().0.connect();
        for Lock { key, kind, db } in keys.iter().map(|key| Lock::of(key)) {
            primary.call(cmd!["SELECT", db]);
            match kind {
                KeyKind::Semaphore => left.extend(permits_are_out(&mut primary, &key)),
                KeyKind::Latch => {}
                _ => drop(primary.call(cmd!["LOCK.FORCERELEASE", key])),
            }
        }
        for mut server in self.servers().into_iter().map(Server::connect) {
            left.extend(observe::left_behind::<String>(&mut server, &[]));
            let counts = LEFT.map(|field| (field, observe::info_number(&mut server, field)));
            let more = counts.into_iter().filter(|(_, count)| *count != 0);
            left.extend(more.map(|(field, count)| format!("{field} is {count}")));
        }
        if left.is_empty() {
            for Lock { key, db, .. } in keys.iter().map(|key| Lock::of(key)) {
                primary.call(cmd!["SELECT", db]);
                primary.call(cmd!["DEL", key]);
            }
            left.extend(self.difference());
        }
        left
    }

    fn sum_up(&self, report: &Report) -> Option<String> {
        let turns = |server: &Server| {
            observe::info_number(&mut server.connect(), "kvlock_redisson_turns").cast_unsigned()
        };
        let count = self.servers().into_iter().filter(|server| server.is_alive()).map(turns).sum();
        report.add("moments in which locks were left to scripts", count);
        None
    }

    fn fail_over(&self, moment: &mut Moment<'_>, random: &mut Random) {
        self.pair.fail_over(moment, random);
    }
}

/// A message if not all permits of an unused semaphore are free.
fn permits_are_out(server: &mut Connection, key: &str) -> Option<String> {
    match server.call(cmd!["SEM.ACQUIRE", key, "last", WIRE_PERMITS, 1000, "HOLDS", WIRE_PERMITS]) {
        Value::Integer(_) => return None,
        Value::Error { code, .. } if code == "UNSET" => return None,
        _ => {}
    }
    let info = server.call(cmd!["SEM.INFO", key, "HOLDERS", 1000]);
    Some(format!("the permits of {key} do not come back: {info}"))
}

/// A temporary folder, on a file system in memory if possible: a slow disk would look like a slow server.
fn in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    TempDir::with_prefix_in("kvlock-campaign-", parent).expect("a temporary folder")
}
