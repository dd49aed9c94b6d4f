//! What becomes the command: this program again, which ties its life to ours before it executes it.

use crate::failure::{NOT_EXECUTABLE, NOT_FOUND, TROUBLE};
use crate::say;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, raise};
use nix::unistd::{Pid, getppid};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// What it is called while it is that.
pub(crate) const NAME: &str = "kvlock-starter";

/// `kvlock-starter <id of the parent> <command> <argument>…`
///
/// The kernel sends the parent-death signal when the thread that started the process ends: that is
/// the main thread, which lives as long as the process.
pub(crate) fn start(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = words.next().and_then(|id| id.to_str()?.parse().ok()).map(Pid::from_raw);
    let (Some(parent), Some(program)) = (parent, words.next()) else {
        return ExitCode::from(TROUBLE);
    };
    // The mask is inherited, and ours is no business of the command.
    let _nothing_blocked = SigSet::empty().thread_set_mask();
    if let Err(error) = set_pdeathsig(Signal::SIGKILL) {
        say(&format!("cannot ask for the parent-death signal: {error}"));
        return ExitCode::from(TROUBLE);
    }
    // It may have died before the kernel was asked to tell.
    if getppid() != parent {
        return ExitCode::from(TROUBLE);
    }
    // Until the keeper is there. Whoever started us waits for this, and continues us.
    if raise(Signal::SIGSTOP).is_err() {
        return ExitCode::from(TROUBLE);
    }
    let error = Command::new(&program).args(words).exec();
    say(&format!("{}: {}", program.display(), reason(&error)));
    ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    })
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "command not found".to_owned(),
        _ => format!("cannot be executed: {error}"),
    }
}
