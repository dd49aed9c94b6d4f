//! The process that becomes the command. It is this program, started again. It requests the parent-death
//! signal before it executes the command.

use crate::failure::{NOT_EXECUTABLE, NOT_FOUND, TROUBLE};
use crate::messages;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, raise};
use nix::unistd::{Pid, getppid};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// Name (`argv[0]`) of the starter process.
pub(crate) const NAME: &str = "kvlock-starter";

/// Main function of the starter process: `kvlock-starter <id of the parent> <command> <argument>…`.
///
/// The kernel sends the parent-death signal when the thread of `kvlock` that started this process ends. That
/// is the main thread, which lives as long as `kvlock` itself.
pub(crate) fn start(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = words.next().and_then(|id| id.to_str()?.parse().ok()).map(Pid::from_raw);
    let (Some(parent), Some(program)) = (parent, words.next()) else {
        return ExitCode::from(TROUBLE);
    };
    // The signal mask of `kvlock` is inherited, and must not reach the command.
    let _nothing_blocked = SigSet::empty().thread_set_mask();
    if let Err(error) = set_pdeathsig(Signal::SIGKILL) {
        messages::write(&format!("cannot ask for the parent-death signal: {error}"));
        return ExitCode::from(TROUBLE);
    }
    // The parent may have ended before the request was made.
    if getppid() != parent {
        return ExitCode::from(TROUBLE);
    }
    // Waits for the keeper. `kvlock` waits until this process has stopped, starts the keeper, and then
    // continues this process.
    if raise(Signal::SIGSTOP).is_err() {
        return ExitCode::from(TROUBLE);
    }
    let error = Command::new(&program).args(words).exec();
    messages::write(&format!("{}: {}", program.display(), reason(&error)));
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
