//! A stderr that is not read, as on a stopped terminal or with a log driver that hangs.

use super::{FUNCTIONS, SOON, Stage, Started};
use harness::wait;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Command;

/// Starts the program with a full pipe as its stderr. The pipe stays full until the file is dropped.
fn with_full_stderr(stage: &Stage, arguments: &[&str]) -> (Started, File) {
    let path = stage.path("stderr");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut options = File::options();
    let mut pipe =
        options.read(true).write(true).custom_flags(nix::libc::O_NONBLOCK).open(&path).unwrap();
    while pipe.write(&[b'.'; 4096]).is_ok() {}
    let program = stage.kvlock(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$@\" 2>stderr", "sh"]);
    shell.arg(program.get_program()).args(program.get_args());
    shell.current_dir(&stage.folder).env("KVLOCK_URL", stage.server.url());
    (Started::new(shell), pipe)
}

#[test]
fn the_command_ends_with_its_lock() {
    let stage = Stage::set();
    // The command ends after SIGTERM, and not with its lease, which is longer than the test waits.
    let script = "trap 'echo term >term; exit 0' TERM; ready; while :; do idle; done";
    let script = format!("{FUNCTIONS}{script}");
    let arguments = ["run", "--lease", "10m", "k", "--", "sh", "-c", &script];
    let (run, _pipe) = with_full_stderr(&stage, &arguments);
    let command = stage.process("pid");
    stage.start(&["release", "--force", "k"]).done().assert_code(0);
    run.done().assert_code(123);
    assert_eq!(stage.line("term"), "term");
    assert!(!command.is_alive());
}

#[test]
fn a_leader_starts_its_command() {
    let stage = Stage::set();
    let script = format!("{FUNCTIONS} ready; idle");
    let (elect, _pipe) = with_full_stderr(&stage, &["elect", "k", "a", "--", "sh", "-c", &script]);
    let command = stage.process("pid");
    drop(elect);
    command.wait_until_gone();
}

#[test]
fn a_failure_ends_the_program() {
    let stage = Stage::set();
    stage.server.kill9();
    let (run, _pipe) = with_full_stderr(&stage, &["run", "k", "true"]);
    run.done().assert_code(125);
}

#[test]
fn pages_of_metrics_are_served() {
    let stage = Stage::set();
    let place = format!("127.0.0.1:{}", harness::port::free());
    let (_program, _pipe) = with_full_stderr(&stage, &["metrics", "--listen", &place]);
    let page = wait::until("the page is served", SOON, || {
        let stream = std::net::TcpStream::connect(&place).map_err(|error| error.to_string())?;
        Ok(super::metrics::answer(stream, "GET /metrics"))
    });
    assert!(page.contains("\nkvlock_up 1\n"), "{page}");
    stage.server.kill9();
    for _ in 0..100 {
        let page = super::metrics::get(&place, "GET /metrics");
        assert!(page.contains("\nkvlock_up 0\n"), "{page}");
    }
}
