//! The second pair of eyes: a process that kills the command's group when `kvlock` cannot.
//!
//! The parent-death signal reaches the command alone, and nothing reaches it when `kvlock` is
//! stopped or hangs. The keeper reads from a pipe until when the group may run. It kills the group
//! when that time has passed and no later one was named, or when the pipe ends: then `kvlock` is
//! gone. When all is well it is killed itself before that.

use crate::time::since_boot;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_name;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, read};
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::time::Duration;

/// What it is called while it is that.
pub(crate) const NAME: &str = "kvlock-keeper";

/// Timers stand still while the machine is suspended, so none is longer than this.
const TICK: Duration = Duration::from_secs(1);

/// Our end of it.
pub(crate) struct Keeper {
    pub(crate) id: Pid,
    pipe: ChildStdin,
}

impl Keeper {
    /// Starts one for that process group, and returns when it is on guard.
    pub(crate) fn on_guard(group: Pid) -> io::Result<Self> {
        let mut keeper = Command::new("/proc/self/exe")
            .arg0(NAME)
            .arg(group.to_string())
            .env_clear()
            .current_dir("/")
            // Away from the keys of the terminal, and from signals to the command.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let id = Pid::from_raw(i32::try_from(keeper.id()).map_err(io::Error::other)?);
        let (Some(pipe), Some(mut ready)) = (keeper.stdin.take(), keeper.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        ready.read_exact(&mut [0])?;
        // Should the keeper be stopped, the pipe fills up one day; that must not stop us.
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { id, pipe })
    }

    /// The group may run until then, by the clock of [`since_boot`]. A keeper that somebody has
    /// killed is no reason to stop: the parent-death signal is left.
    pub(crate) fn may_run_until(&mut self, until: Duration) {
        let nanos = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        let _kept = self.pipe.write(&nanos.to_le_bytes());
    }
}

/// `kvlock-keeper <id of the group>`, with the pipe as its input.
pub(crate) fn keep(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let group = words.next().and_then(|id| id.to_str()?.parse().ok()).map(Pid::from_raw);
    let Some(group) = group else {
        return ExitCode::FAILURE;
    };
    // Its name would be that of the link by which it was started. Nobody depends on it.
    let _named = set_name(c"kvlock-keeper");
    // Nobody but SIGKILL sends it home early.
    let _blocked = SigSet::all().thread_block();
    let mut out = io::stdout();
    if out.write_all(b"!").and_then(|()| out.flush()).is_ok() {
        until_high_time();
    }
    // Gone already is what was wanted.
    let _gone = killpg(group, Signal::SIGKILL);
    ExitCode::SUCCESS
}

/// Returns when the pipe has ended or the last time that was named has come.
fn until_high_time() {
    let input = io::stdin();
    let mut until = None;
    loop {
        let left = left(until);
        if left.is_zero() {
            return;
        }
        let pause = PollTimeout::try_from(left.min(TICK)).unwrap_or(PollTimeout::ZERO);
        let mut ready = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, pause) == Ok(0) {
            continue;
        }
        let mut nanos = [0; 8];
        match read(&input, &mut nanos) {
            // Writes of eight bytes arrive whole.
            Ok(8) => until = Some(Duration::from_nanos(u64::from_le_bytes(nanos))),
            _ => return,
        }
    }
}

/// How long the group may run; rounded up, since a poll of no time would be a busy loop.
fn left(until: Option<Duration>) -> Duration {
    let (Some(until), Some(now)) = (until, since_boot()) else {
        return TICK;
    };
    let left = until.saturating_sub(now);
    if left.is_zero() { left } else { left.max(Duration::from_millis(1)) }
}
