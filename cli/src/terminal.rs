//! Who may read from the terminal.
//!
//! The command is not in the foreground group, so that the keys that interrupt and stop reach
//! everybody in it as ever: a pipeline, the script that runs `kvlock`, and `kvlock`, which passes
//! them on. When the command wants to read from the terminal the kernel stops it, and we lend it
//! the terminal and continue it. Programs that never read never need it.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use std::fs::File;

#[derive(Debug)]
pub(crate) struct Terminal {
    tty: Option<File>,
    lent: bool,
}

impl Terminal {
    /// The terminal that controls us, if there is one.
    pub(crate) fn ours() -> Self {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok();
        Self { tty, lent: false }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.tty.is_some()
    }

    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Lets a group read, if it is ours to let. Returns whether it may read now.
    pub(crate) fn lend(&mut self, to: Pid) -> bool {
        let Some(tty) = &self.tty else {
            return false;
        };
        let foreground = tcgetpgrp(tty);
        let may =
            foreground == Ok(to) || (foreground == Ok(getpgrp()) && tcsetpgrp(tty, to).is_ok());
        self.lent |= may;
        may
    }

    /// Ends the loan. What stopped reading in between is none of our business.
    pub(crate) fn take_back(&mut self) {
        if let (true, Some(tty)) = (self.lent, &self.tty) {
            // It fails if the terminal has gone, and then nobody reads from it.
            let _gone = tcsetpgrp(tty, getpgrp());
        }
        self.lent = false;
    }
}

/// Does to our own group what the interrupt key would have done, had the terminal not been lent.
pub(crate) fn interrupt_our_group() {
    // We are in it, so it is there.
    let _sent = killpg(getpgrp(), Signal::SIGINT);
}
