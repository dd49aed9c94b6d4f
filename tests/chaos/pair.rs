//! A primary and its replica, which change places.

use crate::permits::PERMITS;
use crate::{CALM, Lock, Sort, WILD};
use harness::resp::ReceiveError;
use harness::{Connection, Server, Value, cmd, observe};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

/// How long it may take until there is a primary again.
const FAILOVER: Duration = Duration::from_secs(30);

/// How long a question to a server may take.
const ANSWER: Duration = Duration::from_secs(10);

/// How often a lock is left to scripts for a moment, at most: so often that it happens wherever it can.
pub(crate) const TURN_MS: &str = "2";

/// What there is none of when nobody uses the servers.
const LEFT: [&str; 6] = [
    "kvlock_waiters",
    "kvlock_sessions",
    "kvlock_session_waits",
    "kvlock_unread_outcomes",
    "blocked_clients",
    "kvlock_caught_panics",
];

/// What `PEXPIRETIME` says of a key that stays.
const NO_END: i64 = -1;

pub(crate) struct Pair {
    servers: [Server; 2],
    /// Gone after the servers.
    _dirs: [TempDir; 2],
}

/// The user as whom the load connects: it can be deleted, with all its connections.
pub(crate) const GUEST: &str = "guest";

/// Makes that user.
pub(crate) fn guest() -> Vec<Vec<u8>> {
    cmd!["ACL", "SETUSER", GUEST, "on", "nopass", "~*", "&*", "+@all"]
}

impl Pair {
    pub(crate) fn start() -> Self {
        let dirs = [memory(), memory()];
        // A crash is to be quick.
        let options = |dir: &TempDir| {
            let options = Server::options().config("crash-memcheck-enabled", "no");
            options.module_config("redisson-turn-ms", TURN_MS).dir(dir.path())
        };
        let first = options(&dirs[0]).start();
        let second = options(&dirs[1]).replica_of(&first).start();
        observe::wait_for_replica(&mut first.connect(), &mut second.connect());
        for server in [&first, &second] {
            server.connect().call(guest());
        }
        Self { servers: [first, second], _dirs: dirs }
    }

    pub(crate) fn names(&self) -> String {
        let [first, second] = &self.servers;
        format!("{} on ports {} and {}", first.kind(), first.port(), second.port())
    }

    pub(crate) fn servers(&self) -> &[Server; 2] {
        &self.servers
    }

    /// A connection to whichever is the primary now; none if there is none for long.
    pub(crate) fn connect(&self) -> Option<Connection> {
        let deadline = Instant::now() + FAILOVER;
        while Instant::now() < deadline && self.servers.iter().all(Server::is_running) {
            let primary = self.servers.iter().filter_map(open).find_map(|mut connection| {
                let role = ask(&mut connection, cmd!["ROLE"]).ok()?;
                matches!(&role, Value::Array(_)).then_some(())?;
                (role[0].text() == "master").then_some(connection)
            });
            if primary.is_some() {
                return primary;
            }
            std::thread::yield_now();
        }
        None
    }

    /// Which of the two is the primary, and which is not.
    pub(crate) fn roles(&self) -> (&Server, &Server) {
        let [first, second] = &self.servers;
        let is_primary = |server: &Server| {
            let role = observe::info_field(&mut server.connect(), "role");
            role.as_deref() == Some("master")
        };
        if is_primary(first) { (first, second) } else { (second, first) }
    }

    pub(crate) fn crashes(&self) -> usize {
        self.servers.iter().filter(|server| !server.is_alive()).count()
    }

    /// What a field of `INFO` says, of both servers together.
    pub(crate) fn sum(&self, field: &str) -> u64 {
        let alive = self.servers.iter().filter(|server| server.is_alive());
        let number = alive.map(|server| observe::info_number(&mut server.connect(), field));
        number.map(|number| u64::try_from(number).unwrap_or(0)).sum()
    }

    /// What is not as it should be when nobody uses these locks any more.
    pub(crate) fn wrongs(&self, locks: &[Lock]) -> Vec<String> {
        let crashed = self.servers.iter().filter(|server| !server.is_alive());
        let mut wrongs: Vec<String> = crashed
            .map(|server| format!("a server has crashed; its log ends:\n{}", log_end(server)))
            .collect();
        if !wrongs.is_empty() {
            return wrongs;
        }
        let (primary, replica) = self.roles();
        let (mut p, mut r) = (primary.connect(), replica.connect());
        for lock in locks {
            p.call(cmd!["SELECT", lock.db]);
            match lock.sort {
                Sort::Lock | Sort::Shared | Sort::Quiet => {
                    drop(p.call(cmd!["LOCK.FORCERELEASE", lock.key]));
                }
                Sort::Semaphore => wrongs.extend(permits_are_out(&mut p, &lock.key)),
                Sort::Latch => {}
            }
            p.call(cmd!["DEL", lock.key]);
        }
        for field in LEFT {
            for server in [&mut p, &mut r] {
                wrongs.extend(is_not_zero(server, field));
            }
        }
        wrongs.extend(self.difference());
        wrongs
    }

    /// What the replica has that the primary has not, or the other way round. Nothing must be
    /// written meanwhile.
    pub(crate) fn difference(&self) -> Option<String> {
        let (primary, replica) = self.roles();
        let (mut p, mut r) = (primary.connect(), replica.connect());
        observe::wait_for_replica(&mut p, &mut r);
        let (mut here, mut there) = (contents(&mut r), contents(&mut p));
        // What ended while we looked may have been seen on one side only.
        let now = unix_ms();
        for contents in [&mut here, &mut there] {
            contents.retain(|_, (_, until)| *until == NO_END || *until > now);
        }
        (here != there).then(|| format!("the replica has {here:?}, the primary {there:?}"))
    }
}

/// What is wrong if the permits of a semaphore that nobody uses any more do not come back.
fn permits_are_out(server: &mut Connection, key: &str) -> Option<String> {
    let deadline = Instant::now() + ANSWER;
    loop {
        match server.call(cmd!["SEM.ACQUIRE", key, "last", PERMITS, 1000]) {
            Value::Integer(_) => return None,
            Value::Error { code, .. } if code == "UNSET" => return None,
            _ if Instant::now() < deadline => std::thread::yield_now(),
            _ => {
                let info = server.call(cmd!["SEM.INFO", key, "HOLDERS", 1000]);
                return Some(format!("the permits of {key} do not come back: {info}"));
            }
        }
    }
}

/// What is wrong if that field of `INFO` does not come down to 0.
fn is_not_zero(server: &mut Connection, field: &str) -> Option<String> {
    let deadline = Instant::now() + ANSWER;
    loop {
        match observe::info_number(server, field) {
            0 => return None,
            // The server may still be about to notice that a client has gone.
            _ if Instant::now() < deadline => std::thread::yield_now(),
            left => return Some(format!("{field} is {left} at the end of a round")),
        }
    }
}

/// A folder in memory, if there is such a thing: a slow disk would look like a slow server.
fn memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    TempDir::with_prefix_in("kvlock-chaos-", parent).expect("a temporary folder")
}

fn open(server: &Server) -> Option<Connection> {
    Connection::open(server.port()).ok()
}

/// A question, without failing when the connection breaks.
pub(crate) fn ask(
    connection: &mut Connection,
    command: Vec<Vec<u8>>,
) -> Result<Value, ReceiveError> {
    connection.send(command);
    connection.receive(ANSWER)
}

/// All keys of all databases: what they hold, and until when.
fn contents(connection: &mut Connection) -> BTreeMap<(u32, String), (String, i64)> {
    let mut contents = BTreeMap::new();
    for db in [WILD, CALM] {
        connection.call(cmd!["SELECT", db]);
        for key in connection.run("KEYS *").elements().iter().map(Value::text) {
            let until = connection.call(cmd!["PEXPIRETIME", key]).integer();
            let value = if key.starts_with("kvlock:floor") {
                connection.call(cmd!["GET", key]).to_string()
            } else {
                fields(&connection.call(cmd!["HGETALL", key]))
            };
            contents.insert((db, key), (value, until));
        }
    }
    contents
}

/// The fields of a hash, which has no order.
fn fields(hash: &Value) -> String {
    let Value::Array(flat) = hash else { return hash.to_string() };
    let mut fields: Vec<String> =
        flat.chunks(2).map(|pair| format!("{} {}", pair[0], pair[1])).collect();
    fields.sort();
    fields.join(", ")
}

fn unix_ms() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_millis().try_into().unwrap_or(i64::MAX)
}

fn log_end(server: &Server) -> String {
    let log = server.log();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(80)..].join("\n")
}
