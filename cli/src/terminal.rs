//! Access of the command to the terminal.
//!
//! At first, the command is not in the foreground process group. So the interrupt and stop keys reach the
//! whole foreground group as usual: a pipeline, the script that runs `kvlock`, and `kvlock` itself. `kvlock`
//! passes the signals on.
//!
//! When the command reads from the terminal, the kernel stops it. `kvlock` then lends it the terminal: it
//! makes the command's group the foreground group, and continues it.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use std::fs::File;

#[derive(Debug)]
pub(crate) struct Terminal {
    tty: Option<File>,
    lent: bool,
}

impl Terminal {
    /// Returns the controlling terminal of this process, if it has one.
    pub(crate) fn controlling() -> Self {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok();
        Self { tty, lent: false }
    }

    pub(crate) fn exists(&self) -> bool {
        self.tty.is_some()
    }

    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Makes the group `to` the foreground group, if the group of this process is the foreground group.
    /// Returns whether `to` may read from the terminal.
    pub(crate) fn lend(&mut self, to: Pid) -> bool {
        let Some(tty) = &self.tty else {
            return false;
        };
        let foreground = tcgetpgrp(tty);
        let may_read =
            foreground == Ok(to) || (foreground == Ok(getpgrp()) && tcsetpgrp(tty, to).is_ok());
        self.lent |= may_read;
        may_read
    }

    /// If the terminal is lent, makes the group of this process the foreground group again.
    pub(crate) fn take_back(&mut self) {
        if let (true, Some(tty)) = (self.lent, &self.tty) {
            // An error means that the terminal was closed.
            let _closed = tcsetpgrp(tty, getpgrp());
        }
        self.lent = false;
    }
}

/// Sends SIGINT to the process group of `kvlock`, as the interrupt key does when the terminal is not lent.
pub(crate) fn interrupt_own_group() {
    // The group exists: this process is in it.
    let _sent = killpg(getpgrp(), Signal::SIGINT);
}
