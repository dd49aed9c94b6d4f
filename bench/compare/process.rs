//! A running load generator.

use crate::contender::{Contender, Needs, Program};
use crate::machine;
use crate::server::brought;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longest time for the start of a load generator.
const START: Duration = Duration::from_secs(120);
const END: Duration = Duration::from_secs(30);

/// Times at which a task requested the lock, got it, sent its release, and had the reply, in nanoseconds; 0
/// for an event that had not happened at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    pub(crate) task: usize,
    pub(crate) wanted: u64,
    pub(crate) got: u64,
    pub(crate) releasing: u64,
    pub(crate) released: u64,
}

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

/// Returns the path of a contender's program. If the program or the server that it needs is absent, `Err` is
/// the reason.
pub(crate) fn program(contender: &Contender) -> Result<PathBuf, String> {
    let place = match contender.program {
        Program::Ours(name) => std::env::current_exe().unwrap().with_file_name(name),
        Program::Peer(name) => brought(name).join("run"),
    };
    let server = match contender.needs {
        Needs::Etcd => brought("etcd").join("run"),
        Needs::Postgres => brought("postgres").join("run"),
        Needs::ZooKeeper => brought("zookeeper").join("server"),
        Needs::Module | Needs::SilentModule | Needs::ThreadedModule | Needs::Redis => place.clone(),
    };
    let Some(missing) = [&place, &server].into_iter().find(|program| !program.exists()) else {
        return Ok(place);
    };
    let why = missing.with_file_name("absent");
    Err(std::fs::read_to_string(why).unwrap_or_else(|_| "not brought".to_owned()).trim().to_owned())
}

impl Process {
    pub(crate) fn start(contender: &Contender, arguments: &[String]) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program(contender).unwrap());
        command.arg(format!("proto={}", contender.proto)).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, input, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process is ready, pins it to its cores, and returns the version that it reports.
    pub(crate) fn ready(&self) -> Result<String, String> {
        let line = self.lines.recv_timeout(START).map_err(|_| "it did not start")?;
        machine::pin(&[self.pid()], &machine::cores().1);
        Ok(line.strip_prefix("ready ").ok_or_else(|| line.clone())?.to_owned())
    }

    pub(crate) fn go(&mut self, start: u64, end: u64) {
        // If the process has ended, the write fails. Later reads of its output report that.
        let _gone = writeln!(self.input, "go {start} {end}");
    }

    /// The next line that the process prints.
    pub(crate) fn line(&self) -> Result<String, String> {
        self.lines.recv_timeout(END).map_err(|_| "it says nothing".to_owned())
    }

    /// The lines that the process prints before `done`.
    pub(crate) fn lines(&self) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(END) {
                Ok(line) if line == "done" => return Ok(lines),
                Ok(line) => lines.push(line),
                Err(_) => return Err("it did not end as it should".to_owned()),
            }
        }
    }

    /// Returns the cycles that the process prints. Adds `first` to its task numbers, which start at 0.
    pub(crate) fn records(&self, first: usize) -> Result<Vec<Cycle>, String> {
        self.lines()?.iter().map(|line| parse(line, first).ok_or_else(|| line.clone())).collect()
    }
}

fn parse(line: &str, first: usize) -> Option<Cycle> {
    let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
    let [task, wanted, got, releasing, released] = <[u64; 5]>::try_from(numbers).ok()?;
    let task = first + usize::try_from(task).ok()?;
    Some(Cycle { task, wanted, got, releasing, released })
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
