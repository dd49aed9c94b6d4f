//! The command ends when the lock is lost, or when the program is killed or stopped for too long.
//! If the lease ends, the command ends before another owner can have the lock.

use super::{SOON, Stage, granted};
use harness::{Value, observe, wait};
use nix::sys::signal::Signal;

/// Script that records each SIGTERM and continues. Its child process ignores SIGTERM.
const STUBBORN: &str = "trap 'echo term >>term' TERM
    (trap '' TERM; exec sleep 300) & echo $! >grandchild
    ready
    while :; do idle; done";

/// Waits until the program would learn of a loss at once.
fn wait_until_observed(stage: &mut Stage) {
    wait::until("it observes the lock", SOON, || {
        let info = stage.control.run("LOCK.INFO k").to_string();
        if info.contains("observers") { Ok(()) } else { Err(info) }
    });
}

#[test]
fn a_forced_release_ends_the_command() {
    let mut stage = Stage::set();
    let run = stage.run(&["--lease", "10m"], "echo $$ >pid; exec sleep 300");
    let command = stage.process("pid");
    wait_until_observed(&mut stage);
    stage.start(&["release", "--force", "k"]).done().assert_code(0);
    let done = run.done();
    done.assert_code(123);
    let why = "its release was forced";
    assert_eq!(done.err, format!("kvlock: k: the lock is lost, ending the command: {why}\n"));
    assert!(!command.is_alive());
}

#[test]
fn a_command_that_ignores_the_signal_is_killed_with_all_of_its_group() {
    let mut stage = Stage::set();
    // Long before the lease ends.
    let run = stage.run(&["--lease", "10m", "--kill-after", "1s"], STUBBORN);
    let (command, grandchild) = (stage.process("pid"), stage.process("grandchild"));
    wait_until_observed(&mut stage);
    stage.start(&["release", "--force", "k"]).done().assert_code(0);
    run.done().assert_code(123);
    assert_eq!(stage.line("term"), "term");
    assert!(!command.is_alive() && !grandchild.is_alive());
}

#[test]
fn a_command_has_time_to_end_after_the_signal() {
    let stage = Stage::set();
    let script = "trap 'echo cleaned >cleaned; exit 0' TERM; ready
        while :; do idle; done";
    let run = stage.run(&["--lease", "4s"], script);
    let _command = stage.process("pid");
    stage.start(&["release", "--force", "k"]).done().assert_code(0);
    run.done().assert_code(123);
    assert_eq!(stage.line("cleaned"), "cleaned");
}

#[test]
fn a_command_whose_lock_cannot_be_renewed_ends_before_the_next_owner_has_the_lock() {
    for with_keeper in [true, false] {
        let mut stage = Stage::set();
        let run = stage.run(&["--lease", "4s"], STUBBORN);
        let (command, grandchild) = (stage.process("pid"), stage.process("grandchild"));
        if !with_keeper {
            run.keeper().end();
        }
        let mut next = stage.next_in_line();
        // From now on the lease cannot be renewed.
        assert!(!stage.control.run("ACL SETUSER default -lock.renew").is_error());
        granted(&mut next);
        assert!(!command.is_alive() && !grandchild.is_alive());
        assert_eq!(stage.line("term"), "term");
        run.done().assert_code(123);
        // The program has not released the lock of the next owner.
        assert_eq!(stage.control.run("LOCK.INFO k").field("owner").text(), "next");
    }
}

#[test]
fn without_a_server_the_command_ends_with_the_lease() {
    let stage = Stage::set();
    let run = stage.run(&["--lease", "2s"], STUBBORN);
    let (command, grandchild) = (stage.process("pid"), stage.process("grandchild"));
    stage.server.kill9();
    let done = run.done();
    done.assert_code(123);
    let over = "its lease has ended";
    assert_eq!(done.err, format!("kvlock: k: the lock is lost, ending the command: {over}\n"));
    assert!(!command.is_alive() && !grandchild.is_alive());
}

#[test]
fn a_command_that_ends_before_the_loss_is_known_ends_with_the_code_for_it() {
    let mut stage = Stage::set();
    // Without an observation, the next renewal tells of the loss. It is ten seconds away.
    assert!(!stage.control.run("ACL SETUSER default -lock.observe").is_error());
    let run = stage.run(&[], "trap 'exit 0' USR1; ready; idle");
    let command = stage.process("pid");
    assert_eq!(stage.control.run("LOCK.FORCERELEASE k"), Value::Integer(1));
    run.signal(Signal::SIGUSR1);
    let done = run.done();
    done.assert_code(123);
    assert!(done.err.contains("the lock is lost") && !done.err.contains("ending"), "{done:?}");
    assert!(!command.is_alive());
}

#[test]
fn without_a_server_the_exit_code_is_returned_with_a_warning() {
    let stage = Stage::set();
    let run = stage.run(&[], "trap 'exit 4' USR1; ready; idle");
    let _command = stage.process("pid");
    stage.server.kill9();
    run.signal(Signal::SIGUSR1);
    let done = run.done();
    done.assert_code(4);
    assert!(done.err.contains("could not be released"), "{done:?}");
}

#[test]
fn the_group_ends_when_the_program_is_killed() {
    let mut stage = Stage::set();
    let run = stage.run(&["--lease", "2s"], STUBBORN);
    let (command, grandchild) = (stage.process("pid"), stage.process("grandchild"));
    let mut next = stage.next_in_line();
    run.signal(Signal::SIGKILL);
    run.done().assert_signal(Signal::SIGKILL);
    command.wait_until_gone();
    grandchild.wait_until_gone();
    granted(&mut next);
}

#[test]
fn the_command_ends_when_the_program_and_its_keeper_are_killed() {
    let stage = Stage::set();
    let run = stage.run(&[], STUBBORN);
    let (command, grandchild) = (stage.process("pid"), stage.process("grandchild"));
    // The program is stopped, so that it does not start another keeper.
    run.signal(Signal::SIGSTOP);
    run.keeper().end();
    assert!(command.is_alive() && grandchild.is_alive());
    run.signal(Signal::SIGKILL);
    run.done().assert_signal(Signal::SIGKILL);
    command.wait_until_gone();
}

#[test]
fn the_group_ends_when_the_program_is_killed_by_name() {
    let stage = Stage::set();
    let run = stage.run(&[], STUBBORN);
    let (command, grandchild) = (stage.process("pid"), stage.process("grandchild"));
    // As `pkill -KILL -f kvlock` does.
    let namesakes = run.called("kvlock");
    run.signal(Signal::SIGKILL);
    namesakes.iter().for_each(|process| process.signal(Signal::SIGKILL));
    command.wait_until_gone();
    grandchild.wait_until_gone();
}

#[test]
fn a_keeper_that_was_killed_is_replaced() {
    assert_keeper_is_replaced_after(Signal::SIGKILL);
}

#[test]
fn a_keeper_that_was_stopped_is_replaced() {
    assert_keeper_is_replaced_after(Signal::SIGSTOP);
}

/// Sends the signal to the keeper. Checks that a new keeper kills the group when the program is stopped.
fn assert_keeper_is_replaced_after(signal: Signal) {
    let mut stage = Stage::set();
    let run = stage.run(&["--lease", "8s"], STUBBORN);
    let (command, grandchild) = (stage.process("pid"), stage.process("grandchild"));
    let mut next = stage.next_in_line();
    let keeper = run.keeper();
    keeper.signal(signal);
    keeper.wait_until_gone();
    wait::until_is("there is another keeper", SOON, 1, || run.called("lock-keeper").len());
    assert!(command.is_alive() && grandchild.is_alive());
    run.signal(Signal::SIGSTOP);
    granted(&mut next);
    let left = [command.stat(), grandchild.stat()];
    assert!(!command.is_alive() && !grandchild.is_alive(), "{left:?}");
    run.signal(Signal::SIGCONT);
    let done = run.done();
    done.assert_code(123);
    // The replacement is not reported.
    assert!(done.err.starts_with("kvlock: k: the lock is lost"), "{done:?}");
    assert_eq!(done.err.lines().count(), 1, "{done:?}");
}

/// The program is stopped between the system call that lets the command run and the next one.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_group_ends_when_the_program_is_stopped_right_after_the_start() {
    use nix::libc::{ENOSYS, SYS_kill};
    use nix::sys::ptrace;
    use nix::sys::wait::{WaitStatus, waitpid};

    let mut stage = Stage::set();
    stage.take_lock();
    let run = stage.run(&["--lease", "8s"], STUBBORN);
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    ptrace::attach(run.id()).unwrap();
    assert!(matches!(waitpid(run.id(), None), Ok(WaitStatus::Stopped(_, Signal::SIGSTOP))));
    assert_eq!(stage.control.run("LOCK.RELEASE k another"), Value::Integer(0));
    loop {
        ptrace::syscall(run.id(), None).unwrap();
        assert!(matches!(waitpid(run.id(), None), Ok(WaitStatus::Stopped(_, Signal::SIGTRAP))));
        let at = ptrace::getregs(run.id()).unwrap();
        let continues = at.orig_rax == SYS_kill.unsigned_abs() && at.rsi == Signal::SIGCONT as u64;
        // The register has `-ENOSYS` at the entry to a call, and the result after the call.
        if continues && at.rax.cast_signed() != -i64::from(ENOSYS) {
            break;
        }
    }
    ptrace::detach(run.id(), Signal::SIGSTOP).unwrap();
    let (command, grandchild) = (stage.process("pid"), stage.process("grandchild"));
    let mut next = stage.next_in_line();
    granted(&mut next);
    assert!(!command.is_alive() && !grandchild.is_alive());
    run.signal(Signal::SIGCONT);
    run.done().assert_code(123);
}

#[test]
fn the_group_ends_when_the_program_is_stopped_for_too_long() {
    let mut stage = Stage::set();
    let run = stage.run(&["--lease", "4s"], STUBBORN);
    let (command, grandchild) = (stage.process("pid"), stage.process("grandchild"));
    let mut next = stage.next_in_line();
    run.signal(Signal::SIGSTOP);
    granted(&mut next);
    // They may be zombies, because the stopped program does not reap them.
    assert!(!command.is_alive() && !grandchild.is_alive());
    run.signal(Signal::SIGCONT);
    run.done().assert_code(123);
}
