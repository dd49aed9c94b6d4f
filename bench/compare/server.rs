//! The servers. Each server has its own folder and port, and ends when its handle is dropped.

use crate::contender::Needs;
use crate::machine::{self, Used};
use harness::{Server, cmd, observe};
use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;

/// Persistence and replication of a Redis server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Memory,
    AppendOnly,
    Replica,
}

#[derive(Debug)]
pub(crate) enum Backend {
    Redis { server: Box<Server>, replica: Option<Box<Server>> },
    Other(Other),
}

/// Counters of a server at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) used: Used,
    /// Memory of its processes in bytes. Shared memory counts once.
    pub(crate) resident: f64,
    /// The numeric fields of `INFO`.
    info: HashMap<String, f64>,
    /// Calls and microseconds of each command.
    commands: HashMap<String, [f64; 2]>,
}

impl Snapshot {
    /// The processor time that the server has used since `before`, in microseconds.
    pub(crate) fn cpu_us(&self, before: &Self) -> f64 {
        self.used.since(&before.used)
    }

    /// Returns whether the server is Redis, which reports more counters.
    pub(crate) fn is_redis(&self) -> bool {
        !self.info.is_empty()
    }

    pub(crate) fn info(&self, field: &str) -> f64 {
        self.info.get(field).copied().unwrap_or(0.0)
    }

    pub(crate) fn calls(&self, command: &str) -> f64 {
        self.commands.get(command).map_or(0.0, |[calls, _]| *calls)
    }

    pub(crate) fn microseconds(&self, command: &str) -> f64 {
        self.commands.get(command).map_or(0.0, |[_, microseconds]| *microseconds)
    }

    fn read(info: &str) -> Self {
        let mut snapshot = Self::default();
        for (name, value) in info.lines().filter_map(|line| line.split_once(':')) {
            let part = |begin| {
                value.split(',').find_map(|p| p.strip_prefix(begin)?.parse().ok()).unwrap_or(0.0)
            };
            if let Some(command) = name.strip_prefix("cmdstat_") {
                snapshot.commands.insert(command.to_owned(), [part("calls="), part("usec=")]);
            } else if let Ok(number) = value.trim().parse() {
                snapshot.info.insert(name.to_owned(), number);
            }
        }
        snapshot
    }
}

impl Backend {
    pub(crate) fn start(needs: Needs, setting: Setting) -> Self {
        match needs {
            // Room for more than a million waiters.
            Needs::Module => {
                let options = Server::options().module_config("max-waiters", 2_000_000);
                let options = options.module_config("user-share", 100);
                Self::redis(options.module_config("max-waiters-per-key", 2_000_000), setting)
            }
            Needs::SilentModule => {
                let options = Server::options().module_config("redisson-channel", "no");
                Self::redis(options, setting)
            }
            Needs::ThreadedModule => Self::redis(Server::options().io_threads(3), setting),
            Needs::Redis => Self::redis(Server::options().without_module(), setting),
            Needs::Etcd => Self::Other(Other::etcd()),
            Needs::Postgres => Self::Other(Other::postgres()),
            Needs::ZooKeeper => Self::Other(Other::zookeeper()),
        }
    }

    fn redis(options: harness::Options, setting: Setting) -> Self {
        let options = options.config("maxclients", 15_000);
        let options =
            if setting == Setting::AppendOnly { options.append_only("everysec") } else { options };
        let server = options.start();
        let replica = (setting == Setting::Replica).then(|| {
            let replica = Server::options().without_module().replica_of(&server).start();
            let mut primary = server.connect();
            observe::wait_for_replica(&mut primary, &mut replica.connect());
            // The replication stream starts only after the replica's first acknowledgement. The replica
            // sends one each second.
            primary.call(cmd!["SET", "a write", "to be followed"]);
            assert_eq!(primary.call(cmd!["WAIT", 1, 4_000]).integer(), 1, "the replica follows");
            primary.call(cmd!["DEL", "a write"]);
            Box::new(replica)
        });
        Self::Redis { server: Box::new(server), replica }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Redis { server, .. } => server.url(),
            Self::Other(other) => other.url.clone(),
        }
    }

    /// The Redis server. Panics if this is another kind of server.
    pub(crate) fn server(&self) -> &Server {
        match self {
            Self::Redis { server, .. } => server,
            Self::Other(_) => panic!("not a Redis"),
        }
    }

    /// Pins the server to its cores, and a replica to the cores of the load generators.
    pub(crate) fn pin(&self) {
        let (own, load) = machine::cores();
        machine::pin(&self.pids(), &own);
        if let Self::Redis { replica: Some(replica), .. } = self {
            machine::pin(&[replica.pid()], &load);
        }
    }

    fn pids(&self) -> Vec<u32> {
        match self {
            Self::Redis { server, .. } => vec![server.pid()],
            Self::Other(other) => machine::family(other.child.id()),
        }
    }

    /// The processor time that the replica has used, if there is one.
    pub(crate) fn replica_used(&self) -> Used {
        match self {
            Self::Redis { replica: Some(replica), .. } => Used::of(&[replica.pid()]),
            Self::Redis { .. } | Self::Other(_) => Used::default(),
        }
    }

    pub(crate) fn look(&self) -> Snapshot {
        let pids = self.pids();
        let (used, resident) = (Used::of(&pids), machine::resident(&pids));
        let snapshot = match self {
            Self::Redis { server, .. } => {
                Snapshot::read(&server.connect().call(cmd!["INFO", "everything"]).text())
            }
            Self::Other(_) => Snapshot::default(),
        };
        Snapshot { used, resident, ..snapshot }
    }
}

/// A server other than Redis.
#[derive(Debug)]
pub(crate) struct Other {
    url: String,
    child: Child,
    _folder: TempDir,
}

impl Other {
    fn etcd() -> Self {
        let folder = TempDir::with_prefix("kvlock-etcd-").unwrap();
        let (port, peers) = (free_port(), free_port());
        let mut command = ending_with_us(&brought("etcd").join("run"), None);
        for (name, port) in [("client", port), ("peer", peers)] {
            let advertise =
                if name == "peer" { "initial-advertise-peer" } else { "advertise-client" };
            command.arg(format!("--listen-{name}-urls=http://127.0.0.1:{port}"));
            command.arg(format!("--{advertise}-urls=http://127.0.0.1:{port}"));
        }
        command.arg(format!("--initial-cluster=default=http://127.0.0.1:{peers}"));
        command.arg("--data-dir").arg(folder.path().join("data"));
        Self::begin(command, port, format!("http://127.0.0.1:{port}"), folder)
    }

    /// Starts ZooKeeper with ticks of 500 ms. They are short, because it checks for ended sessions only once
    /// a tick.
    fn zookeeper() -> Self {
        let (folder, port) = (TempDir::with_prefix("kvlock-zookeeper-").unwrap(), free_port());
        let mut command = ending_with_us(&brought("zookeeper").join("server"), None);
        command.arg(port.to_string()).arg(folder.path().join("data")).arg("500");
        Self::begin(command, port, format!("http://127.0.0.1:{port}"), folder)
    }

    /// Starts PostgreSQL, which refuses to run as root. If this process is root, PostgreSQL runs as the user
    /// `nobody`.
    fn postgres() -> Self {
        let folder = TempDir::with_prefix("kvlock-postgres-").unwrap();
        let bin = brought("postgres").join("bin").canonicalize().unwrap();
        let (port, data) = (free_port(), folder.path().join("data"));
        let user = (nix::unistd::geteuid().is_root()).then_some("nobody");
        give_to(user, folder.path());
        let empty = EMPTY_POSTGRES.get_or_init(|| empty_postgres(&bin, user));
        let copied =
            Command::new("cp").arg("-a").arg(empty.path().join("data")).arg(&data).status();
        assert!(copied.is_ok_and(|status| status.success()), "cannot copy the empty database");
        let mut command = ending_with_us(&bin.join("postgres"), user);
        command.arg("-D").arg(&data).args(["-h", "127.0.0.1", "-c", "max_connections=1100"]);
        command.arg("-k").arg(folder.path()).arg("-p").arg(port.to_string());
        command.current_dir(folder.path());
        let url = format!("postgres://bench@127.0.0.1:{port}/postgres");
        Self::begin(command, port, url, folder)
    }

    fn begin(mut command: Command, port: u16, url: String, folder: TempDir) -> Self {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let other = Self { url, child, _folder: folder };
        harness::wait::until("the server listens", Duration::from_secs(20), || {
            TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())
        });
        // A server accepts connections a moment before it answers requests.
        std::thread::sleep(Duration::from_millis(500));
        other
    }
}

/// Folder of an empty database, which is copied for each server: creating a database takes longer than a
/// measurement.
static EMPTY_POSTGRES: OnceLock<TempDir> = OnceLock::new();

fn empty_postgres(bin: &Path, user: Option<&str>) -> TempDir {
    let folder = TempDir::with_prefix("kvlock-postgres-").unwrap();
    give_to(user, folder.path());
    let mut make = ending_with_us(&bin.join("initdb"), user);
    make.args(["--auth=trust", "--username=bench", "--no-sync", "-D"])
        .arg(folder.path().join("data"));
    make.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(make.status().unwrap().success(), "initdb failed");
    folder
}

fn give_to(user: Option<&str>, folder: &Path) {
    let Some(user) = user else { return };
    let done = Command::new("chown").arg(user).arg(folder).status();
    assert!(done.is_ok_and(|status| status.success()), "cannot chown");
}

impl Drop for Other {
    fn drop(&mut self) {
        // On SIGINT, PostgreSQL also ends its child processes.
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        let _gone = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT);
        let _status = self.child.wait();
    }
}

/// A command for a program that the kernel ends when this process ends.
fn ending_with_us(program: &Path, user: Option<&str>) -> Command {
    let mut command = Command::new("setpriv");
    if let Some(user) = user {
        command.arg(format!("--reuid={user}")).args(["--clear-groups"]);
    }
    command.args(["--pdeathsig", "TERM", "--"]).arg(program);
    command
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// The folder into which `scripts/bench` installs a program.
pub(crate) fn brought(name: &str) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    harness::kind::workspace().join(target).join("bench/peers").join(name)
}
