//! Starts processes that cannot outlive the test process.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex};
use std::thread;

struct Job {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

/// The kernel sends the parent-death signal when the *thread* that started the child ends. Each test
/// is a thread of its own, so one thread that never ends starts all children.
static LAUNCHER: LazyLock<Mutex<Sender<Job>>> = LazyLock::new(|| {
    let (jobs, inbox) = channel::<Job>();
    thread::spawn(move || {
        for mut job in inbox {
            // The caller is gone only if it panicked, and then the reply is not needed.
            let _gone = job.answer.send(job.command.spawn());
        }
    });
    Mutex::new(jobs)
});

/// Starts a command made by [`killed_with_us`].
///
/// # Errors
///
/// The error of [`Command::spawn`].
pub fn launch(command: Command) -> io::Result<Child> {
    let (answer, result) = channel();
    LAUNCHER.lock().unwrap().send(Job { command, answer }).expect("the launching thread runs");
    result.recv().expect("the launching thread answers")
}

/// A command that runs `program` and lets the kernel kill it when the test process ends for any reason.
/// The process keeps its id, because `setpriv` replaces itself.
pub fn killed_with_us(program: &std::path::Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}
