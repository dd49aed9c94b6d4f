//! Signals to the program.

use super::{SOON, Stage, Started};
use harness::{Value, observe, wait};
use nix::sys::signal::Signal;
use std::process::Command;

/// Script that runs until a signal ends it.
const UNTIL_SIGNAL: &str = "ready; while :; do idle; done";

#[test]
fn signals_are_passed_on() {
    let mut stage = Stage::set();
    for (signal, name) in [
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
        (Signal::SIGALRM, "ALRM"),
    ] {
        let file = format!("pid-{name}");
        let script = format!(
            "trap 'exit 9' {name}; {}",
            UNTIL_SIGNAL.replace("ready", &format!("ready {file}"))
        );
        let run = stage.run(&[], &script);
        let _command = stage.process(&file);
        run.signal(signal);
        run.done().assert_code(9);
        assert!(stage.is_free());
    }
}

#[test]
fn a_signal_reaches_the_whole_group() {
    let mut stage = Stage::set();
    let run = stage.run(&[], "sleep 300 & echo $! >grandchild; echo $$ >pid; wait");
    let (command, grandchild) = (stage.process("pid"), stage.process("grandchild"));
    run.signal(Signal::SIGTERM);
    run.done().assert_code(143);
    command.wait_until_gone();
    grandchild.wait_until_gone();
    assert!(stage.is_free());
}

#[test]
fn a_signal_at_the_very_end_leaves_no_lock() {
    let mut stage = Stage::set();
    for _ in 0..20 {
        let done = stage.run(&[], "kill -TERM $PPID; exit 0").done();
        assert!([0, 143].contains(&done.code()), "{done:?}");
        assert!(stage.is_free());
    }
}

#[test]
fn a_signal_during_the_release_is_harmless() {
    let mut stage = Stage::set();
    let run = stage.run(&[], "trap 'exit 0' USR1; ready; idle");
    let command = stage.process("pid");
    stage.server.signal(Signal::SIGSTOP);
    run.signal(Signal::SIGUSR1);
    command.wait_until_gone();
    run.signal(Signal::SIGTERM);
    run.wait_until_taken(Signal::SIGTERM);
    stage.server.signal(Signal::SIGCONT);
    let done = run.done();
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
    assert!(stage.is_free());
}

#[test]
fn a_command_that_survives_a_signal_keeps_the_lock() {
    let stage = Stage::set();
    let run =
        stage.run(&[], &format!("trap 'echo >caught' TERM; trap 'exit 4' USR1; {UNTIL_SIGNAL}"));
    let _command = stage.process("pid");
    run.signal(Signal::SIGTERM);
    assert_eq!(stage.line("caught"), "");
    stage.run(&["-n"], "true").done().assert_code(124);
    run.signal(Signal::SIGUSR1);
    run.done().assert_code(4);
}

#[test]
fn a_signal_ends_a_wait_and_its_place_in_the_queue() {
    let mut stage = Stage::set();
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        stage.take_lock();
        let run = stage.run(&[], "echo >ran");
        observe::wait_for_waiters(&mut stage.control, "k", 1);
        run.signal(signal);
        run.done().assert_code(code);
        observe::wait_for_waiters(&mut stage.control, "k", 0);
        assert_eq!(stage.control.run("LOCK.RELEASE k another"), Value::Integer(0));
        assert!(stage.is_free());
    }
    assert!(!stage.path("ran").exists());
}

/// Starts the program from a shell that ignores a signal, as `nohup` does.
fn started_ignoring(stage: &Stage, signal: &str, script: &str) -> Started {
    let program = stage.kvlock(&["run", "k", "--", "sh", "-c", script]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("trap '' {signal}; exec \"$@\""), "sh"]);
    shell.arg(program.get_program()).args(program.get_args());
    shell.current_dir(stage.folder.path()).env("KVLOCK_URL", stage.server.url());
    Started::new(shell)
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let mut stage = Stage::set();
    stage.take_lock();
    let run = started_ignoring(&stage, "HUP", "kill -HUP $$; exit 6");
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    run.signal(Signal::SIGHUP);
    assert_eq!(stage.control.run("LOCK.RELEASE k another"), Value::Integer(0));
    run.done().assert_code(6);
}

#[test]
fn the_command_is_reaped_where_sigchld_is_ignored() {
    let stage = Stage::set();
    started_ignoring(&stage, "CHLD", "exit 6").done().assert_code(6);
}

#[test]
fn the_command_starts_with_no_signal_blocked() {
    let stage = Stage::set();
    let done = stage.start(&["run", "k", "grep", "SigBlk", "/proc/self/status"]).done();
    assert_eq!(done.out, "SigBlk:\t0000000000000000\n");
}

#[test]
fn a_stopped_command_keeps_the_lock_and_can_be_continued() {
    let stage = Stage::set();
    let run = stage.run(&[], &format!("trap 'exit 4' USR1; {UNTIL_SIGNAL}"));
    let command = stage.process("pid");
    run.signal(Signal::SIGTSTP);
    command.wait_until_stopped();
    stage.run(&["-n"], "true").done().assert_code(124);
    run.signal(Signal::SIGCONT);
    wait::until("it runs again", SOON, || match command.stat() {
        Some(stat) if stat.state != 'T' => Ok(()),
        other => Err(format!("{other:?}")),
    });
    run.signal(Signal::SIGUSR1);
    run.done().assert_code(4);
}
