//! Tests of the program `kvlock` with real processes and a real server.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "these are tests: a panic is how one fails"
)]

mod cluster;
mod elect;
mod loss;
mod metrics;
mod older;
mod once;
mod process;
mod resolver;
mod run;
mod sentinel;
mod show;
mod signals;
mod stderr;
mod terminal;
mod top;
mod trouble;

use harness::{Connection, Server, Value, cmd, wait};
use process::{Process, Started};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Limit for everything that a test waits for.
const SOON: Duration = Duration::from_secs(30);

/// Functions for scripts. `ready` writes the id of the shell into a file. `idle` then returns after a
/// trapped signal. The child process of `idle` reads a pipe that only the shell can write to, so it
/// ends with the shell. `ready` opens the pipe for it: if the shell had ended already, the child would wait
/// for a writer without end.
const FUNCTIONS: &str = "
    ready() { mkfifo pipe-$$; exec 3<>pipe-$$ 4<pipe-$$; echo $$ >${1:-pid}; }
    idle() { (exec 3>&-; read _ <&4) & wait; }
";

/// A server, a connection to control it, and a folder in which commands run.
struct Stage {
    server: Server,
    control: Connection,
    folder: TempDir,
}

impl Stage {
    fn set() -> Self {
        Self::of(Server::start())
    }

    fn of(server: Server) -> Self {
        let control = server.connect();
        Self { control, server, folder: TempDir::with_prefix("kvlock-cli-").unwrap() }
    }

    /// The program with these arguments, not started.
    fn kvlock(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvlock"));
        command.args(arguments).env("KVLOCK_URL", self.server.url()).current_dir(&self.folder);
        command
    }

    fn start(&self, arguments: &[&str]) -> Started {
        Started::new(self.kvlock(arguments))
    }

    /// Starts `kvlock run` of a script, with these options before the key `k`.
    fn run(&self, options: &[&str], script: &str) -> Started {
        let script = format!("{FUNCTIONS}{script}");
        self.start(&[&["run"], options, &["k", "--", "sh", "-c", &script]].concat())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits for the line that a command writes into a file, and returns it.
    fn line(&self, file: &str) -> String {
        wait::until("the command has written a line", SOON, || {
            let text = std::fs::read_to_string(self.path(file)).map_err(|e| e.to_string())?;
            text.strip_suffix('\n').map(str::to_owned).ok_or(text)
        })
    }

    /// The process whose id a command writes into a file.
    fn process(&self, file: &str) -> Process {
        Process::of_the_test(self.line(file).parse().unwrap())
    }

    /// Acquires the lock for another owner, with a long lease.
    fn take_lock(&mut self) {
        let reply = self.control.run("LOCK.ACQUIRE k another 600000");
        assert_eq!(reply[1], Value::Integer(1), "{reply}");
    }

    fn is_free(&mut self) -> bool {
        self.control.call(cmd!["EXISTS", "k"]) == Value::Integer(0)
    }

    /// Makes another owner wait for the lock, on a connection of its own. Returns when that owner
    /// is in the queue.
    fn next_in_line(&mut self) -> Connection {
        let mut next = self.server.connect();
        next.send(cmd!["LOCK.WAIT", "k", "next", 600_000, 0]);
        harness::observe::wait_for_waiters(&mut self.control, "k", 1);
        next
    }
}

/// Waits until the connection is granted the lock.
fn granted(next: &mut Connection) {
    let reply = next.receive(SOON).unwrap();
    assert_eq!(reply[1], Value::Integer(1), "{reply}");
}
