//! Signals to `kvlock`.
//!
//! The signals are blocked, and a thread reads them from a descriptor. So a signal cannot end this process
//! before it is passed on to the command. The starter unblocks the signals before it executes the command.

use crate::child::End;
use crate::messages;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::{WaitOptions, wait};
use std::io;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Signals that are passed on to the command.
const PASSED_ON: [Signal; 10] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedSignal {
    pub(crate) signal: Signal,
    /// `true` if the signal has the code `SI_KERNEL`, for example because Ctrl-C was pressed: then the kernel
    /// sends it to the whole foreground process group.
    pub(crate) typed: bool,
}

pub(crate) struct Signals {
    inbox: UnboundedReceiver<ReceivedSignal>,
}

impl Signals {
    /// Blocks the signals. Must be called before a second thread exists. A signal of [`PASSED_ON`] that is
    /// ignored when the process starts, as with `nohup`, stays ignored in this process and in the command.
    pub(crate) fn block() -> io::Result<SigSet> {
        let ignored = ignored();
        let mut wanted: SigSet =
            PASSED_ON.into_iter().filter(|signal| ignored & bit(*signal) == 0).collect();
        wanted.add(Signal::SIGCHLD);
        let mut blocked = wanted;
        // With SIGTTOU blocked, even a background process may set the foreground group of the terminal.
        blocked.add(Signal::SIGTTOU);
        blocked.thread_block()?;
        Ok(wanted)
    }

    /// Starts to read the blocked signals. Must be called within the runtime.
    pub(crate) fn listen(wanted: &SigSet) -> io::Result<Self> {
        // Installs a handler, which never runs. If SIGCHLD were ignored, as is possible when the process
        // starts, the kernel would discard the wait status of the command.
        let _handler = signal(SignalKind::child())?;
        let source = SignalFd::with_flags(wanted, SfdFlags::SFD_CLOEXEC)?;
        let (outbox, inbox) = unbounded_channel();
        // Ends with the process.
        std::thread::Builder::new().spawn(move || forward(&source, &outbox))?;
        Ok(Self { inbox })
    }

    /// Returns the next signal.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no signal is lost.
    pub(crate) async fn next(&mut self) -> io::Result<ReceivedSignal> {
        self.inbox.recv().await.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Returns the next signal that asks this process to end. Stops this process at SIGTSTP, the signal of
    /// the stop key. Must only be used while no command runs, because it reaps all children that have ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn end(&mut self) -> io::Result<ReceivedSignal> {
        // Reaps children that ended at the same time as the command.
        reap();
        loop {
            let received = self.next().await?;
            match received.signal {
                Signal::SIGCHLD => reap(),
                Signal::SIGCONT | Signal::SIGWINCH => {}
                Signal::SIGTSTP => take_default_action(Signal::SIGTSTP),
                _ => return Ok(received),
            }
        }
    }
}

/// Reaps orphans of an earlier command that have ended. This process is their parent because it is a
/// subreaper.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

fn forward(source: &SignalFd, outbox: &UnboundedSender<ReceivedSignal>) {
    loop {
        let info = match source.read_signal() {
            Ok(Some(info)) => info,
            Ok(None) | Err(Errno::EINTR) => continue,
            Err(_) => return,
        };
        let number = i32::try_from(info.ssi_signo).unwrap_or_default();
        let Ok(signal) = Signal::try_from(number) else { continue };
        let received = ReceivedSignal { signal, typed: info.ssi_code == nix::libc::SI_KERNEL };
        if outbox.send(received).is_err() {
            return;
        }
    }
}

/// Applies the default action of a signal to this process. Returns if the signal has no effect, or after a
/// stopped process was continued.
pub(crate) fn take_default_action(signal: Signal) {
    let only = SigSet::from(signal);
    // These calls fail only for signals that do not exist.
    let _raised = raise(signal);
    let _unblocked = only.thread_unblock();
    let _blocked = only.thread_block();
}

/// Ends this process by a signal that it has received. Process 1 of a container cannot be ended by its own
/// signal, so it exits with the code that a shell reports for the signal.
pub(crate) fn end_by(signal: Signal) -> ExitCode {
    messages::flush(messages::AT_EXIT);
    take_default_action(signal);
    ExitCode::from(End::by(signal).code())
}

/// Returns the ignored signals as a bit set.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as i32 - 1)
}
