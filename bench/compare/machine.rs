//! The machine: processor time of processes, their cores, and a description.

use crate::server::brought;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// The processor time that some processes have used so far, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Used(BTreeMap<u32, f64>);

impl Used {
    pub(crate) fn of(pids: &[u32]) -> Self {
        // The clock of a process counts in nanoseconds, and includes threads that have ended.
        let clock = |pid: u32| {
            let id = ClockId::pid_cpu_clock_id(Pid::from_raw(pid.try_into().ok()?)).ok()?;
            Some((pid, Duration::from(clock_gettime(id).ok()?).as_secs_f64() * 1e6))
        };
        Self(pids.iter().filter_map(|pid| clock(*pid)).collect())
    }

    /// Processor time used since `before`. Processes that have ended in between are left out.
    pub(crate) fn since(&self, before: &Self) -> f64 {
        let earlier = |pid| before.0.get(pid).copied().unwrap_or(0.0);
        self.0.iter().map(|(pid, now)| now - earlier(pid)).sum()
    }
}

/// Processor time of all cores in ticks: the busy time, and the total time.
pub(crate) fn busy() -> [f64; 2] {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let words = text.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8);
    let ticks: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    let idle = ticks.get(3).unwrap_or(&0.0) + ticks.get(4).unwrap_or(&0.0);
    let all: f64 = ticks.iter().sum();
    [all - idle, all]
}

/// Share of the machine's processor time that other processes used between two readings of [`busy`]. `ours`
/// is the time that the measured processes used, in microseconds.
pub(crate) fn elsewhere(before: [f64; 2], after: [f64; 2], ours: f64) -> f64 {
    // The kernel counts in hundredths of a second.
    const TICK_US: f64 = 10_000.0;
    let [busy, all] = [after[0] - before[0], (after[1] - before[1]).max(1.0)];
    ((busy - ours / TICK_US) / all).max(0.0)
}

/// A process and its children.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(child) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The process name, in brackets, may contain spaces and brackets.
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
        if parent.and_then(|parent| parent.parse::<u32>().ok()) == Some(pid) {
            family.push(child);
        }
    }
    family
}

/// Returns the memory of these processes in bytes, with their shares of common pages.
pub(crate) fn resident(pids: &[u32]) -> f64 {
    let kilobytes = |pid: &u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    pids.iter().filter_map(kilobytes).sum::<f64>() * 1024.0
}

fn threads(pid: u32) -> Vec<u32> {
    let Ok(folder) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    folder.flatten().filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect()
}

/// The cores of the server and of the load. The last core belongs to the server alone, unless it is the only
/// core.
pub(crate) fn cores() -> (Vec<usize>, Vec<usize>) {
    static ALL: OnceLock<usize> = OnceLock::new();
    let all = *ALL.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    if all == 1 { (vec![0], vec![0]) } else { (vec![all - 1], (0..all - 1).collect()) }
}

/// Limits this process to the cores of the load; processes that it starts inherit this. So a runtime can
/// adapt its number of threads to these cores.
pub(crate) fn pin_children() {
    pin(&[std::process::id()], &cores().1);
}

/// Pins these processes to these cores, with their current and future threads.
pub(crate) fn pin(pids: &[u32], cores: &[usize]) {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core).unwrap();
    }
    for thread in pids.iter().flat_map(|pid| threads(*pid)) {
        // A thread may have ended in between.
        let _gone = sched_setaffinity(Pid::from_raw(thread.try_into().unwrap()), &set);
    }
}

/// Facts about the machine and software on which the figures depend.
pub(crate) fn describe() -> BTreeMap<String, String> {
    let field = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once([':', '='])
            .map_or("", |(_, value)| value)
            .trim()
            .trim_matches('"')
            .to_owned()
    };
    let (server, load) = cores();
    [
        ("processor", field("/proc/cpuinfo", "model name")),
        ("cores", (server.len().max(1) + load.len()).to_string()),
        ("pinning", format!("server on core {server:?}, load on cores {load:?}")),
        ("memory", field("/proc/meminfo", "MemTotal")),
        ("system", field("/etc/os-release", "PRETTY_NAME")),
        (
            "kernel",
            fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        ),
        ("redis-server", word("redis-server", &["--version"], "v=")),
        ("etcd server", first_line(&brought("etcd").join("run"), "--version")),
        ("PostgreSQL server", first_line(&brought("postgres").join("run"), "--version")),
        ("Java", first_line("java".as_ref(), "--version")),
        ("Go", first_line("go".as_ref(), "version")),
        ("Node", first_line("node".as_ref(), "--version")),
        ("Python", first_line("python3".as_ref(), "--version")),
        ("kvlock at", kvlock()),
        ("day", first_line("date".as_ref(), "+%F")),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// The commit that is measured.
fn kvlock() -> String {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).current_dir(harness::kind::workspace()).output();
        output
            .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
            .unwrap_or_default()
    };
    let commit = git(&["rev-parse", "--short=7", "HEAD"]);
    // Only changes in these folders count. A measurement itself changes results and documents.
    let changed = git(&[
        "status",
        "--porcelain",
        "--",
        "module",
        "client",
        "bench",
        ":(exclude)bench/results",
    ]);
    if changed.is_empty() { commit } else { format!("{commit}, with changes") }
}

/// First line of a program's output for the given argument, such as its version. Empty if there is no such
/// program.
fn first_line(program: &Path, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// The first word of a program's output that begins with `begin`, without this prefix.
fn word(program: &str, arguments: &[&str], begin: &str) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let found = text.split_whitespace().find_map(|word| word.strip_prefix(begin));
    found.unwrap_or("?").to_owned()
}
