//! The second pair of eyes: a process that kills the command's group when `kvlock` cannot.
//!
//! The parent-death signal reaches the command alone, and nothing reaches it when `kvlock` is
//! stopped or hangs. The keeper reads from a pipe until when the group may run. It kills the group
//! when that time has passed and no later one was named, or when the pipe ends: then `kvlock` is
//! gone. When all is well it is killed itself before that.
//!
//! `kvlock` in turn looks after the keeper: one that was killed or stopped is replaced. Neither
//! helps when both are killed at once; so the keeper's name and command line do not contain
//! `kvlock`, and `pkill kvlock` spares it.

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

/// What it is called while it is that.
pub(crate) const NAME: &str = "lock-keeper";

/// Timers stand still while the machine is suspended, so none is longer than this.
const TICK: Duration = Duration::from_secs(1);

/// Our end of it.
pub(crate) struct Keeper {
    pub(crate) id: Pid,
    pipe: ChildStdin,
    ready: ChildStdout,
}

impl Keeper {
    /// Starts one for that process group, which may run until then.
    pub(crate) fn start(group: Pid, until: Duration) -> io::Result<Self> {
        let mut keeper = Command::new("/proc/self/exe")
            .arg0(NAME)
            .arg(group.to_string())
            // Said with its start, so that it never has to be without it.
            .arg(nanos(until).to_string())
            .env_clear()
            .current_dir("/")
            // Away from the keys of the terminal, and from signals to the command.
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
        // Should it not read, the pipe fills up one day; that must not stop us.
        match fcntl(&keeper.pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)) {
            Ok(_) => Ok(keeper),
            Err(error) => {
                keeper.dismiss();
                Err(error.into())
            }
        }
    }

    /// Returns when it is on guard.
    pub(crate) fn until_ready(&mut self) -> io::Result<()> {
        self.ready.read_exact(&mut [0])
    }

    /// The group may run until then, by the clock of [`since_boot`]. A keeper that does not read
    /// what it is told is of no use: it is killed, to be replaced like one that somebody else has killed.
    pub(crate) fn may_run_until(&mut self, until: Duration) {
        if self.pipe.write(&nanos(until).to_le_bytes()).is_err() {
            self.kill();
        }
    }

    /// Its end is seen like that of any child. Until then the id is its own.
    pub(crate) fn kill(&self) {
        let _gone = kill(self.id, Signal::SIGKILL);
    }

    /// Ends it, so that the group may go on.
    pub(crate) fn dismiss(&self) {
        self.kill();
        // So that it is nobody's zombie, whatever runs as process 1.
        let _waited = waitpid(self.id, None);
    }
}

fn nanos(until: Duration) -> u64 {
    u64::try_from(until.as_nanos()).unwrap_or(u64::MAX)
}

/// `lock-keeper <id of the group> <until when it may run>`, with the pipe as its input.
pub(crate) fn keep(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let group = words.next().and_then(|id| id.to_str()?.parse().ok()).map(Pid::from_raw);
    let until = words.next().and_then(|nanos| nanos.to_str()?.parse().ok());
    let (Some(group), Some(until)) = (group, until.map(Duration::from_nanos)) else {
        return ExitCode::FAILURE;
    };
    // Its name would be that of the link by which it was started. Nobody depends on it.
    let _named = set_name(c"lock-keeper");
    // Nobody but SIGKILL sends it home early.
    let _blocked = SigSet::all().thread_block();
    let mut out = io::stdout();
    // It fails when `kvlock` is gone, and then the pipe has ended too.
    let _told = out.write_all(b"!").and_then(|()| out.flush());
    until_high_time(&io::stdin(), until);
    // Gone already is what was wanted.
    let _gone = killpg(group, Signal::SIGKILL);
    ExitCode::SUCCESS
}

/// Returns when the pipe has ended or the last time that was named has come.
fn until_high_time(pipe: &impl AsFd, mut until: Duration) {
    let mut pause = PollTimeout::ZERO;
    loop {
        let mut ready = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        // What was said while this process could not read it counts before the clock does.
        if let Ok(1..) = poll(&mut ready, pause) {
            let Some(said) = last_said(pipe) else { return };
            until = said;
        }
        let left = left(until);
        if left.is_zero() {
            return;
        }
        pause = PollTimeout::try_from(left.min(TICK)).unwrap_or(PollTimeout::ZERO);
    }
}

/// The last of the times that are in the pipe; `None` when it has ended.
fn last_said(pipe: &impl AsFd) -> Option<Duration> {
    // All that a pipe holds. Writes of eight bytes arrive whole.
    let mut said = vec![0; 64 * 1024];
    let length = read(pipe, &mut said).ok()?;
    let (_, last) = said.get(..length)?.split_last_chunk()?;
    Some(Duration::from_nanos(u64::from_le_bytes(*last)))
}

/// How long the group may run; rounded up, since a poll of no time would be a busy loop.
fn left(until: Duration) -> Duration {
    let Some(now) = since_boot() else { return TICK };
    let left = until.saturating_sub(now);
    if left.is_zero() { left } else { left.max(Duration::from_millis(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{pipe, write};

    #[test]
    fn what_was_said_in_the_meantime_counts_before_the_clock() {
        let (reader, writer) = pipe().unwrap();
        let past = Duration::from_nanos(1);
        for until in [past, since_boot().unwrap() + TICK * 3600] {
            write(&writer, &nanos(until).to_le_bytes()).unwrap();
        }
        drop(writer);
        until_high_time(&reader, past);
        assert_eq!(read(&reader, &mut [0; 8]), Ok(0), "it has gone before it had heard all");
    }
}
