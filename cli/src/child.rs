//! The command: a process group of its own, with a keeper.

use crate::failure::{Failure, SIGNALLED};
use crate::keeper::Keeper;
use crate::{say, starter};
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
    /// When another may be started: keepers that end at once must not keep us busy.
    next_keeper: Duration,
    /// It has been said that there is none.
    unguarded: bool,
}

/// Between the starts of two keepers.
const KEEPERS: Duration = Duration::from_secs(1);

impl Child {
    /// Runs the command, with the variables added to its environment. It may run until then; see
    /// [`may_run_until`](Self::may_run_until).
    pub(crate) fn start(
        command: &[OsString],
        variables: impl IntoIterator<Item = (&'static str, OsString)>,
        until: Duration,
    ) -> Result<Self, Failure> {
        Self::try_start(command, variables, until)
            .map_err(|error| Failure::trouble(format!("cannot start a process: {error}")))
    }

    fn try_start(
        command: &[OsString],
        variables: impl IntoIterator<Item = (&'static str, OsString)>,
        until: Duration,
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
        // The keeper is on guard, and knows until when, before the first line of the command runs.
        let guarded = until_stopped(id).and_then(|()| {
            let mut keeper = Keeper::start(id, until)?;
            keeper.until_ready().inspect_err(|_| keeper.dismiss())?;
            Ok(keeper)
        });
        match guarded {
            Ok(keeper) => {
                kill(id, Signal::SIGCONT)?;
                Ok(Self { id, keeper: Some(keeper), next_keeper: Duration::ZERO, unguarded: false })
            }
            Err(error) => {
                let _gone = killpg(id, Signal::SIGKILL);
                // So that it is nobody's zombie, whatever runs as process 1.
                let _waited = waitpid(id, None);
                Err(error)
            }
        }
    }

    /// Sends a signal to the whole group. Nobody there to get it is no error.
    pub(crate) fn signal(&self, signal: Signal) {
        let _gone = killpg(self.id, signal);
    }

    /// Tells the keeper, or another in place of one that is gone: see [`Keeper::may_run_until`].
    pub(crate) fn may_run_until(&mut self, until: Duration, now: Duration) {
        if let Some(keeper) = &mut self.keeper {
            keeper.may_run_until(until);
        } else if now >= self.next_keeper {
            // It is not waited for until it is ready: should that take long, the lock would be lost.
            match Keeper::start(self.id, until) {
                Ok(keeper) => (self.keeper, self.unguarded) = (Some(keeper), false),
                Err(_) if self.unguarded => {}
                Err(error) => {
                    self.unguarded = true;
                    say(&format!("the keeper is gone, and no other can be started: {error}"));
                }
            }
            self.next_keeper = now + KEEPERS;
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
                // Its id may be another's from now on.
                Ok(WaitStatus::Exited(id, _) | WaitStatus::Signaled(id, ..))
                    if self.keeper.as_ref().is_some_and(|keeper| keeper.id == id) =>
                {
                    self.keeper = None;
                }
                Ok(WaitStatus::Stopped(id, _)) => {
                    // It cannot do what it is there for.
                    self.keeper.iter().filter(|keeper| keeper.id == id).for_each(Keeper::kill);
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
            keeper.dismiss();
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
