//! The command: a process group of its own, with a keeper.

use crate::failure::{Failure, SIGNALLED};
use crate::keeper::Keeper;
use crate::starter;
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exited(u8),
    Died(Signal),
}

impl End {
    /// As the shell has it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Died(signal) => {
                SIGNALLED.saturating_add(u8::try_from(signal as i32).unwrap_or(0))
            }
        }
    }
}

/// What has become of the command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News {
    Ended(End),
    Stopped(Signal),
}

pub(crate) struct Child {
    /// Of the command, and of its group.
    pub(crate) id: Pid,
    /// `None` once somebody has killed it.
    keeper: Option<Keeper>,
}

impl Child {
    /// Runs the command, with the variables added to its environment.
    pub(crate) fn start(
        command: &[OsString],
        variables: impl IntoIterator<Item = (&'static str, OsString)>,
    ) -> Result<Self, Failure> {
        Self::try_start(command, variables)
            .map_err(|error| Failure::trouble(format!("cannot start a process: {error}")))
    }

    fn try_start(
        command: &[OsString],
        variables: impl IntoIterator<Item = (&'static str, OsString)>,
    ) -> io::Result<Self> {
        // Whoever loses its parent becomes ours, to be waited for: so a group whose processes have
        // all ended is seen to be empty, whatever runs as process 1.
        set_child_subreaper(true)?;
        let starter = Command::new("/proc/self/exe")
            .arg0(starter::NAME)
            .arg(getpid().to_string())
            .args(command)
            .envs(variables)
            .process_group(0)
            .spawn()?;
        let id = Pid::from_raw(i32::try_from(starter.id()).map_err(io::Error::other)?);
        match until_stopped(id).and_then(|()| Keeper::on_guard(id)) {
            Ok(keeper) => {
                kill(id, Signal::SIGCONT)?;
                Ok(Self { id, keeper: Some(keeper) })
            }
            Err(error) => {
                let _gone = killpg(id, Signal::SIGKILL);
                Err(error)
            }
        }
    }

    /// Sends a signal to the whole group. Nobody there to get it is no error.
    pub(crate) fn signal(&self, signal: Signal) {
        let _gone = killpg(self.id, signal);
    }

    /// See [`Keeper::may_run_until`].
    pub(crate) fn may_run_until(&mut self, until: Duration) {
        if let Some(keeper) = &mut self.keeper {
            keeper.may_run_until(until);
        }
    }

    /// What is new since the last question; `None` when nothing is. Others of whom we are the
    /// parent are waited for on the way.
    pub(crate) fn news(&mut self) -> Option<News> {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
                Ok(WaitStatus::Exited(id, code)) if id == self.id => {
                    // The kernel keeps eight bits of it.
                    return Some(News::Ended(End::Exited(u8::try_from(code).unwrap_or(u8::MAX))));
                }
                Ok(WaitStatus::Signaled(id, signal, _)) if id == self.id => {
                    return Some(News::Ended(End::Died(signal)));
                }
                Ok(WaitStatus::Stopped(id, signal)) if id == self.id => {
                    return Some(News::Stopped(signal));
                }
                // Without it the parent-death signal is left. Its id may be another's from now on.
                Ok(WaitStatus::Exited(id, _) | WaitStatus::Signaled(id, ..))
                    if self.keeper.as_ref().is_some_and(|keeper| keeper.id == id) =>
                {
                    self.keeper = None;
                }
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return None,
                _ => {}
            }
        }
    }

    /// Whether no process of the group is left.
    pub(crate) fn is_empty(&self) -> bool {
        killpg(self.id, None) == Err(Errno::ESRCH)
    }

    /// Ends the keeper: what the command has left behind may go on.
    pub(crate) fn dismiss(self) {
        if let Some(keeper) = &self.keeper {
            let _gone = kill(keeper.id, Signal::SIGKILL);
            // So that it is nobody's zombie, whatever runs as process 1.
            let _waited = waitpid(keeper.id, None);
        }
    }
}

/// Waits until the starter has made sure that it dies with us.
fn until_stopped(id: Pid) -> io::Result<()> {
    loop {
        match waitpid(id, Some(WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => return Ok(()),
            Ok(WaitStatus::Stopped(..)) => kill(id, Signal::SIGCONT)?,
            Err(Errno::EINTR) => {}
            Ok(status) => return Err(io::Error::other(format!("it ended at once: {status:?}"))),
            Err(error) => return Err(error.into()),
        }
    }
}
