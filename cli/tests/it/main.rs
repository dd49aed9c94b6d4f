//! The program `kvlock` with real processes and a real server.

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

/// Longer than anything here takes, and shorter than what would be worth waiting for.
const SOON: Duration = Duration::from_secs(30);

/// For scripts: `ready` writes the id of the shell into a file, `idle` then returns when a signal that
/// is trapped has come. What it starts ends with the shell, because it reads from a pipe to which
/// nobody else can write.
const FUNCTIONS: &str = "
    ready() { mkfifo pipe-$$; exec 3<>pipe-$$; echo $$ >${1:-pid}; }
    idle() { (exec 3>&-; read _ <pipe-$$) & wait; }
";

/// A server, somebody who looks on, and a folder in which commands run.
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

    /// The program with these arguments, not yet started.
    fn kvlock(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvlock"));
        command.args(arguments).env("KVLOCK_URL", self.server.url()).current_dir(&self.folder);
        command
    }

    fn start(&self, arguments: &[&str]) -> Started {
        Started::new(self.kvlock(arguments))
    }

    /// `kvlock run` of a script, with these options before the key `k`.
    fn run(&self, options: &[&str], script: &str) -> Started {
        let script = format!("{FUNCTIONS}{script}");
        self.start(&[&["run"], options, &["k", "--", "sh", "-c", &script]].concat())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A line that a command has written, once it is there.
    fn line(&self, file: &str) -> String {
        wait::until("the command has written a line", SOON, || {
            let text = std::fs::read_to_string(self.path(file)).map_err(|e| e.to_string())?;
            text.strip_suffix('\n').map(str::to_owned).ok_or(text)
        })
    }

    /// The process that a command has named in that file.
    fn process(&self, file: &str) -> Process {
        Process::of_the_test(self.line(file).parse().unwrap())
    }

    /// Somebody else takes the lock for a long time.
    fn taken(&mut self) {
        let reply = self.control.run("LOCK.ACQUIRE k somebody 600000");
        assert_eq!(reply[1], Value::Integer(1), "{reply}");
    }

    fn is_free(&mut self) -> bool {
        self.control.call(cmd!["EXISTS", "k"]) == Value::Integer(0)
    }

    /// Somebody else waits for the lock, on a connection of his own, and has been seen to wait.
    fn next_in_line(&mut self) -> Connection {
        let mut next = self.server.connect();
        next.send(cmd!["LOCK.WAIT", "k", "next", 600_000, 0]);
        harness::observe::wait_for_waiters(&mut self.control, "k", 1);
        next
    }
}

/// Waits until it has the lock.
fn granted(next: &mut Connection) {
    let reply = next.receive(SOON).unwrap();
    assert_eq!(reply[1], Value::Integer(1), "{reply}");
}
