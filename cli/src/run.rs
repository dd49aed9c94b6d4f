//! `kvlock run`, `kvlock elect` and `kvlock once`: acquires the lock, runs the command, and returns the exit
//! code.

use crate::arguments::{Address, Elect, Run, Share};
use crate::child::End;
use crate::execute::execute;
use crate::exit::Exit;
use crate::failure::{Failure, LOST, NOT_ACQUIRED};
use crate::held::Held;
use crate::messages;
use crate::runtime::{block_on_with_signals, refused};
use crate::server::Server;
use crate::signals::{ReceivedSignal, Signals, take_default_action};
use crate::supervise::{Outcome, Terms};
use crate::terminal;
use crate::text::name;
use kvlock::{Builder, Client, Error, Token};
use nix::sys::signal::Signal;
use std::ffi::{OsStr, OsString};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Time after which the server releases the locks that are bound to this process, if the process
/// dies or cannot reach the server. Also stated in `--help`.
const SESSION: Duration = Duration::from_secs(10);

/// Shortest lease. A shorter one would leave no time to stop the command before the lease ends.
const LEASE_MIN: Duration = Duration::from_secs(1);

/// Minimum for the time limit of connecting and acquiring, even if `--wait` is shorter.
const ANSWER_MIN: Duration = Duration::from_secs(2);

/// Extra time for the server to answer that a wait has timed out.
pub(crate) const LATE: Duration = Duration::from_secs(1);

/// Longest time for the clean-up at the end, and for a release or a store after a signal.
pub(crate) const SETTLING: Duration = Duration::from_secs(2);

/// Time since the start of this process during which it retries calls that a busy server refuses.
const BUSY_MAX: Duration = Duration::from_secs(30);

/// Pause between retries while the server is busy.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// Pause before a candidate stands for election again after an error.
const CANDIDATE_PAUSE: Duration = Duration::from_secs(1);

/// Longest wait until the message about a new term is written, so that it appears before the output of the
/// command.
const MESSAGE: Duration = Duration::from_millis(100);

/// Purpose of the lock.
pub(crate) enum Purpose {
    /// Running the command while the lock is held.
    Run,
    /// Leading an election, with the value of this candidate.
    Lead(OsString),
    /// Computing and storing the result of the command. The result is stored for `ttl`, or without a limit.
    Result { ttl: Option<Duration> },
}

impl Purpose {
    /// Returns the value of a candidate. `None` if the purpose is not an election.
    fn value(&self) -> Option<&OsStr> {
        match self {
            Self::Lead(value) => Some(value),
            Self::Run | Self::Result { .. } => None,
        }
    }
}

pub(crate) fn run(address: &Address, task: Run) -> Result<ExitCode, Failure> {
    start(address, task, Purpose::Run)
}

/// `kvlock elect`: like `run`, but stands for election again when the leadership is lost.
pub(crate) fn elect(address: &Address, task: Elect) -> Result<ExitCode, Failure> {
    let run = Run {
        wait: None,
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
        key: task.name,
        command: task.command,
    };
    start(address, run, Purpose::Lead(task.value))
}

pub(crate) fn start(address: &Address, task: Run, purpose: Purpose) -> Result<ExitCode, Failure> {
    if task.lease < LEASE_MIN {
        return Err(Failure::usage("the lease must be 1s or longer".to_owned()));
    }
    let server = Server::at(address)?;
    // The runtime has one thread, which starts the command and lives as long as the process: see
    // `starter`.
    let exit = block_on_with_signals(async |signals| {
        let name = name(task.key.as_bytes());
        Job { name, task, purpose, server, signals, waiting_in_trouble: false }.run().await
    })?;
    Ok(ExitCode::from(match exit {
        Exit::Code(code) => code,
        Exit::Interrupt { alone } => {
            messages::flush(messages::AT_EXIT);
            if alone {
                terminal::interrupt_own_group();
            }
            take_default_action(Signal::SIGINT);
            // Reached if this process ignores SIGINT, a setting that it has inherited from its parent, or if
            // it is process 1 of a container.
            End::by(Signal::SIGINT).code()
        }
    }))
}

pub(crate) struct Job {
    pub(crate) task: Run,
    purpose: Purpose,
    pub(crate) server: Server,
    pub(crate) signals: Signals,
    /// Name of the lock, for messages.
    pub(crate) name: String,
    /// `true` if this candidate cannot stand for election, and has already written the message about the
    /// reason.
    waiting_in_trouble: bool,
}

impl Job {
    async fn run(mut self) -> Result<Exit, Failure> {
        let lease = self.task.lease;
        let believed = if self.task.bound { lease.min(SESSION) } else { lease };
        let terms = Terms::new(believed, self.task.kill_after);
        let settings = Client::builder()
            .lease(lease)
            .margin(terms.margin)
            .session_ttl(SESSION)
            // The command must not run while the lease is still the short one of a grant after a wait.
            .confirm(true);
        // After `SESSION` without a connection, a candidate has lost its place in the queue anyway.
        let settings =
            if self.purpose.value().is_some() { settings.patience(SESSION) } else { settings };
        let limit = Limit::of(&self.task);
        let client = tokio::select! {
            client = limit.apply(Duration::ZERO, connect(&self.server, settings, limit)) => {
                client.unwrap_or_else(|| Err(Failure::of(&self.server.name, &Error::Timeout)))?
            }
            signal = self.signals.end() => return Ok(ended_by(signal.map_err(refused)?)),
        };
        let exit = if let Purpose::Result { ttl } = self.purpose {
            self.result(&client, ttl, limit, terms).await
        } else {
            loop {
                match self.term(&client, limit, terms).await {
                    Ok(None) => {}
                    Ok(Some(exit)) => break Ok(exit),
                    Err(failure) => break Err(failure),
                }
            }
        };
        // Releases a lock that was granted after the wait had ended, and closes the session.
        let settled = client.shutdown(SETTLING).await;
        // `OnceKey` does not report that the lock of a failed command was not released. A lost lock needs no
        // release.
        if let (Purpose::Result { .. }, false, Ok(ended)) = (&self.purpose, settled, &exit)
            && !matches!(ended, Exit::Code(LOST))
        {
            let server = &self.server.name;
            messages::send(&format!(
                "{server}: the lock may not be released, and then ends with its lease"
            ));
        }
        exit
    }

    /// Acquires the lock, runs the command, and releases the lock. `None` if a candidate must stand for
    /// election again.
    async fn term(
        &mut self,
        client: &Client,
        limit: Limit,
        terms: Terms,
    ) -> Result<Option<Exit>, Failure> {
        let value = self.purpose.value();
        let acquiring = acquire(&self.task, value, client, limit);
        let guard = tokio::select! {
            guard = limit.apply(LATE, acquiring) => {
                guard.unwrap_or(Err(Error::Timeout))
            }
            signal = self.signals.end() => return Ok(Some(ended_by(signal.map_err(refused)?))),
        };
        let guard = match guard {
            Ok(guard) => guard,
            Err(error @ (Error::NotALock | Error::Invalid(_) | Error::Config(_))) => {
                return Err(Failure::of(&self.name, &error));
            }
            Err(error) if self.purpose.value().is_some() && error.is_retryable() => {
                return self.wait_in_trouble(&error).await;
            }
            Err(error) => return Err(Failure::of(&self.server.name, &error)),
        };
        let Some(guard) = guard else {
            return Ok(Some(self.not_acquired()));
        };
        let since = Instant::now();
        self.waiting_in_trouble = false;
        if let Held::Leadership(leadership) = &guard {
            messages::send(&format!("{}: leading, term {}", self.name, leadership.term()));
            messages::flush(MESSAGE);
        }
        let Self { task, name, signals, .. } = self;
        let outcome = execute(task, name, &guard, signals, terms, false).await;
        let outcome = outcome.map(|ended| (ended.exit, ended.outcome, ended.asked_to_end));
        if let Ok((_, Outcome::Lost(_), asked)) = outcome {
            // The message about the loss has already been written. If the lock is still held at the server,
            // dropping the guard releases it in the background.
            drop(guard);
            return Ok(match (self.purpose.value(), asked) {
                (None, _) => Some(Exit::Code(LOST)),
                (Some(_), Some(signal)) => Some(ended_by(signal)),
                (Some(_), None) => None,
            });
        }
        // If nothing was run, another machine may run the command at once.
        let hold = if outcome.is_ok() { self.task.hold_at_least } else { None };
        let rest = hold.unwrap_or_default().saturating_sub(since.elapsed());
        let released = self.release(guard, rest).await;
        let (exit, outcome, asked) = outcome?;
        // The keeper sends SIGKILL if this process is stopped for too long.
        let killed = matches!(outcome, Outcome::Ended(end) if end == End::by(Signal::SIGKILL));
        Ok(match self.purpose.value() {
            _ if released => Some(exit),
            None => Some(Exit::Code(LOST)),
            Some(_) if killed && asked.is_none() => None,
            Some(_) => Some(exit),
        })
    }

    /// Pauses after an error, before a candidate stands for election again. Writes a message about the error,
    /// but only after the first of several consecutive errors.
    async fn wait_in_trouble(&mut self, error: &Error) -> Result<Option<Exit>, Failure> {
        if !self.waiting_in_trouble {
            let server = &self.server.name;
            messages::send(&format!("{server}: {error}; waits until it can stand for election"));
            self.waiting_in_trouble = true;
        }
        tokio::select! {
            () = sleep(CANDIDATE_PAUSE) => Ok(None),
            signal = self.signals.end() => Ok(Some(ended_by(signal.map_err(refused)?))),
        }
    }

    /// Writes a message about why the lock was not acquired, and returns the exit code. With exit code 0 this
    /// is not a failure, and no message is written, because cron sends each line by mail.
    pub(crate) fn not_acquired(&self) -> Exit {
        let code = self.task.conflict_exit_code;
        if code != 0 {
            let why = match self.task.permits {
                Some(_) => "not enough permits are free",
                None => "another owner holds the lock",
            };
            messages::send(&format!("{}: {why}", self.name));
        }
        Exit::Code(code)
    }

    /// Releases the lock after `rest`. Returns `false` if the lock was lost.
    async fn release(&mut self, guard: Held<'_>, rest: Duration) -> bool {
        // If this is dropped before it completes, the lock is released at once, even if it has to be held for
        // the rest of `--hold-at-least`. So then it is not dropped.
        let mut release = ManuallyDrop::new(Box::pin(guard.release_in(rest)));
        let released = tokio::select! {
            released = &mut *release => released,
            // The signal may have been sent to the command, and arrived after its end. So the release
            // continues, but with less time for a server that does not answer.
            _ = self.signals.end() => match timeout(SETTLING, &mut *release).await {
                Ok(released) => released,
                Err(_) => Err(Error::Timeout),
            },
        };
        if rest.is_zero() {
            drop(ManuallyDrop::into_inner(release));
        }
        match released {
            Ok(()) => true,
            Err(error) if error.is_lost() => {
                messages::send(&format!("{}: {error}", self.name));
                false
            }
            Err(error) => {
                let server = &self.server.name;
                messages::send(&format!(
                    "{server}: the lock could not be released, and ends with its lease: {error}"
                ));
                true
            }
        }
    }
}

/// Limit on the time to acquire the lock. Includes the time to connect and to wait for the server's answers.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    began: Instant,
    /// `None` without a limit.
    wait: Option<Duration>,
}

impl Limit {
    fn of(task: &Run) -> Self {
        let wait = if task.nonblock { Some(Duration::ZERO) } else { task.wait };
        Self { began: Instant::now(), wait }
    }

    /// Runs `work` until the limit or [`ANSWER_MIN`] after the start, whichever is later, and for `extra`
    /// beyond that. `None` if it takes longer.
    pub(crate) async fn apply<T>(
        self,
        extra: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let time = self.wait.map(|wait| wait.max(ANSWER_MIN).saturating_add(extra));
        // A time that overflows is no limit.
        match time.and_then(|time| self.began.checked_add(time)) {
            Some(end) => timeout_at(end, work).await.ok(),
            None => Some(work.await),
        }
    }

    pub(crate) fn left(self) -> Option<Duration> {
        self.wait.map(|wait| wait.saturating_sub(self.began.elapsed()))
    }

    fn left_while_busy(self) -> Duration {
        self.left().unwrap_or(Duration::MAX).min(BUSY_MAX.saturating_sub(self.began.elapsed()))
    }
}

/// Connects, and checks that the module is loaded in the server.
async fn connect(server: &Server, settings: Builder, limit: Limit) -> Result<Client, Failure> {
    let client = server.connect_lazy(settings)?;
    let ready = retry_while_busy(limit, async || client.ready().await).await;
    ready.map_err(|error| Failure::of(&server.name, &error))?;
    Ok(client)
}

/// Retries a call that the server refuses because it is loading or runs a long script, for as long as the
/// limit and [`BUSY_MAX`] allow. Not needed for acquires, which the crate retries itself.
async fn retry_while_busy<T>(
    limit: Limit,
    attempt: impl AsyncFn() -> Result<T, Error>,
) -> Result<T, Error> {
    loop {
        match attempt().await {
            Err(error)
                if matches!(error.code(), Some("BUSY" | "LOADING"))
                    && limit.left_while_busy() > Duration::ZERO =>
            {
                sleep(BUSY_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// Refuses a `--hold-at-least` that is longer than the longest lease of the server. Checked before the lock is
/// acquired, because at the release it would be too late.
async fn check_hold_at_least(task: &Run, client: &Client) -> Result<(), Error> {
    let Some(time) = task.hold_at_least.filter(|time| *time > task.lease) else {
        return Ok(());
    };
    // Only the server knows its limit. It checks the lease before the owner, and this owner holds no lock. A
    // lock of this process must not get that lease even for a moment: if the machine died then, the lock
    // would be held for so long.
    let lock = client.lock(task.key.as_bytes()).lease(time);
    match lock.adopt("kvlock-hold-at-least", Token::from(0)).await {
        Err(Error::Invalid(why)) => Err(Error::Invalid(format!("--hold-at-least: {why}"))),
        // Normally `Lost`. The acquire retries or reports any other error.
        _ => Ok(()),
    }
}

async fn acquire(
    task: &Run,
    value: Option<&OsStr>,
    client: &Client,
    limit: Limit,
) -> Result<Option<Held<'static>>, Error> {
    let key = task.key.as_bytes();
    if let Some(value) = value {
        let election = client.election(key).value(value.as_bytes());
        return Ok(Some(Held::Leadership(election.campaign().await?)));
    }
    if let Some(Share { wanted, of }) = task.permits {
        let pool = client.semaphore(key);
        retry_while_busy(limit, async || pool.set_once(of).await).await?;
        let pool = pool.permits(wanted);
        let permits = match limit.left() {
            _ if task.nonblock => pool.try_acquire().await?,
            Some(wait) => pool.acquire_within(wait).await?,
            None => Some(pool.acquire().await?),
        };
        return Ok(permits.map(Held::Permits));
    }
    check_hold_at_least(task, client).await?;
    // The lock is observed, so that after a forced release the command gets SIGTERM before the next renewal.
    let bytes = |names: &'_ [OsString]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
    let (with, under): (Vec<_>, Vec<_>) = (bytes(&task.with), bytes(&task.under));
    let lock = client.lock(key).and(with).under(under).observed();
    let lock = if task.shared { lock.shared() } else { lock };
    let lock = if task.bound { lock.bound() } else { lock };
    let guard = match limit.left() {
        _ if task.nonblock => lock.try_acquire().await?,
        Some(wait) => lock.acquire_within(wait).await?,
        None => Some(lock.acquire().await?),
    };
    Ok(guard.map(Held::Lock))
}

/// Returns the exit of this process for a signal that asked it to end.
pub(crate) fn ended_by(received: ReceivedSignal) -> Exit {
    if received.typed && received.signal == Signal::SIGINT {
        return Exit::Interrupt { alone: false };
    }
    Exit::Code(End::by(received.signal).code())
}
