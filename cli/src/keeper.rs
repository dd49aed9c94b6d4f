//! A process that kills the command's group when `kvlock` cannot.
//!
//! The parent-death signal reaches only the command, not its children. It is not sent when `kvlock` is
//! stopped or hangs. So the keeper reads deadlines of the group from a pipe. It kills the group when a
//! deadline passes and no later one was sent, or when the pipe is closed because `kvlock` has ended. When the
//! command has ended, `kvlock` kills the keeper.
//!
//! `kvlock` replaces a keeper that was killed or stopped. If `kvlock` and the keeper are killed at the same
//! moment, nothing kills the children of the command. So the keeper's name and command line do not contain
//! `kvlock`, and `pkill kvlock` does not match it.

use crate::time::since_boot;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_name;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, read};
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

/// Name (`argv[0]`) of the keeper process.
pub(crate) const NAME: &str = "lock-keeper";

/// Longest sleep before the clock is checked again. Timers do not run while the machine is suspended.
const TICK: Duration = Duration::from_secs(1);

/// Handle of `kvlock` for a keeper process.
pub(crate) struct Keeper {
    pub(crate) id: Pid,
    pipe: ChildStdin,
    ready: ChildStdout,
}

impl Keeper {
    /// Starts a keeper for a process group. Unless a later deadline is sent, the group may run until `until`.
    pub(crate) fn start(group: Pid, until: Duration) -> io::Result<Self> {
        let mut keeper = Command::new("/proc/self/exe")
            .arg0(NAME)
            .arg(group.to_string())
            // The first deadline is an argument, so that the keeper has one from the beginning.
            .arg(nanos(until).to_string())
            .env_clear()
            .current_dir("/")
            // A group of its own, so that keys of the terminal and signals to the command do not reach it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let id = Pid::from_raw(i32::try_from(keeper.id()).map_err(io::Error::other)?);
        let (Some(pipe), Some(ready)) = (keeper.stdin.take(), keeper.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let keeper = Self { id, pipe, ready };
        // If the keeper does not read, the pipe becomes full. Writes to it must not block this process.
        match fcntl(&keeper.pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)) {
            Ok(_) => Ok(keeper),
            Err(error) => {
                keeper.dismiss();
                Err(error.into())
            }
        }
    }

    /// Waits until the keeper guards the group.
    pub(crate) fn wait_until_ready(&mut self) -> io::Result<()> {
        self.ready.read_exact(&mut [0])
    }

    /// Sends a new deadline, on the clock of [`since_boot`]. If the pipe is full or closed, kills the
    /// keeper, so that it is replaced.
    pub(crate) fn set_deadline(&mut self, until: Duration) {
        if self.pipe.write(&nanos(until).to_le_bytes()).is_err() {
            self.kill();
        }
    }

    /// Kills the keeper. Its process id stays reserved until it is reaped like any child.
    pub(crate) fn kill(&self) {
        let _ended = kill(self.id, Signal::SIGKILL);
    }

    /// Kills and reaps the keeper. The group continues to run.
    pub(crate) fn dismiss(&self) {
        self.kill();
        // The keeper is reaped here, because process 1 of a container may not reap it.
        let _waited = waitpid(self.id, None);
    }
}

fn nanos(until: Duration) -> u64 {
    u64::try_from(until.as_nanos()).unwrap_or(u64::MAX)
}

/// Main function of the keeper process: `lock-keeper <id of the group> <deadline>`, with the pipe as its
/// stdin.
pub(crate) fn run(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let group = words.next().and_then(|id| id.to_str()?.parse().ok()).map(Pid::from_raw);
    let until = words.next().and_then(|nanos| nanos.to_str()?.parse().ok());
    let (Some(group), Some(until)) = (group, until.map(Duration::from_nanos)) else {
        return ExitCode::FAILURE;
    };
    // Without this call, the process is named `exe`, after the link in /proc that was executed. A failure
    // has no other effect.
    let _named = set_name(c"lock-keeper");
    // Only SIGKILL can end this process early.
    let _blocked = SigSet::all().thread_block();
    let mut out = io::stdout();
    // An error means that `kvlock` has ended, and then the pipe is closed too.
    let _reported = out.write_all(b"!").and_then(|()| out.flush());
    wait_until_due(&io::stdin(), until);
    // A group that has already ended is not an error.
    let _ended = killpg(group, Signal::SIGKILL);
    ExitCode::SUCCESS
}

/// Waits until the pipe is closed or the latest deadline has passed.
fn wait_until_due(pipe: &impl AsFd, mut until: Duration) {
    let mut pause = PollTimeout::ZERO;
    loop {
        let mut ready = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        // Deadlines that arrived while this process was stopped are read before the clock.
        if let Ok(1..) = poll(&mut ready, pause) {
            let Some(latest) = latest_deadline(pipe) else { return };
            until = latest;
        }
        let left = time_left(until);
        if left.is_zero() {
            return;
        }
        pause = PollTimeout::try_from(left.min(TICK)).unwrap_or(PollTimeout::ZERO);
    }
}

/// Reads the last of the deadlines in the pipe. `None` if the pipe is closed or cannot be read.
fn latest_deadline(pipe: &impl AsFd) -> Option<Duration> {
    // As large as the capacity of a pipe, so that one read gets all deadlines. Writes of eight bytes are
    // atomic.
    let mut deadlines = vec![0; 64 * 1024];
    let length = read(pipe, &mut deadlines).ok()?;
    let (_, last) = deadlines.get(..length)?.split_last_chunk()?;
    Some(Duration::from_nanos(u64::from_le_bytes(*last)))
}

/// Returns the time that the group may still run. At least a millisecond unless it is zero, because a poll
/// with a timeout of zero would be a busy loop.
fn time_left(until: Duration) -> Duration {
    let Some(now) = since_boot() else { return TICK };
    let left = until.saturating_sub(now);
    if left.is_zero() { left } else { left.max(Duration::from_millis(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{pipe, write};

    #[test]
    fn deadlines_in_the_pipe_are_read_before_the_clock() {
        let (reader, writer) = pipe().unwrap();
        let past = Duration::from_nanos(1);
        for until in [past, since_boot().unwrap() + TICK * 3600] {
            write(&writer, &nanos(until).to_le_bytes()).unwrap();
        }
        drop(writer);
        wait_until_due(&reader, past);
        assert_eq!(read(&reader, &mut [0; 8]), Ok(0), "it returned before it had read all");
    }
}
