//! The program `kvlock`: runs a command under a distributed lock, and shows and releases locks.
//!
//! ```text
//!   shell ── kvlock run ──┬── command ── its children          a process group of its own
//!              │          └── keeper                           kills that group if kvlock cannot
//!              └── the server: acquires, renews, releases
//! ```
//!
//! | what | where |
//! |---|---|
//! | command line | [`arguments`] |
//! | exit codes | [`failure`] |
//! | messages on stderr | [`messages`] |
//! | `run` and `elect`: from the lock to the exit code | [`run`] |
//! | `once`; the output that it keeps | [`once`]; [`output`] |
//! | one run of the command | [`execute`] |
//! | the running command: signals, stops, loss of the lock | [`supervise`] |
//! | the processes of the command | [`child`], [`starter`], [`keeper`] |
//! | signals to this process | [`signals`] |
//! | job control | [`terminal`] |
//! | async runtime | [`runtime`] |
//! | `info`, `list`, `release` | [`show`] |
//! | `metrics`; `top`; the server that they query | [`metrics`]; [`top`]; [`monitor`] |
//! | `observe` | [`observe`] |
#![forbid(unsafe_code)]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "signals, error kinds and wait statuses are foreign enums with dozens of variants"
)]

mod arguments;
mod child;
mod execute;
mod exit;
mod failure;
mod held;
mod keeper;
mod messages;
mod metrics;
mod monitor;
mod observe;
mod once;
mod output;
mod run;
mod runtime;
mod server;
mod show;
mod signals;
mod starter;
mod supervise;
mod terminal;
mod text;
mod time;
mod top;

use arguments::{Arguments, Task};
use clap::{CommandFactory as _, Parser as _};
use failure::Failure;
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    // The program starts itself under these names for its helper processes.
    match words.next().and_then(|name| name.into_string().ok()).as_deref() {
        Some(starter::NAME) => return starter::start(words),
        Some(keeper::NAME) => return keeper::run(words),
        _ => {}
    }
    let arguments = Arguments::parse();
    let outcome = match arguments.task {
        Task::Run(task) => run::run(&arguments.server, task),
        Task::Once(task) => once::once(&arguments.server, task),
        Task::Elect(task) => run::elect(&arguments.server, task),
        Task::Observe(task) => observe::observe(&arguments.server, &task),
        Task::Info(task) => show::info(&arguments.server, &task),
        Task::List(task) => show::list(&arguments.server, &task),
        Task::Metrics(task) => metrics::metrics(&arguments.server, &task),
        Task::Top(task) => top::top(&arguments.server, &task),
        Task::Release(task) => show::release(&arguments.server, &task),
        Task::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "kvlock", &mut script);
            print(&script)
        }
        Task::Man { page } => manual(page.as_deref()).and_then(|page| print(&page)),
    };
    let code = outcome.unwrap_or_else(|failure| {
        messages::send(&failure.message);
        ExitCode::from(failure.code)
    });
    messages::flush(messages::AT_EXIT);
    code
}

/// Renders the manual page of a subcommand, or of the program if `name` is `None`.
fn manual(name: Option<&str>) -> Result<Vec<u8>, Failure> {
    let mut program = Arguments::command();
    program.build();
    let command = match name {
        None => Some(&program),
        Some(name) => program.find_subcommand(name),
    };
    let command =
        command.ok_or_else(|| Failure::usage("there is no such subcommand".to_owned()))?;
    let mut page = Vec::new();
    let written = clap_mangen::Man::new(command.clone()).render(&mut page);
    written.map_err(|error| Failure::trouble(error.to_string()))?;
    Ok(page)
}

/// Writes to stdout.
pub(crate) fn print(text: &[u8]) -> Result<ExitCode, Failure> {
    let mut out = std::io::stdout().lock();
    written(out.write_all(text).and_then(|()| out.flush()))?;
    Ok(ExitCode::SUCCESS)
}

/// Converts the outcome of writing to stdout. A reader that has closed its end is not an error.
pub(crate) fn written(outcome: std::io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::trouble(format!("cannot write: {e}")))
        }
        _ => Ok(()),
    }
}
