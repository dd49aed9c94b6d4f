//! `kvlock once`: one process runs the command, all print its output.

use super::{FUNCTIONS, SOON, Stage, Started};
use harness::proxy::{Moment, Proxy};
use harness::{Value, cmd, observe, wait};
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

const LOCK: &str = "{report}:lock";

impl Stage {
    /// Starts `kvlock once` of a script for the key `report`.
    fn once(&self, options: &[&str], script: &str) -> Started {
        let script = format!("{FUNCTIONS}{script}");
        self.start(&[&["once"], options, &["report", "--", "sh", "-c", &script]].concat())
    }

    fn stored(&mut self) -> Option<Vec<u8>> {
        match self.control.run("GET report") {
            Value::Nil => None,
            value => Some(value.bytes().to_vec()),
        }
    }

    fn lock_is_free(&mut self) -> bool {
        self.control.call(cmd!["EXISTS", LOCK]) == Value::Integer(0)
    }
}

#[test]
fn twenty_processes_run_it_once_and_print_the_same() {
    let mut stage = Stage::set();
    let all: Vec<Started> = (0..20)
        .map(|_| stage.once(&["--ttl", "1m"], "echo x >>runs; sleep 0.2; echo made"))
        .collect();
    for one in all {
        let done = one.done();
        done.assert_code(0);
        assert_eq!((&*done.out, &*done.err), ("made\n", ""));
    }
    assert_eq!(std::fs::read_to_string(stage.path("runs")).unwrap(), "x\n");
    assert!((1..=60_000).contains(&stage.control.run("PTTL report").integer()));
    assert!(stage.lock_is_free());
}

#[test]
fn a_result_can_be_any_bytes_or_empty() {
    let mut stage = Stage::set();
    for (script, stored) in [(r"printf '\0\377\n\n'", &b"\0\xff\n\n"[..]), ("true", b"")] {
        for _ in 0..2 {
            stage.once(&[], script).done().assert_code(0);
            assert_eq!(stage.stored().as_deref(), Some(stored));
        }
        stage.control.run("DEL report");
    }
}

#[test]
fn a_command_that_fails_is_run_by_the_next_one() {
    let mut stage = Stage::set();
    for (script, code) in [("echo no; exit 3", 3), ("echo no; kill -TERM $$", 143)] {
        let done = stage.once(&[], script).done();
        done.assert_code(code);
        assert_eq!(done.out, "no\n");
        assert!(stage.stored().is_none() && stage.lock_is_free());
    }
    stage.start(&["once", "report", "--", "no-such-command"]).done().assert_code(127);
    assert!(stage.stored().is_none());
    assert_eq!(stage.once(&[], "echo made").done().out, "made\n");
}

#[test]
fn after_a_failure_a_waiter_runs_the_command() {
    let mut stage = Stage::set();
    let first = stage.once(&[], "ready; trap 'exit 1' USR1; idle");
    let command = stage.process("pid");
    let second = stage.once(&[], "echo made");
    observe::wait_for_waiters(&mut stage.control, LOCK, 1);
    command.signal(Signal::SIGUSR1);
    first.done().assert_code(1);
    let done = second.done();
    done.assert_code(0);
    assert_eq!(done.out, "made\n");
}

#[test]
fn output_that_is_too_long_is_printed_and_not_stored() {
    let mut stage = Stage::set();
    for (length, is_kept) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let done = stage.once(&[], &format!("head -c {length} /dev/zero")).done();
        done.assert_code(0);
        assert_eq!(done.out.len(), length);
        assert_eq!(stage.stored().is_some(), is_kept, "{length}");
        assert_eq!(done.err.contains("is not kept"), !is_kept, "{}", done.err);
        assert!(stage.lock_is_free());
        stage.control.run("DEL report");
    }
}

#[test]
fn a_write_error_on_stdout_is_reported_and_the_result_stored() {
    let mut stage = Stage::set();
    let once = |stage: &Stage, script: &str| {
        let mut command = stage.kvlock(&["once", "report", "--", "sh", "-c", script]);
        command.stdout(File::options().write(true).open("/dev/full").unwrap());
        command.stderr(std::process::Stdio::piped()).output().unwrap()
    };
    for script in
        ["echo made", "touch ran-again", "exit 3", "echo no; exit 3", "head -c 2M /dev/zero"]
    {
        let done = once(&stage, script);
        let told = String::from_utf8_lossy(&done.stderr).contains("cannot write");
        let fails = script.contains("exit");
        assert_eq!(told, script != "exit 3", "{script}: {done:?}");
        // A command whose output is not read to its end dies of SIGPIPE.
        let code = if fails {
            3
        } else if script.contains("head") {
            141
        } else {
            125
        };
        assert_eq!(done.status.code(), Some(code), "{script}: {done:?}");
        if script.contains("touch") {
            assert_eq!(stage.stored().as_deref(), Some(&b"made\n"[..]));
            stage.control.run("DEL report");
        }
    }
    assert!(!stage.path("ran-again").exists());
}

/// The command dies of SIGPIPE, as it would without this program.
#[test]
fn a_command_ends_when_its_output_can_be_neither_printed_nor_stored() {
    let mut stage = Stage::set();
    let (program, pipe) = stage.with_full_stdout(&["once", "report", "--", "yes"]);
    program.wait_until_blocked(Signal::SIGTERM);
    drop(pipe);
    program.done().assert_code(141);
    assert!(stage.stored().is_none() && stage.lock_is_free());
}

#[test]
fn the_output_of_processes_in_the_background_counts() {
    let mut stage = Stage::set();
    stage.once(&[], "(sleep 0.2; echo late) & echo early").done().assert_code(0);
    assert_eq!(stage.stored().unwrap(), b"early\nlate\n");
}

#[test]
fn the_wait_ends_at_its_timeout() {
    let mut stage = Stage::set();
    stage.control.call(cmd!["LOCK.ACQUIRE", LOCK, "another", 600_000]);
    for wait in ["0s", "200ms"] {
        let done = stage.once(&["--wait", wait], "echo made").done();
        done.assert_code(124);
        assert_eq!(done.out, "");
    }
    stage.control.call(cmd!["LOCK.RELEASE", LOCK, "another", "STORE", "report", "theirs"]);
    assert_eq!(stage.once(&["--wait", "0s"], "echo made").done().out, "theirs");
}

#[test]
fn the_command_ends_with_its_lock_and_nothing_is_stored() {
    let mut stage = Stage::set();
    let once = stage.once(&["--lease", "10m"], "trap 'echo late; exit 0' TERM; ready; idle");
    stage.line("pid");
    stage.start(&["release", "--force", LOCK]).done().assert_code(0);
    once.done().assert_code(123);
    assert!(stage.stored().is_none());
}

#[test]
fn signals_end_the_wait_and_go_to_the_command() {
    let mut stage = Stage::set();
    let first = stage.once(&[], "trap 'echo term; exit 4' TERM; ready; idle");
    stage.line("pid");
    let second = stage.once(&[], "echo made");
    observe::wait_for_waiters(&mut stage.control, LOCK, 1);
    second.signal(Signal::SIGTERM);
    second.done().assert_code(143);
    observe::wait_for_waiters(&mut stage.control, LOCK, 0);
    first.signal(Signal::SIGTERM);
    let done = first.done();
    done.assert_code(4);
    assert_eq!(done.out, "term\n");
    assert!(stage.stored().is_none() && stage.lock_is_free());
}

/// The server is stopped, so the command that stores the output gets no answer.
#[test]
fn a_signal_during_the_store_limits_its_time() {
    let stage = Stage::set();
    let proxy = Proxy::before(&stage.server);
    proxy.reset("LOCK.RELEASE", Moment::BeforeTheServer);
    let script = format!("{FUNCTIONS} echo made; trap 'exit 0' USR1; ready; idle");
    let options = ["once", "--lease", "10m", "report", "--", "sh", "-c", &script];
    let mut program = stage.kvlock(&options);
    program.env("KVLOCK_URL", proxy.url());
    let once = Started::new(program);
    let command = stage.process("pid");
    stage.server.stand_still();
    command.signal(Signal::SIGUSR1);
    wait::until_is("the store has begun", SOON, true, || proxy.has_reset());
    once.signal(Signal::SIGTERM);
    let done = once.done();
    done.assert_code(0);
    assert_eq!(done.out, "made\n");
    assert!(done.err.starts_with("kvlock: report: the output may not be kept: "), "{}", done.err);
}

#[test]
fn a_stdout_that_is_not_read_keeps_the_lock_and_ends_with_a_signal() {
    let mut stage = Stage::set();
    stage.control.call(cmd!["SET", "report", vec![b'.'; 200_000]]);
    let (program, mut pipe) = stage.with_full_stdout(&["once", "report", "true"]);
    program.wait_until_blocked(Signal::SIGTERM);
    program.signal(Signal::SIGTERM);
    program.done().assert_code(143);
    pipe.read_exact(&mut [0; 4096]).unwrap();
}

impl Stage {
    /// Starts the program with a full pipe as its stdout, which stays full until the file is read or dropped.
    fn with_full_stdout(&self, arguments: &[&str]) -> (Started, File) {
        let path = self.path("stdout");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut options = File::options();
        let mut pipe =
            options.read(true).write(true).custom_flags(nix::libc::O_NONBLOCK).open(&path).unwrap();
        while pipe.write(&[b'.'; 4096]).is_ok() {}
        let program = self.kvlock(arguments);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "exec \"$@\" >stdout", "sh"]);
        shell.arg(program.get_program()).args(program.get_args());
        shell.current_dir(&self.folder).env("KVLOCK_URL", self.server.url());
        (Started::new(shell), pipe)
    }
}

#[test]
fn a_key_of_another_type_is_an_error_as_for_run() {
    let mut stage = Stage::set();
    for key in ["report", LOCK] {
        stage.control.call(cmd!["LPUSH", key, "x"]);
        let done = stage.once(&[], "touch ran").done();
        done.assert_code(125);
        assert_eq!(
            done.err,
            "kvlock: report or {report}:lock: the key holds something of another type\n"
        );
        stage.control.call(cmd!["DEL", key]);
    }
    assert!(!stage.path("ran").exists());
}

#[test]
fn invalid_options_are_refused_before_the_command_runs() {
    let stage = Stage::set();
    stage.start(&["once", "a}b", "--", "touch", "ran"]).done().assert_code(2);
    stage.once(&["--lease", "10ms"], "touch ran").done().assert_code(2);
    let done = stage.once(&["--ttl", "0s"], "touch ran").done();
    done.assert_code(2);
    assert!(done.err.ends_with("ttl out of range: 0ns is not 1 ms to ten years\n"), "{}", done.err);
    assert!(!stage.path("ran").exists());
}

/// For both, the limit is on the time until the command begins.
#[test]
fn a_server_that_stops_replying_prolongs_the_wait_as_little_as_for_run() {
    let mut stage = Stage::set();
    stage.take_lock();
    stage.control.call(cmd!["LOCK.ACQUIRE", LOCK, "another", 600_000]);
    let once = stage.once(&["--wait", "2s"], "echo made");
    let mut run = stage.run(&["--wait", "5s"], "true");
    observe::wait_for_waiters(&mut stage.control, LOCK, 1);
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    stage.server.stand_still();
    let done = once.done();
    done.assert_code(125);
    assert!(done.err.ends_with(": the server did not answer in time\n"), "{done:?}");
    // The program with more time is still running.
    assert!(run.child.try_wait().unwrap().is_none());
    run.done().assert_code(125);
}

#[test]
fn without_a_server_the_output_may_not_be_kept() {
    let stage = Stage::set();
    let once = stage.once(&["--lease", "10s"], "echo made; trap 'exit 0' USR1; ready; idle");
    let command = stage.process("pid");
    stage.server.kill9();
    command.signal(Signal::SIGUSR1);
    let done = once.done();
    done.assert_code(0);
    assert_eq!(done.out, "made\n");
    assert!(done.err.starts_with("kvlock: report: the output may not be kept: "), "{done:?}");
}

#[test]
fn a_failed_command_whose_lock_cannot_be_released_is_reported() {
    let stage = Stage::set();
    let once = stage.once(&[], "trap 'exit 4' USR1; ready; idle");
    let command = stage.process("pid");
    stage.server.kill9();
    command.signal(Signal::SIGUSR1);
    let done = once.done();
    done.assert_code(4);
    assert!(done.err.contains("may not be released"), "{done:?}");
    assert_eq!(done.err.lines().count(), 1, "{done:?}");
}
