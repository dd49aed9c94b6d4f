//! Processes of a test: the program, and the processes that it starts.

use super::SOON;
use harness::wait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};

/// The running program. Killed when this is dropped.
pub(crate) struct Started {
    pub(crate) child: Child,
    out: File,
    err: File,
}

/// Exit status and output of the program.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("{self:?}"))
    }

    pub(crate) fn assert_code(&self, code: i32) {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
    }

    pub(crate) fn assert_signal(&self, signal: Signal) {
        assert_eq!(self.status.signal(), Some(signal as i32), "{self:?}");
    }
}

impl Started {
    /// Starts the program without input. Output goes to files: processes that outlive the program would
    /// keep a pipe open.
    pub(crate) fn new(command: Command) -> Self {
        Self::with_input(command, Stdio::null())
    }

    pub(crate) fn with_input(mut command: Command, input: Stdio) -> Self {
        let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        command.stdin(input).stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
        Self { child: command.spawn().unwrap(), out, err }
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.id(), signal).unwrap();
    }

    /// Waits until the program has read a signal. The program blocks the signal, so it is pending
    /// until then.
    pub(crate) fn wait_until_taken(&self, signal: Signal) {
        wait::until("the signal is taken", SOON, || {
            if self.has_in_set("ShdPnd", signal) { Err("it is pending".to_owned()) } else { Ok(()) }
        });
    }

    /// Waits until the program has blocked a signal, which it reads from then on.
    pub(crate) fn wait_until_blocked(&self, signal: Signal) {
        wait::until("the signal is blocked", SOON, || {
            if self.has_in_set("SigBlk", signal) {
                Ok(())
            } else {
                Err("it is not blocked".to_owned())
            }
        });
    }

    /// Returns whether a signal set in the status of the process contains that signal.
    fn has_in_set(&self, set: &str, signal: Signal) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let mut lines = status.lines().filter_map(|line| line.split_once(":\t"));
        let bits = lines.find_map(|(name, bits)| (name == set).then_some(bits)).unwrap();
        u64::from_str_radix(bits, 16).unwrap() & (1 << (signal as i32 - 1)) != 0
    }

    /// Waits until the program has ended.
    pub(crate) fn done(mut self) -> Done {
        let status =
            wait::until("the program has ended", SOON, || match self.child.try_wait().unwrap() {
                Some(status) => Ok(status),
                None => Err(format!("out {:?}, err {:?}", read(&self.out), read(&self.err))),
            });
        Done { status, out: read(&self.out), err: read(&self.err) }
    }

    pub(crate) fn out(&self) -> String {
        read(&self.out)
    }

    pub(crate) fn err(&self) -> String {
        read(&self.err)
    }

    pub(crate) fn keeper(&self) -> Process {
        let keepers = self.called("lock-keeper");
        keepers.into_iter().next().expect("there is a keeper")
    }

    /// Living children with this text in their name or command line, as `pkill` and `pkill -f` find them.
    pub(crate) fn called(&self, what: &str) -> Vec<Process> {
        let is_meant = |(id, stat): &(i32, Stat)| {
            let line = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
            stat.is_alive() && (stat.name.contains(what) || line.contains(what))
        };
        let children = children_of(self.id().as_raw()).filter(is_meant);
        children.map(|(id, _)| Process::of(id)).collect()
    }
}

pub(crate) fn children_of(parent: i32) -> impl Iterator<Item = (i32, Stat)> {
    let ids = fs::read_dir("/proc").unwrap();
    let ids = ids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let children = ids.filter_map(|id| Some((id, stat(id)?)));
    children.filter(move |(_, stat)| stat.parent == parent)
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Reads a whole file. Does not move the position at which the program writes.
fn read(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().unwrap().len().try_into().unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A process that is not a child of the test. Its start time distinguishes it from
/// later processes with the same id.
#[derive(Debug)]
pub(crate) struct Process {
    id: i32,
    began: Option<u64>,
    ends_with_us: bool,
}

#[derive(Debug)]
pub(crate) struct Stat {
    pub(crate) name: String,
    pub(crate) state: char,
    parent: i32,
    /// The foreground group of its terminal.
    foreground: i32,
    began: u64,
}

impl Stat {
    /// Returns whether the process is neither a zombie nor dead.
    fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

/// The state of a process, if it exists.
fn stat(id: i32) -> Option<Stat> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name is in parentheses, and may contain some.
    let (head, tail) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = tail.split(' ').collect();
    Some(Stat {
        name: head.split_once(" (")?.1.to_owned(),
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        foreground: fields.get(5)?.parse().ok()?,
        began: fields.get(19)?.parse().ok()?,
    })
}

impl Process {
    /// A process that is only observed.
    fn of(id: i32) -> Self {
        Self { id, began: stat(id).map(|stat| stat.began), ends_with_us: false }
    }

    /// A process that belongs to the test. Killed when this is dropped.
    pub(crate) fn of_the_test(id: i32) -> Self {
        Self { ends_with_us: true, ..Self::of(id) }
    }

    pub(crate) fn stat(&self) -> Option<Stat> {
        stat(self.id).filter(|stat| self.began == Some(stat.began))
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.stat().is_some_and(|stat| stat.is_alive())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.id), signal).unwrap();
    }

    pub(crate) fn end(&self) {
        self.signal(Signal::SIGKILL);
        self.wait_until_gone();
    }

    pub(crate) fn wait_until_gone(&self) {
        wait::until("the process is gone", SOON, || {
            if self.is_alive() { Err(format!("{:?}", self.stat())) } else { Ok(()) }
        });
    }

    /// Waits until its group is the foreground group of the terminal.
    pub(crate) fn wait_until_in_foreground(&self) {
        wait::until("it has the terminal", SOON, || match self.stat() {
            Some(stat) if stat.foreground == self.id => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    pub(crate) fn wait_until_stopped(&self) {
        wait::until("the process has stopped", SOON, || match self.stat() {
            Some(stat) if stat.state == 'T' => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ends_with_us && self.is_alive() {
            let _gone = kill(Pid::from_raw(self.id), Signal::SIGKILL);
        }
    }
}
