//! The process group of the command, and its keeper.

use crate::failure::{Failure, SIGNALLED};
use crate::keeper::Keeper;
use crate::{messages, starter};
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use rustix::process::{WaitOptions, wait};
use std::ffi::{OsString, c_int};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

/// End of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exited(u8),
    /// Number of the signal, which may be a real-time signal.
    Died(c_int),
}

impl End {
    pub(crate) const fn by(signal: Signal) -> Self {
        Self::Died(signal as c_int)
    }

    /// Returns the exit code that a shell reports for this end.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Died(signal) => SIGNALLED.saturating_add(u8::try_from(signal).unwrap_or(0)),
        }
    }
}

/// Change of the command's state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChildEvent {
    Ended(End),
    Stopped(Signal),
}

pub(crate) struct Child {
    /// Id of the command and of its process group.
    pub(crate) id: Pid,
    /// `None` after the keeper has ended, until another one is started.
    keeper: Option<Keeper>,
    /// Earliest time at which another keeper may be started. Keepers that end at once must not keep this
    /// process busy.
    next_keeper: Duration,
    /// `true` after a keeper could not be started and the message about that was sent. `false` again when one
    /// starts.
    unguarded: bool,
    /// Standard output of the command, if it is a pipe to this process.
    pub(crate) output: Option<ChildStdout>,
}

/// Shortest time between two attempts to replace a keeper.
const KEEPER_INTERVAL: Duration = Duration::from_secs(1);

impl Child {
    /// Starts a process that executes the command when it gets SIGCONT. Sets the variables of its environment,
    /// and removes those without a value, which this process may have inherited. The keeper lets it run until
    /// `until`, see [`set_deadline`](Self::set_deadline).
    pub(crate) fn start(
        command: &[OsString],
        variables: impl IntoIterator<Item = (&'static str, Option<OsString>)>,
        output: Stdio,
        until: Duration,
    ) -> Result<Self, Failure> {
        Self::try_start(command, variables, output, until)
            .map_err(|error| Failure::trouble(format!("cannot start a process: {error}")))
    }

    fn try_start(
        command: &[OsString],
        variables: impl IntoIterator<Item = (&'static str, Option<OsString>)>,
        output: Stdio,
        until: Duration,
    ) -> io::Result<Self> {
        // Orphans of the command become children of this process, which reaps them. Otherwise process 1 would
        // have to reap them: until then, a group whose processes have all ended looks non-empty.
        set_child_subreaper(true)?;
        let mut starter = Command::new("/proc/self/exe");
        starter.arg0(starter::NAME).arg(getpid().to_string()).args(command);
        for (name, value) in variables {
            match value {
                Some(value) => starter.env(name, value),
                None => starter.env_remove(name),
            };
        }
        let mut starter = starter.stdout(output).process_group(0).spawn()?;
        let id = Pid::from_raw(i32::try_from(starter.id()).map_err(io::Error::other)?);
        // The keeper runs and has its deadline before the command is executed.
        let keeper = wait_until_stopped(id).and_then(|()| {
            let mut keeper = Keeper::start(id, until)?;
            keeper.wait_until_ready().inspect_err(|_| keeper.dismiss())?;
            Ok(keeper)
        });
        match keeper {
            Ok(keeper) => Ok(Self {
                id,
                keeper: Some(keeper),
                next_keeper: Duration::ZERO,
                unguarded: false,
                output: starter.stdout.take(),
            }),
            Err(error) => {
                let _ended = killpg(id, Signal::SIGKILL);
                // The process is reaped here, because process 1 of a container may not reap it.
                let _waited = waitpid(id, None);
                Err(error)
            }
        }
    }

    /// Sends a signal to the whole group. A group that has ended is not an error.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ended = killpg(self.id, signal);
    }

    /// Sends the keeper a new deadline, see [`Keeper::set_deadline`]. If the keeper has ended, starts
    /// another one, at most once in [`KEEPER_INTERVAL`].
    pub(crate) fn set_deadline(&mut self, until: Duration, now: Duration) {
        if let Some(keeper) = &mut self.keeper {
            keeper.set_deadline(until);
        } else if now >= self.next_keeper {
            // Does not wait until the keeper is ready: a long wait could lose the lock.
            match Keeper::start(self.id, until) {
                Ok(keeper) => (self.keeper, self.unguarded) = (Some(keeper), false),
                Err(_) if self.unguarded => {}
                Err(error) => {
                    self.unguarded = true;
                    messages::send(&format!(
                        "the keeper is gone, and no other can be started: {error}"
                    ));
                }
            }
            self.next_keeper = now + KEEPER_INTERVAL;
        }
    }

    /// Returns the next change of the command's state. `None` if there is none at this time. Reaps other
    /// children that have ended.
    pub(crate) fn next_event(&mut self) -> Option<ChildEvent> {
        while let Ok(Some((id, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            let id = Pid::from_raw(id.as_raw_pid());
            let stopped = status.stopping_signal();
            if id == self.id {
                return Some(match (stopped, status.terminating_signal()) {
                    (Some(signal), _) => {
                        // Only these signals stop processes: SIGSTOP, SIGTSTP, SIGTTIN and SIGTTOU.
                        ChildEvent::Stopped(Signal::try_from(signal).unwrap_or(Signal::SIGSTOP))
                    }
                    (None, Some(signal)) => ChildEvent::Ended(End::Died(signal)),
                    (None, None) => {
                        let code = status.exit_status().map(u8::try_from);
                        // The kernel keeps eight bits of an exit code.
                        ChildEvent::Ended(End::Exited(code.and_then(Result::ok).unwrap_or(u8::MAX)))
                    }
                });
            }
            if stopped.is_some() {
                // A stopped keeper guards nothing. It is killed, and later replaced.
                self.keeper.iter().filter(|keeper| keeper.id == id).for_each(Keeper::kill);
            } else {
                // If the keeper was reaped, another process may get its id. This process must not signal that
                // id again.
                self.keeper = self.keeper.take().filter(|keeper| keeper.id != id);
            }
        }
        None
    }

    /// Returns whether all processes of the group have ended.
    pub(crate) fn is_group_empty(&self) -> bool {
        killpg(self.id, None) == Err(Errno::ESRCH)
    }

    /// Ends the keeper. Processes that the command has left in the background continue to run.
    pub(crate) fn dismiss_keeper(self) {
        if let Some(keeper) = &self.keeper {
            keeper.dismiss();
        }
    }
}

/// Waits until the starter has requested its parent-death signal and has stopped.
fn wait_until_stopped(id: Pid) -> io::Result<()> {
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
