//! Options with which a server starts.

use crate::kind::Kind;
use crate::module_file;
use crate::server::Server;
use std::ffi::OsString;
use std::fmt::{Display, Write as _};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Options of a server. Made by [`Server::options`].
#[derive(Clone, Debug)]
pub struct Options {
    kind: Kind,
    module: Option<Vec<String>>,
    provoke: bool,
    config: Vec<(String, String)>,
    io_threads: Option<u32>,
    pub(crate) sentinel: bool,
    pub(crate) env: Vec<(String, OsString)>,
    pub(crate) port: Option<u16>,
    pub(crate) dir: Option<PathBuf>,
    in_memory: bool,
}

impl Options {
    pub(crate) fn new() -> Self {
        Self {
            kind: Kind::chosen(),
            module: Some(Vec::new()),
            provoke: false,
            config: Vec::new(),
            io_threads: chosen_io_threads(),
            sentinel: false,
            env: Vec::new(),
            port: None,
            dir: None,
            in_memory: false,
        }
    }

    /// Sets the server program. The default is [`Kind::chosen`].
    pub fn kind(mut self, kind: &Kind) -> Self {
        self.kind = kind.clone();
        self
    }

    /// Starts the server without the module.
    pub fn without_module(mut self) -> Self {
        self.module = None;
        self
    }

    /// Loads the module with the feature `provoke`: see [`module_file::provoke_path`].
    pub fn provoke(mut self) -> Self {
        self.provoke = true;
        self
    }

    /// Sets an environment variable of the server, at each of its starts.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Loads the module with `name value` among its arguments.
    pub fn module_config(mut self, name: &str, value: impl Display) -> Self {
        self.module.get_or_insert_default().extend([name.to_owned(), value.to_string()]);
        self
    }

    /// Adds a line of configuration. It overrides the same option in the harness's own lines.
    pub fn config(mut self, name: &str, value: impl Display) -> Self {
        self.config.push((name.to_owned(), value.to_string()));
        self
    }

    /// Sets the number of I/O threads. The default is [`chosen_io_threads`].
    pub fn io_threads(mut self, number: u32) -> Self {
        self.io_threads = Some(number);
        self
    }

    /// Enables the append-only file. Its `appendfsync` is `always`, `everysec` or `no`.
    pub fn append_only(self, fsync: &str) -> Self {
        self.config("appendonly", "yes").config("appendfsync", fsync)
    }

    /// Puts the server's temporary folder into `/dev/shm`, if the machine has that folder. An `fsync` is then
    /// fast.
    pub fn in_memory(mut self) -> Self {
        self.in_memory = true;
        self
    }

    /// A new temporary folder for the server.
    pub(crate) fn temporary_dir(&self) -> TempDir {
        let memory = Path::new("/dev/shm");
        let dir = if self.in_memory && memory.is_dir() {
            TempDir::with_prefix_in("kvlock-", memory)
        } else {
            TempDir::with_prefix("kvlock-")
        };
        dir.expect("a temporary folder")
    }

    /// Makes the server a replica of the given server. When [`start`](Self::start) returns, the replica may
    /// not have caught up: see [`observe::wait_for_replica`](crate::observe::wait_for_replica).
    pub fn replica_of(self, primary: &Server) -> Self {
        let port = primary.port();
        self.config("replicaof", format_args!("127.0.0.1 {port}"))
    }

    /// Makes the server a node of a cluster. The port of its bus is 10,000 above its port.
    pub fn cluster(self) -> Self {
        self.config("cluster-enabled", "yes").config("cluster-node-timeout", 2000)
    }

    /// Starts a Sentinel instead of a server. Add its configuration with [`config`](Self::config).
    pub fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self.without_module()
    }

    /// Sets the port. The default is a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Sets the server's folder, instead of a temporary one. The folder is not deleted afterwards.
    pub fn dir(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_owned());
        self
    }

    /// Starts the server, and returns when it is ready for commands. Panics with the end of its log if that
    /// fails, or takes longer than 60 seconds.
    pub fn start(self) -> Server {
        Server::launch(self)
    }

    pub(crate) fn chosen_kind(&self) -> &Kind {
        &self.kind
    }

    /// The content of the configuration file. Except for a Sentinel, it permits `DEBUG` and `MODULE` for tests,
    /// and disables automatic snapshots.
    pub(crate) fn file(&self, port: u16, dir: &Path) -> String {
        let mut file = format!("port {port}\ndir {}\nprotected-mode no\n", dir.display());
        if !self.sentinel {
            file += "save \"\"\nenable-debug-command yes\nenable-module-command yes\nrepl-diskless-sync-delay 0\n";
        }
        if let Some(number) = self.io_threads
            && !self.sentinel
        {
            file += &io_threads(&self.kind, number);
        }
        for (name, value) in &self.config {
            writeln!(file, "{name} {value}").unwrap();
        }
        if let Some(arguments) = &self.module {
            let module =
                if self.provoke { module_file::provoke_path() } else { module_file::path() };
            writeln!(file, "loadmodule {} {}", module.display(), arguments.join(" ")).unwrap();
        }
        file
    }
}

/// Number of I/O threads in `KVLOCK_IO_THREADS`. If it is not set, returns `None`, and servers use their
/// default: no I/O threads.
pub fn chosen_io_threads() -> Option<u32> {
    let named = std::env::var("KVLOCK_IO_THREADS").ok()?;
    Some(named.parse().unwrap_or_else(|_| panic!("KVLOCK_IO_THREADS: {named} is not a number")))
}

/// Lines that make a server use the given number of I/O threads. By default, Redis 7.0 does not use them for
/// reads, and Valkey does not use them for every event.
fn io_threads(kind: &Kind, number: u32) -> String {
    let option = if kind.name().starts_with("valkey") {
        "events-per-io-thread 0"
    } else {
        "io-threads-do-reads yes"
    };
    format!("io-threads {number}\n{option}\n")
}
