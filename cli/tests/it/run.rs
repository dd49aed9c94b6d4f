//! `kvlock run`: the lock, the command, and its exit code.

use super::{FUNCTIONS, Stage, Started, granted};
use harness::proxy::{Moment, Proxy};
use harness::{Value, observe};
use nix::sys::signal::Signal;
use std::io::Write as _;
use std::process::{Command, Stdio};

#[test]
fn forty_processes_lose_no_increment() {
    let mut stage = Stage::set();
    std::fs::write(stage.path("n"), "0\n").unwrap();
    let all: Vec<Started> =
        (0..40).map(|_| stage.run(&[], "n=$(cat n); echo $((n + 1)) >n")).collect();
    for one in all {
        one.done().assert_code(0);
    }
    assert_eq!(stage.line("n"), "40");
    assert!(stage.is_free());
}

/// Sessions that were left open would stay until their ttl has passed.
#[test]
fn no_session_is_left_after_a_wait_or_a_bound_lock() {
    let mut stage = Stage::set();
    stage.control.run("LOCK.ACQUIRE k holder 60000");
    stage.run(&["--wait", "0.05"], "true").done().assert_code(124);
    let all: Vec<Started> = (0..4).map(|_| stage.run(&["--bound"], "true")).collect();
    observe::wait_for_waiters(&mut stage.control, "k", 4);
    assert!(observe::info_number(&mut stage.control, "kvlock_sessions") > 0);
    stage.control.run("LOCK.RELEASE k holder");
    for one in all {
        one.done().assert_code(0);
    }
    assert_eq!(observe::info_number(&mut stage.control, "kvlock_sessions"), 0);
    let closed = observe::info_field(&mut stage.control, "cmdstat_session.close");
    assert!(closed.is_some(), "there was none");
}

/// [`Stage::run`] acquires `k`.
#[test]
fn several_locks_are_acquired_in_one_command() {
    let mut stage = Stage::set();
    let holder = stage.run(&["--with", "b", "--with", "c", "--under", "top"], "ready; idle");
    let _command = stage.process("pid");
    for key in ["k", "b", "c", "top"] {
        assert_eq!(stage.control.run(&format!("EXISTS {key}")), Value::Integer(1), "{key}");
    }
    for (key, code) in [("b", 124), ("c", 124), ("top", 124), ("other", 0)] {
        let start = ["run", "--nonblock", key, "--", "true"];
        stage.start(&start).done().assert_code(code);
    }
    let below = ["run", "--nonblock", "--under", "top", "other", "--", "true"];
    stage.start(&below).done().assert_code(0);
    holder.signal(Signal::SIGTERM);
    holder.done();
    assert_eq!(stage.control.run("EXISTS k b c top"), Value::Integer(0));
    for wrong in [&["--with", "k"][..], &["--permits", "1/2", "--with", "b"]] {
        stage.run(wrong, "true").done().assert_code(2);
    }
}

#[test]
fn the_exit_code_of_the_command_is_returned() {
    let mut stage = Stage::set();
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("exit 255", 255)] {
        stage.run(&[], script).done().assert_code(code);
        assert!(stage.is_free());
    }
}

#[test]
fn a_command_that_dies_of_a_signal_ends_with_128_and_its_number() {
    let mut stage = Stage::set();
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130), ("USR1", 138), ("40", 168)] {
        stage.run(&[], &format!("kill -{signal} $$")).done().assert_code(code);
        assert!(stage.is_free());
    }
}

#[test]
fn a_command_that_cannot_be_run_ends_as_in_the_shell() {
    let mut stage = Stage::set();
    let done = stage.start(&["run", "k", "--", "no-such-command"]).done();
    done.assert_code(127);
    assert_eq!(done.err, "kvlock: no-such-command: command not found\n");
    std::fs::write(stage.path("text"), "no program\n").unwrap();
    let done = stage.start(&["run", "k", "--", "./text"]).done();
    done.assert_code(126);
    assert!(done.err.starts_with("kvlock: ./text: cannot be executed"), "{done:?}");
    assert!(stage.is_free());
}

#[test]
fn the_command_finds_the_lock_in_its_environment() {
    let mut stage = Stage::set();
    let script = r#"echo "$KVLOCK_KEY $KVLOCK_OWNER $KVLOCK_TOKEN" >env; read _"#;
    let command = stage.kvlock(&["run", "a key", "sh", "-c", script]);
    let mut run = Started::with_input(command, Stdio::piped());
    let line = stage.line("env");
    let info = stage.control.call(harness::cmd!["LOCK.INFO", "a key"]);
    let (owner, token) = (info.field("owner").text(), info.field("token").integer());
    assert_eq!(line, format!("a key {owner} {token}"));
    run.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    run.done().assert_code(0);
}

#[test]
fn the_command_inherits_input_and_output() {
    let stage = Stage::set();
    let command = stage.kvlock(&["run", "k", "--", "sh", "-c", "cat; echo 2 >&2"]);
    let mut run = Started::with_input(command, Stdio::piped());
    run.child.stdin.take().unwrap().write_all(b"1\n").unwrap();
    let done = run.done();
    assert_eq!((done.out.as_str(), done.err.as_str()), ("1\n", "2\n"));
}

#[test]
fn the_lock_is_held_while_the_command_runs() {
    let mut stage = Stage::set();
    let command = stage.kvlock(&["run", "--lease", "1s", "k", "sh", "-c", "echo $$ >pid; read _"]);
    let mut run = Started::with_input(command, Stdio::piped());
    let _command = stage.process("pid");
    stage.run(&["--nonblock"], "true").done().assert_code(124);
    // Longer than the lease.
    observe::let_pass(&mut stage.control, std::time::Duration::from_millis(2_500));
    stage.run(&["-n"], "true").done().assert_code(124);
    run.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    run.done().assert_code(0);
    stage.run(&["-n"], "true").done().assert_code(0);
}

#[test]
fn hold_at_least_keeps_the_lock_after_a_command_that_ends_early() {
    let mut stage = Stage::set();
    let hold = ["--nonblock", "--hold-at-least", "10m"];
    stage.run(&hold, "exit 3").done().assert_code(3);
    let left = stage.control.run("PTTL k").integer();
    assert!((500_000..600_000).contains(&left), "{left}");
    stage.run(&hold, "echo >ran").done().assert_code(124);
    assert!(!stage.path("ran").exists());
    stage.start(&["release", "--force", "k"]).done().assert_code(0);
    // After a command that takes longer than `--hold-at-least`, the lock is free.
    stage.run(&["--hold-at-least", "0.1"], "sleep 0.2").done().assert_code(0);
    assert!(stage.is_free());
    stage.run(&["--hold-at-least", "1m", "--permits", "1/2"], "true").done().assert_code(2);
}

/// The server frees the lock about ten seconds after the program was killed, not after the lease of ten minutes.
#[test]
fn a_bound_lock_is_handed_on_soon_after_the_program_is_killed() {
    let mut stage = Stage::set();
    let running = stage.run(&["--bound", "--lease", "10m"], "ready; idle");
    let _command = stage.process("pid");
    let mut next = stage.next_in_line();
    running.signal(Signal::SIGKILL);
    granted(&mut next);
    stage.run(&["--bound", "--hold-at-least", "1m"], "true").done().assert_code(2);
}

#[test]
fn the_exit_code_for_a_lock_that_is_not_acquired_can_be_chosen() {
    let mut stage = Stage::set();
    stage.take_lock();
    for options in [["--nonblock", "-E", "9"], ["--wait=0", "-E", "9"], ["-w0.1", "-E", "9"]] {
        let done = stage.run(&options, "echo >ran").done();
        done.assert_code(9);
        assert_eq!(done.err, "kvlock: k: another owner holds the lock\n");
    }
    // With the exit code 0 there is no message.
    let done = stage.run(&["-n", "--conflict-exit-code=0"], "echo >ran").done();
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
    assert!(!stage.path("ran").exists());
}

#[test]
fn a_wait_ends_without_the_lock() {
    let mut stage = Stage::set();
    stage.take_lock();
    stage.run(&["--wait", "100ms"], "echo >ran").done().assert_code(124);
    observe::wait_for_waiters(&mut stage.control, "k", 0);
    assert!(!stage.path("ran").exists());
}

#[test]
fn a_wait_ends_with_the_lock() {
    for options in [&["--wait", "1m"][..], &[]] {
        let mut stage = Stage::set();
        stage.take_lock();
        let run = stage.run(options, "exit 5");
        observe::wait_for_waiters(&mut stage.control, "k", 1);
        assert_eq!(stage.control.run("LOCK.RELEASE k another"), Value::Integer(0));
        run.done().assert_code(5);
        assert!(stage.is_free());
    }
}

#[test]
fn background_processes_of_the_command_continue_without_the_lock() {
    let mut stage = Stage::set();
    stage.run(&[], "sleep 300 & echo $! >pid").done().assert_code(0);
    let left = stage.process("pid");
    assert!(stage.is_free());
    assert!(left.is_alive());
}

#[test]
fn no_process_is_left_of_the_program() {
    let stage = Stage::set();
    let command = stage.kvlock(&["run", "k", "sh", "-c", "echo $$ >pid; read _"]);
    let mut run = Started::with_input(command, Stdio::piped());
    let command = stage.process("pid");
    let keeper = run.keeper();
    run.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    run.done().assert_code(0);
    // Not even a zombie.
    assert!(keeper.stat().is_none() && command.stat().is_none());
}

#[test]
fn only_commands_that_share_the_lock_run_together() {
    let stage = Stage::set();
    for pipe in ["one", "two"] {
        let made = Command::new("mkfifo").arg(stage.path(pipe)).status().unwrap();
        assert!(made.success());
    }
    // Each waits for the other.
    let one = stage.run(&["--shared"], "echo one >one; read _ <two");
    let two = stage.run(&["-s"], "read _ <one; echo two >two");
    one.done().assert_code(0);
    two.done().assert_code(0);

    let holder = stage.run(&["--shared"], "ready; idle");
    let process = stage.process("pid");
    stage.run(&["--nonblock"], "true").done().assert_code(124);
    stage.run(&["--shared", "--nonblock"], "true").done().assert_code(0);
    drop((holder, process));
}

#[test]
fn permits_limit_how_many_commands_run_at_once() {
    let mut stage = Stage::set();
    let one = stage.run(&["--permits", "1/2", "--lease", "2s"], "ready one; idle");
    let one_process = stage.process("one");
    let two = stage.run(&["-p", "1/2", "--lease", "2s"], "ready two; idle");
    let two_process = stage.process("two");
    let done = stage.run(&["--permits", "1/2", "--nonblock"], "true").done();
    done.assert_code(124);
    assert_eq!(done.err, "kvlock: k: not enough permits are free\n");
    assert_eq!(stage.control.run("SEM.INFO k").field("used"), &Value::Integer(2));
    let both = stage.run(&["--permits", "2/2"], "echo ${KVLOCK_TOKEN-none} >both");
    harness::wait::until_is("it waits", super::SOON, 1, || {
        stage.control.run("SEM.INFO k").field("waiters").integer()
    });
    drop((one, one_process, two, two_process));
    both.done().assert_code(0);
    assert_eq!(stage.line("both"), "none");
    // The token of a lock around the permits says nothing about them.
    let inner =
        r#""$0" run --permits 1/2 pool -- sh -c 'echo $KVLOCK_KEY ${KVLOCK_TOKEN-none} >inner'"#;
    let program = env!("CARGO_BIN_EXE_kvlock");
    stage.start(&["run", "outer", "--", "sh", "-c", inner, program]).done().assert_code(0);
    assert_eq!(stage.line("inner"), "pool none");
    for wrong in ["0/2", "3/2", "2", "a/b", "1/"] {
        stage.run(&["--permits", wrong], "true").done().assert_code(2);
    }
    stage.run(&["--permits", "1/2", "--shared"], "true").done().assert_code(2);
}

#[test]
fn a_hold_at_least_longer_than_the_longest_lease_is_refused_before_the_command_runs() {
    let mut stage = Stage::set();
    for time in ["48h", "11y", "1000000000000000"] {
        for mode in [&[][..], &["--shared"]] {
            let options = [mode, &["--hold-at-least", time]].concat();
            let done = stage.run(&options, "echo >ran").done();
            done.assert_code(2);
            let message = "kvlock: k: --hold-at-least: ";
            assert!(done.err.starts_with(message) && done.err.lines().count() == 1, "{done:?}");
            assert!(stage.is_free() && !stage.path("ran").exists());
        }
    }
    // The longest lease itself is not refused.
    stage.run(&["--hold-at-least", "24h"], "exit 3").done().assert_code(3);
    assert!(stage.control.run("PTTL k").integer() > 80_000_000);
}

/// A server in a quarantine relies on the full leases of the commands that run.
#[test]
fn a_command_runs_under_the_full_lease_after_a_wait() {
    let mut stage = Stage::set();
    stage.control.run("LOCK.ACQUIRE k holder 60000");
    let run = stage.run(&["--kill-after", "0", "--lease", "1m"], "ready; idle");
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    stage.control.run("LOCK.RELEASE k holder");
    let _command = stage.process("pid");
    let left = stage.control.run("PTTL k").integer();
    assert!((50_000..=60_000).contains(&left), "{left}");
    run.signal(Signal::SIGTERM);
    run.done();
}

/// The connection breaks at the second renewal before the command runs, if there is one.
#[test]
fn with_hold_at_least_the_lock_has_its_own_lease_while_the_command_runs() {
    let mut stage = Stage::set();
    let proxy = Proxy::before(&stage.server);
    proxy.reset_after(1, "LOCK.RENEW", Moment::BeforeTheServer);
    let script = format!("{FUNCTIONS} ready; idle");
    let options = ["run", "--hold-at-least", "12h", "k", "--", "sh", "-c", &script];
    let mut program = stage.kvlock(&options);
    program.env("KVLOCK_URL", proxy.url());
    let run = Started::new(program);
    let _command = stage.process("pid");
    let left = stage.control.run("PTTL k").integer();
    assert!((1..=30_000).contains(&left), "{left}");
    run.signal(Signal::SIGTERM);
    run.done().assert_code(143);
}

/// The server executes the commands that it has received after the program has ended.
#[test]
fn a_signal_while_the_server_does_not_answer_does_not_shorten_hold_at_least() {
    let mut stage = Stage::set();
    let run = stage.run(&["--hold-at-least", "10m"], "trap 'exit 3' USR1; ready; idle");
    let command = stage.process("pid");
    stage.server.stand_still();
    run.signal(Signal::SIGUSR1);
    command.wait_until_gone();
    run.signal(Signal::SIGTERM);
    let done = run.done();
    done.assert_code(3);
    assert!(done.err.contains("could not be released"), "{done:?}");
    stage.server.signal(Signal::SIGCONT);
    let left = stage.control.run("PTTL k").integer();
    assert!((500_000..600_000).contains(&left), "{left}");
}
