//! Signals to `kvlock`, one after the other as they come.
//!
//! They are blocked, and a thread reads them from a descriptor: so none of them ends this process before it has
//! passed it on, and it can give the terminal away and take it back. The starter unblocks them
//! before it executes the command.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What is passed on to the command.
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

/// A signal that has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    pub(crate) signal: Signal,
    /// From a key of the terminal, so everybody in our process group has got it.
    pub(crate) typed: bool,
}

pub(crate) struct Signals {
    inbox: UnboundedReceiver<Came>,
}

impl Signals {
    /// To be called before there is a second thread. What whoever started us wants ignored, as
    /// `nohup` does, stays ignored, here and in the command.
    pub(crate) fn block() -> io::Result<SigSet> {
        let ignored = ignored();
        let mut wanted: SigSet =
            PASSED_ON.into_iter().filter(|signal| ignored & bit(*signal) == 0).collect();
        wanted.add(Signal::SIGCHLD);
        let mut blocked = wanted;
        // Setting the foreground group of the terminal is then allowed from the background.
        blocked.add(Signal::SIGTTOU);
        blocked.thread_block()?;
        Ok(wanted)
    }

    /// To be called within the runtime.
    pub(crate) fn listen(wanted: &SigSet) -> io::Result<Self> {
        // Installs a handler, which never runs. If SIGCHLD came in ignored, the kernel would throw
        // away how the command ended.
        let _handler = signal(SignalKind::child())?;
        let source = SignalFd::with_flags(wanted, SfdFlags::SFD_CLOEXEC)?;
        let (outbox, inbox) = unbounded_channel();
        // Ends with the process.
        std::thread::Builder::new().spawn(move || forward(&source, &outbox))?;
        Ok(Self { inbox })
    }

    /// The next one.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: none is lost.
    pub(crate) async fn next(&mut self) -> io::Result<Came> {
        self.inbox.recv().await.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Returns when a signal asks for the end. Until then a stop key stops.
    pub(crate) async fn end(&mut self) -> io::Result<Came> {
        loop {
            let came = self.next().await?;
            match came.signal {
                Signal::SIGCHLD | Signal::SIGCONT | Signal::SIGWINCH => {}
                Signal::SIGTSTP => suffer(Signal::SIGTSTP),
                _ => return Ok(came),
            }
        }
    }
}

fn forward(source: &SignalFd, outbox: &UnboundedSender<Came>) {
    loop {
        let info = match source.read_signal() {
            Ok(Some(info)) => info,
            Ok(None) | Err(Errno::EINTR) => continue,
            Err(_) => return,
        };
        let number = i32::try_from(info.ssi_signo).unwrap_or_default();
        let Ok(signal) = Signal::try_from(number) else { continue };
        let came = Came { signal, typed: info.ssi_code == nix::libc::SI_KERNEL };
        if outbox.send(came).is_err() {
            return;
        }
    }
}

/// Lets the signal do to this process what it does by default. Returns when that was nothing, or
/// when a stopped process has been continued.
pub(crate) fn suffer(signal: Signal) {
    let only = SigSet::from(signal);
    // Neither fails for signals that there are.
    let _raised = raise(signal);
    let _unblocked = only.thread_unblock();
    let _blocked = only.thread_block();
}

/// The signals that are ignored, as bits.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as i32 - 1)
}
