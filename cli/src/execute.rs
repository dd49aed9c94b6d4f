//! One run of the command: its environment, its start and its end.

use crate::arguments::Run;
use crate::child::{Child, End};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::held::Held;
use crate::output;
use crate::runtime::refused;
use crate::signals::{ReceivedSignal, Signals};
use crate::supervise::{Outcome, Terms, Watch};
use crate::terminal::Terminal;
use crate::time::since_boot;
use nix::sys::signal::Signal;
use std::process::Stdio;
use std::time::Duration;

/// Result of one run of the command.
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    pub(crate) outcome: Outcome,
    /// The last SIGTERM, SIGINT or SIGQUIT that this process received and passed on to the command.
    pub(crate) asked_to_end: Option<ReceivedSignal>,
    /// Receiver of the command's output, if the output is kept.
    pub(crate) output: Option<output::Printing>,
}

/// Runs the command until it ends, by itself or because the lock was lost.
///
/// With `keeps_output`, the standard output of the command is read, passed on and kept.
pub(crate) async fn execute(
    task: &Run,
    name: &str,
    guard: &Held<'_>,
    signals: &mut Signals,
    terms: Terms,
    keeps_output: bool,
) -> Result<Ended, Failure> {
    let token = guard.token().map(|token| token.to_string().into());
    let variables = [
        ("KVLOCK_KEY", Some(task.key.clone())),
        ("KVLOCK_OWNER", Some(guard.owner().into())),
        ("KVLOCK_TOKEN", token),
    ];
    let until =
        since_boot().map_or(Duration::MAX, |now| terms.keeper_deadline(now, guard.lease_left()));
    let stdout = if keeps_output { Stdio::piped() } else { Stdio::inherit() };
    let mut child = Child::start(&task.command, variables, stdout, until)?;
    let output = child.output.take().map(output::pass_on).transpose();
    // The process has not executed the command yet. It is killed if the lock was lost during the start, or if
    // its output cannot be passed on.
    let starts = output.is_ok() && !guard.is_lost();
    child.signal(if starts { Signal::SIGCONT } else { Signal::SIGKILL });
    let mut watch = Watch {
        guard,
        child: &mut child,
        signals,
        terminal: Terminal::controlling(),
        terms,
        name,
        interrupted: false,
        asked_to_end: None,
        kill_by: None,
    };
    let outcome = watch.until_end().await.map_err(refused)?;
    let (lent, interrupted) = (watch.terminal.is_lent(), watch.interrupted);
    let asked_to_end = watch.asked_to_end;
    watch.terminal.take_back();
    child.dismiss_keeper();
    let (Outcome::Ended(end) | Outcome::Lost(end)) = outcome;
    let exit = if end == End::by(Signal::SIGINT) && (interrupted || lent) {
        Exit::Interrupt { alone: lent }
    } else {
        Exit::Code(end.code())
    };
    Ok(Ended { exit, outcome, asked_to_end, output: output.map_err(refused)? })
}
