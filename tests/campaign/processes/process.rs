//! Client processes: the campaign starts, signals and kills them, and reads their reports.

use super::messages::{Message, Role, Tenure, now};
use harness::launch::{killed_with_us, launch};
use harness::wait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Time limit of a wait.
pub(super) const SOON: Duration = Duration::from_secs(60);

/// Reports of a process.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Prefix of the names of the process's owners.
    client: Option<String>,
    /// The process's last report of each tenure, by number.
    pub(super) tenures: BTreeMap<u64, Tenure>,
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) violations: Vec<String>,
    /// `true` if the output of the process has ended.
    over: bool,
}

/// A client process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) client: String,
    child: Mutex<Child>,
    heard: Arc<Mutex<Heard>>,
    /// Time just after the campaign killed the process.
    killed: OnceLock<Duration>,
}

/// Path of this program, which is also the program of the clients.
pub(super) fn this_program() -> PathBuf {
    std::env::current_exe().expect("this program")
}

/// A command that runs the program with lower priority.
pub(super) fn nice(by: u8, program: &Path) -> Command {
    let mut command = killed_with_us(Path::new("nice"));
    command.args(["-n", &by.to_string()]).arg(program);
    command
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    /// Starts a process with the given command, and returns when it is connected.
    pub(super) fn start(name: String, role: Role, mut command: Command) -> Self {
        let word = serde_json::to_string(&role).expect("it can be serialized");
        command.arg("client").arg(word).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = launch(command).expect("start a client");
        let heard = Arc::<Mutex<Heard>>::default();
        let (out, hearing) = (child.stdout.take().expect("it is piped"), heard.clone());
        thread::spawn(move || hear(out, &hearing));
        let (child, killed) = (Mutex::new(child), OnceLock::new());
        let mut process = Self { name, role, client: String::new(), child, heard, killed };
        process.client = process.wait_for("it is connected", |heard| heard.client.clone());
        process
    }

    pub(super) fn heard(&self) -> MutexGuard<'_, Heard> {
        locked(&self.heard)
    }

    /// Waits until `look` finds something in the reports.
    pub(super) fn wait_for<T>(&self, what: &str, look: impl Fn(&Heard) -> Option<T>) -> T {
        wait::until(what, SOON, || look(&self.heard()).ok_or_else(|| self.name.clone()))
    }

    /// The lock that the process reports as held. Only for processes with one task.
    pub(super) fn held(&self) -> Option<Tenure> {
        let latest = self.heard().tenures.values().next_back().cloned();
        latest.filter(|tenure| tenure.released.or(tenure.lost).is_none())
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = locked(&self.child).id().try_into().expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("signal a client");
    }

    /// Kills the process, and waits until its output is read. Returns the time at which it had ended.
    pub(super) fn kill9(&self) -> Duration {
        let killed = *self.killed.get_or_init(|| {
            let mut child = locked(&self.child);
            child.kill().expect("kill a client");
            let end = child.wait().expect("wait for a client");
            if end.signal() != Some(Signal::SIGKILL as i32) {
                let gave_up = format!("Ended: {} gave up by itself", self.name);
                self.heard().violations.push(gave_up);
            }
            now()
        });
        self.wait_for("all was heard", |heard| heard.over.then_some(()));
        killed
    }
}

fn hear(out: ChildStdout, heard: &Mutex<Heard>) {
    let lines = BufReader::new(out).lines().map_while(Result::ok);
    for message in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
        let mut heard = locked(heard);
        match message {
            Message::Ready(client) => heard.client = Some(client),
            Message::Tenure(tenure) => drop(heard.tenures.insert(tenure.number, tenure)),
            Message::Count(what) => *heard.counts.entry(what).or_default() += 1,
            Message::Violation(what) => heard.violations.push(what),
        }
    }
    locked(heard).over = true;
}
