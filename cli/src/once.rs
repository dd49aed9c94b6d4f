//! `kvlock once`: prints the stored output of a command, or runs the command and stores its output.

use crate::arguments::{Address, Once, Run};
use crate::child::End;
use crate::execute::execute;
use crate::exit::Exit;
use crate::failure::{Failure, LOST, NOT_ACQUIRED};
use crate::held::Held;
use crate::run::{Job, LATE, Limit, Purpose, SETTLING, ended_by, start};
use crate::runtime::refused;
use crate::signals::{ReceivedSignal, Signals};
use crate::supervise::{Outcome, Terms};
use crate::text::name;
use crate::{messages, output, print, written};
use kvlock::{Client, Error, Guard, OnceKey};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

pub(crate) fn once(address: &Address, task: Once) -> Result<ExitCode, Failure> {
    let run = Run {
        wait: task.wait,
        nonblock: false,
        shared: false,
        permits: None,
        with: Vec::new(),
        under: Vec::new(),
        lease: task.lease,
        hold_at_least: None,
        bound: false,
        kill_after: task.kill_after,
        conflict_exit_code: NOT_ACQUIRED,
        key: task.key,
        command: task.command,
    };
    start(address, run, Purpose::Result { ttl: task.ttl })
}

/// Reason why there is no result.
enum NoResult {
    /// The command failed, its output was too long to keep, the lock was lost, or a signal arrived. Contains
    /// the exit of this process.
    Exit(Exit),
    Failure(Failure),
    /// The client could not get the result or the lock.
    Client(Error),
}

/// Event that interrupts [`Job::make`].
enum Interrupted {
    /// A signal arrived before the command ran.
    Before(io::Result<ReceivedSignal>),
    /// The limit passed before the command ran.
    Limit,
    /// A signal arrived after the command had ended, while its output was stored.
    Store,
}

impl From<Error> for NoResult {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<Failure> for NoResult {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl Job {
    /// Prints the result: the stored output, or the output of the command if this process runs it.
    pub(crate) async fn result(
        &mut self,
        client: &Client,
        ttl: Option<Duration>,
        limit: Limit,
        terms: Terms,
    ) -> Result<Exit, Failure> {
        let once = client.once(self.task.key.as_bytes()).observed();
        let once = if let Some(ttl) = ttl { once.ttl(ttl) } else { once };
        let once = if let Some(left) = limit.left() { once.acquire_within(left) } else { once };
        let (made, printed) = match self.make(&once, limit, terms).await {
            Ok(made) => made,
            Err(NoResult::Exit(exit)) => return Ok(exit),
            Err(NoResult::Failure(failure)) => return Err(failure),
            Err(NoResult::Client(Error::NotInTime)) => return Ok(self.not_acquired()),
            Err(NoResult::Client(error @ Error::NotALock)) => {
                // The error does not say which of the two keys it is.
                let names = format!("{} or {}", self.name, name(once.lock_name()));
                return Err(Failure::of(&names, &error));
            }
            Err(NoResult::Client(error @ (Error::Invalid(_) | Error::Config(_)))) => {
                return Err(Failure::of(&self.name, &error));
            }
            Err(NoResult::Client(error)) => return Err(Failure::of(&self.server.name, &error)),
        };
        if let Some(why) = made.not_stored() {
            // Without an answer, the server may have stored it.
            let verb = match why {
                Error::Timeout | Error::Connection(_) => "may not be kept",
                _ => "is not kept",
            };
            messages::send(&format!("{}: the output {verb}: {why}", self.name));
            if why.is_lost() {
                return Ok(Exit::Code(LOST));
            }
        }
        if made.computed() {
            return printed.map(|()| Exit::Code(0));
        }
        // On another thread, so that signals end this process even if stdout is not read.
        let printed = tokio::task::spawn_blocking(move || print(&made.value));
        tokio::select! {
            printed = printed => match printed {
                Ok(printed) => printed.map(|_| Exit::Code(0)),
                Err(error) => Err(Failure::trouble(error.to_string())),
            },
            signal = self.signals.end() => Ok(ended_by(signal.map_err(refused)?)),
        }
    }

    /// Gets the stored result, or runs the command and stores its output. Also returns the outcome
    /// of writing the output of the command to stdout.
    async fn make(
        &mut self,
        once: &OnceKey,
        limit: Limit,
        terms: Terms,
    ) -> Result<(kvlock::Once<Vec<u8>>, Result<(), Failure>), NoResult> {
        let Self { task, name, signals, .. } = self;
        let (signals, begins) = (Mutex::new(signals), Notify::new());
        let mut printed = Ok(());
        let work = async |guard: &Guard| {
            begins.notify_one();
            let mut signals = signals.lock().await;
            let held = Held::Result(guard);
            let ended = execute(task, name, &held, &mut signals, terms, true).await?;
            if matches!(ended.outcome, Outcome::Lost(_)) {
                return Err(NoResult::Exit(Exit::Code(LOST)));
            }
            // Processes that the command has left in the background may still print.
            let output = tokio::select! {
                output = async { ended.output?.await.ok() } => output,
                why = held.lost() => {
                    messages::send(&format!("{name}: the lock was lost: {why}"));
                    return Err(NoResult::Exit(Exit::Code(LOST)));
                }
                signal = signals.end() => {
                    return Err(NoResult::Exit(ended_by(signal.map_err(refused)?)));
                }
            };
            let (kept, arrived) =
                output.map_or((None, Ok(())), |output| (output.kept, written(output.printed)));
            match (ended.outcome, kept) {
                (Outcome::Ended(End::Exited(0)), Some(kept)) => {
                    printed = arrived;
                    Ok(kept)
                }
                (Outcome::Ended(End::Exited(0)), None) => {
                    let most = output::MAX;
                    messages::send(&format!(
                        "{name}: the output is longer than {most} bytes, and is not kept"
                    ));
                    Err(arrived.map_or_else(NoResult::Failure, |()| NoResult::Exit(Exit::Code(0))))
                }
                _ => {
                    if let Err(failure) = arrived {
                        messages::send(&failure.message);
                    }
                    Err(NoResult::Exit(ended.exit))
                }
            }
        };
        let made = {
            let mut making = pin!(once.try_get_or(work));
            tokio::select! {
                made = &mut making => Ok(made?),
                interrupted = interrupted(&signals, &begins, limit) => match interrupted {
                    Interrupted::Before(signal) => {
                        return Err(NoResult::Exit(ended_by(signal.map_err(refused)?)));
                    }
                    Interrupted::Limit => return Err(NoResult::Client(Error::Timeout)),
                    // As in `Job::release`, the signal may have been sent to the command.
                    Interrupted::Store => match timeout(SETTLING, making).await {
                        Ok(made) => Ok(made?),
                        Err(_) => Err(Error::Timeout),
                    },
                },
            }
        };
        match made {
            Ok(made) => Ok((made, printed)),
            Err(why) => {
                messages::send(&format!("{name}: the output may not be kept: {why}"));
                Err(printed.map_or_else(NoResult::Failure, |()| NoResult::Exit(Exit::Code(0))))
            }
        }
    }
}

/// Waits for a signal to this process. Before the command runs, the signal ends this process, and so does the
/// limit if the server does not answer. While the command runs, signals are passed on to it. Then its output is
/// stored, and the signal limits the time for that.
///
/// The work notifies `begins`, and has the signals until it ends.
async fn interrupted(signals: &Mutex<&mut Signals>, begins: &Notify, limit: Limit) -> Interrupted {
    let mut before = signals.lock().await;
    let waiting = async {
        tokio::select! {
            biased;
            () = begins.notified() => None,
            signal = before.end() => Some(signal),
        }
    };
    match limit.apply(LATE, waiting).await {
        Some(None) => {}
        Some(Some(signal)) => return Interrupted::Before(signal),
        None => return Interrupted::Limit,
    }
    drop(before);
    // The mutex is fair: the work gets the signals first.
    let _received = signals.lock().await.end().await;
    Interrupted::Store
}
