//! `kvlock run` and `kvlock elect`: from the lock to the exit code.

use crate::arguments::{Address, Elect, Run, Share};
use crate::child::{Child, End};
use crate::failure::{Failure, LOST, NOT_ACQUIRED, SIGNALLED};
use crate::held::Held;
use crate::say;
use crate::server::Server;
use crate::show::name;
use crate::signals::{Came, Signals, suffer};
use crate::supervise::{Outcome, Terms, Watch};
use crate::terminal::{self, Terminal};
use crate::time::since_boot;
use kvlock::{Client, Error};
use nix::sys::signal::Signal;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// How long after this process is gone what is bound to it is free. `--help` says so too.
const SESSION: Duration = Duration::from_secs(10);

/// Less leaves no time to stop a command before the lease ends.
const LEASE_MIN: Duration = Duration::from_secs(1);

/// How long a server may take to answer, however short the wait is to be.
const PROMPT: Duration = Duration::from_secs(2);

/// How much later than asked for a server may say that the time to wait is over.
const LATE: Duration = Duration::from_secs(1);

/// How long to wait for what is left to be done at the end.
const SETTLING: Duration = Duration::from_secs(2);

/// Ten years.
const EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// How it ended.
enum Exit {
    Code(u8),
    /// Of a key that everybody in our process group has got: we die of it too, so that the script
    /// that started us sees it. `alone`: the group has not got it.
    Interrupt {
        alone: bool,
    },
}

pub(crate) fn run(address: &Address, task: Run) -> Result<ExitCode, Failure> {
    start(address, task, None)
}

/// `kvlock elect`: the same of a candidate, who begins again when it is lost.
pub(crate) fn elect(address: &Address, task: Elect) -> Result<ExitCode, Failure> {
    let run = Run {
        wait: None,
        nonblock: false,
        shared: false,
        permits: None,
        lease: task.lease,
        hold_at_least: None,
        bound: false,
        kill_after: task.kill_after,
        conflict_exit_code: NOT_ACQUIRED,
        key: task.name,
        command: task.command,
    };
    start(address, run, Some(task.value))
}

fn start(address: &Address, task: Run, value: Option<OsString>) -> Result<ExitCode, Failure> {
    if task.lease < LEASE_MIN {
        return Err(Failure::usage("the lease must be 1s or longer".to_owned()));
    }
    let server = Server::at(address)?;
    let wanted = Signals::block().map_err(of_the_system)?;
    // One thread, which starts the command and lives as long as we do: see `starter`.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let exit = runtime.map_err(of_the_system)?.block_on(async {
        let signals = Signals::listen(&wanted).map_err(of_the_system)?;
        Job { name: name(task.key.as_bytes()), task, value, server, signals }.run().await
    })?;
    Ok(ExitCode::from(match exit {
        Exit::Code(code) => code,
        Exit::Interrupt { alone } => {
            if alone {
                terminal::interrupt_our_group();
            }
            suffer(Signal::SIGINT);
            // Still here: whoever started us has it ignored.
            End::Died(Signal::SIGINT).code()
        }
    }))
}

struct Job {
    task: Run,
    /// What a candidate says of itself.
    value: Option<OsString>,
    server: Server,
    signals: Signals,
    /// Of the lock, to be shown.
    name: String,
}

impl Job {
    async fn run(mut self) -> Result<Exit, Failure> {
        let lease = self.task.lease;
        let believed = if self.task.bound { lease.min(SESSION) } else { lease };
        let terms = Terms::new(believed, self.task.kill_after);
        let settings = Client::builder().lease(lease).margin(terms.margin).session_ttl(SESSION);
        // A candidate is there when the server is back.
        let settings = if self.value.is_some() { settings.patience(EVER) } else { settings };
        let limit = Limit::of(&self.task);
        let client = tokio::select! {
            client = limit.keep(Duration::ZERO, self.server.connect(settings)) => {
                client.unwrap_or_else(|| Err(Failure::of(&self.server.name, &Error::Timeout)))?
            }
            came = self.signals.end() => return Ok(ended_by(came.map_err(of_the_system)?)),
        };
        let exit = loop {
            match self.once(&client, limit, terms).await {
                Ok(None) => {}
                Ok(Some(exit)) => break Ok(exit),
                Err(failure) => break Err(failure),
            }
        };
        // What was granted when the wait was given up is somebody else's; no session is left behind.
        let _late = client.shutdown(SETTLING).await;
        exit
    }

    /// Acquires it, runs the command, and gives it back. `None`: a candidate is to begin again.
    async fn once(
        &mut self,
        client: &Client,
        limit: Limit,
        terms: Terms,
    ) -> Result<Option<Exit>, Failure> {
        let value = self.value.as_deref();
        let guard = tokio::select! {
            guard = limit.keep(LATE, acquire(&self.task, value, client, limit)) => {
                guard.unwrap_or(Err(Error::Timeout))
            }
            came = self.signals.end() => {
                return Ok(Some(ended_by(came.map_err(of_the_system)?)));
            }
        };
        let guard = match guard {
            Ok(guard) => guard,
            Err(error @ (Error::NotALock | Error::Invalid(_) | Error::Config(_))) => {
                return Err(Failure::of(&self.name, &error));
            }
            Err(error) => return Err(Failure::of(&self.server.name, &error)),
        };
        let Some(guard) = guard else {
            return Ok(Some(self.not_acquired()));
        };
        if let Held::Leads(leads) = &guard {
            say(&format!("{}: leading, term {}", self.name, leads.term()));
        }
        let since = Instant::now();
        let outcome = self.under(&guard, terms).await;
        if let Ok((_, Outcome::Lost(_), asked)) = outcome {
            // It has been said. What the server still has of it is given up in the background.
            drop(guard);
            return Ok(match (&self.value, asked) {
                (None, _) => Some(Exit::Code(LOST)),
                (Some(_), Some(came)) => Some(ended_by(came)),
                (Some(_), None) => None,
            });
        }
        let released = self.release(guard, since).await;
        let (exit, outcome, asked) = outcome?;
        // The keeper did it, while we were stopped.
        let killed = matches!(outcome, Outcome::Ended(End::Died(Signal::SIGKILL)));
        Ok(match self.value {
            _ if released => Some(exit),
            None => Some(Exit::Code(LOST)),
            Some(_) if killed && asked.is_none() => None,
            Some(_) => Some(exit),
        })
    }

    /// Silent if it was not meant to be a failure: cron sends every line by mail.
    fn not_acquired(&self) -> Exit {
        let code = self.task.conflict_exit_code;
        if code != 0 {
            let why = match self.task.permits {
                Some(_) => "not enough permits are free",
                None => "another owner holds the lock",
            };
            say(&format!("{}: {why}", self.name));
        }
        Exit::Code(code)
    }

    /// Runs the command.
    async fn under(
        &mut self,
        guard: &Held,
        terms: Terms,
    ) -> Result<(Exit, Outcome, Option<Came>), Failure> {
        let token = guard.token().map(|token| ("KVLOCK_TOKEN", token.to_string().into()));
        let variables =
            [("KVLOCK_KEY", self.task.key.clone()), ("KVLOCK_OWNER", guard.owner().into())];
        let variables = variables.into_iter().chain(token);
        let until =
            since_boot().map_or(Duration::MAX, |now| terms.keepers(now, guard.lease_left()));
        let mut child = Child::start(&self.task.command, variables, until)?;
        let mut watch = Watch {
            guard,
            child: &mut child,
            signals: &mut self.signals,
            terminal: Terminal::ours(),
            terms,
            name: &self.name,
            interrupted: false,
            asked_to_end: None,
            kill_by: None,
        };
        let outcome = watch.until_the_end().await.map_err(of_the_system)?;
        let (lent, interrupted) = (watch.terminal.is_lent(), watch.interrupted);
        let asked = watch.asked_to_end;
        watch.terminal.take_back();
        child.dismiss();
        let (Outcome::Ended(end) | Outcome::Lost(end)) = outcome;
        let exit = match end {
            End::Died(Signal::SIGINT) if interrupted || lent => Exit::Interrupt { alone: lent },
            _ => Exit::Code(end.code()),
        };
        Ok((exit, outcome, asked))
    }

    /// Gives the lock back, which is held since then. `false` if it had been lost.
    async fn release(&mut self, guard: Held, since: Instant) -> bool {
        let rest = self.task.hold_at_least.unwrap_or_default().saturating_sub(since.elapsed());
        let mut release = pin!(guard.release_in(rest));
        let released = tokio::select! {
            released = &mut release => released,
            // It may be one for the command that came when that had ended: so the release is not
            // dropped, but whoever is in a hurry does not wait for a server that does not answer.
            _ = self.signals.end() => match timeout(SETTLING, release).await {
                Ok(released) => released,
                Err(_) => Err(Error::Timeout),
            },
        };
        match released {
            Ok(()) => true,
            Err(error) if error.is_lost() => {
                say(&format!("{}: {error}", self.name));
                false
            }
            Err(error) => {
                say(&format!(
                    "{}: the lock could not be released, and ends with its lease: {error}",
                    self.server.name
                ));
                true
            }
        }
    }
}

/// How long it may take to have the lock, with the connection and with a server that does not answer.
#[derive(Clone, Copy)]
struct Limit {
    began: Instant,
    /// `None` if as long as it takes.
    wait: Option<Duration>,
}

impl Limit {
    fn of(task: &Run) -> Self {
        let wait = if task.nonblock { Some(Duration::ZERO) } else { task.wait };
        Self { began: Instant::now(), wait }
    }

    /// `None` when the time is over, or so much more.
    async fn keep<T>(self, late: Duration, work: impl Future<Output = T>) -> Option<T> {
        let span = self.wait.map(|wait| wait.max(PROMPT).saturating_add(late));
        // A time that is too far away to be counted is none.
        match span.and_then(|span| self.began.checked_add(span)) {
            Some(end) => timeout_at(end, work).await.ok(),
            None => Some(work.await),
        }
    }

    fn left(self) -> Option<Duration> {
        self.wait.map(|wait| wait.saturating_sub(self.began.elapsed()))
    }
}

async fn acquire(
    task: &Run,
    value: Option<&OsStr>,
    client: &Client,
    limit: Limit,
) -> Result<Option<Held>, Error> {
    let key = task.key.as_bytes();
    if let Some(value) = value {
        let election = client.election(key).value(value.as_bytes());
        return Ok(Some(Held::Leads(election.campaign().await?)));
    }
    if let Some(Share { wanted, of }) = task.permits {
        let pool = client.semaphore(key);
        pool.set_once(of).await?;
        let pool = pool.permits(wanted);
        let permits = match limit.left() {
            _ if task.nonblock => pool.try_acquire().await?,
            Some(wait) => pool.acquire_within(wait).await?,
            None => Some(pool.acquire().await?),
        };
        return Ok(permits.map(Held::Permits));
    }
    // A command may run for long: that the lock was taken away is to be known at once.
    let lock = client.lock(key).observed();
    let lock = if task.shared { lock.shared() } else { lock };
    let lock = if task.bound { lock.bound() } else { lock };
    let guard = match limit.left() {
        _ if task.nonblock => lock.try_acquire().await?,
        Some(wait) => lock.acquire_within(wait).await?,
        None => Some(lock.acquire().await?),
    };
    Ok(guard.map(Held::Lock))
}

/// A signal that came before the command was there.
fn ended_by(came: Came) -> Exit {
    if came.typed && came.signal == Signal::SIGINT {
        return Exit::Interrupt { alone: false };
    }
    Exit::Code(SIGNALLED.saturating_add(u8::try_from(came.signal as i32).unwrap_or(0)))
}

fn of_the_system(error: io::Error) -> Failure {
    Failure::trouble(format!("the system refuses: {error}"))
}
