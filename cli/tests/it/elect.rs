//! The subcommands `elect` and `observe`.

use super::process::{Process, Started};
use super::{FUNCTIONS, SOON, Stage};
use harness::{Connection, Server, Value, cmd, observe, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value as Json, json};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

/// Script that runs until SIGUSR1, and then exits with code 7.
const WORK: &str = "trap 'exit 7' USR1; ready; while :; do idle; done";

impl Stage {
    fn elect(&self, value: &str, script: &str) -> Started {
        let script = format!("{FUNCTIONS}{}", script.replace("ready", &format!("ready {value}")));
        self.start(&["elect", "--lease", "4s", "k", value, "--", "sh", "-c", &script])
    }
}

/// Terms and values of the leaders that an observer has printed.
fn leaders(observer: &Started) -> Vec<(u64, String)> {
    let out = observer.out();
    let words = out.lines().map(|line| line.split("  ").collect::<Vec<_>>());
    let leads = words.filter(|words| words[0] == "leads");
    leads.map(|words| (words[1].parse().unwrap(), words[3].to_owned())).collect()
}

/// Waits until the observer has printed more than `before` leaders. Returns the value and the
/// command of the last one.
fn next(stage: &Stage, observer: &Started, before: usize) -> (String, Process) {
    let value = wait::until("another leads", SOON, || match &leaders(observer)[..] {
        seen if seen.len() > before => Ok(seen[seen.len() - 1].1.clone()),
        seen => Err(format!("{seen:?}")),
    });
    let owner = stage.server.connect().run("LOCK.INFO k").field("value").text();
    assert_eq!(owner, value);
    let process = stage.process(&value);
    std::fs::remove_file(stage.path(&value)).unwrap();
    (value, process)
}

#[test]
fn the_next_candidate_follows_a_leader_that_is_killed_stopped_forced_out_or_resigns() {
    let mut stage = Stage::set();
    let observer = stage.start(&["observe", "k"]);
    let mut programs = Vec::new();
    for (waiters, value) in ["a", "b", "c"].into_iter().enumerate() {
        programs.push((value.to_owned(), stage.elect(value, WORK)));
        if waiters == 0 {
            continue;
        }
        observe::wait_for_waiters(&mut stage.control, "k", i64::try_from(waiters).unwrap());
    }
    let take = |programs: &mut Vec<(String, Started)>, value: &str| {
        let at = programs.iter().position(|(name, _)| name == value).unwrap();
        programs.remove(at).1
    };
    let (first, command) = next(&stage, &observer, 0);
    // The program is killed: its command ends too.
    let program = take(&mut programs, &first);
    program.signal(Signal::SIGKILL);
    program.done().assert_signal(Signal::SIGKILL);
    let (second, next_command) = next(&stage, &observer, 1);
    assert!(!command.is_alive() && next_command.is_alive() && first != second);
    // The program is stopped: its command ends before another candidate leads. When it is continued, it is
    // a candidate again.
    let program = take(&mut programs, &second);
    program.signal(Signal::SIGSTOP);
    let (third, last_command) = next(&stage, &observer, 2);
    assert!(!next_command.is_alive() && third != second);
    observe::wait_for_waiters(&mut stage.control, "k", 0);
    program.signal(Signal::SIGCONT);
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    programs.push((second.clone(), program));
    // The lock is released by force: the command ends, and the program is a candidate again.
    stage.start(&["release", "--force", "k"]).done().assert_code(0);
    let (fourth, command) = next(&stage, &observer, 3);
    assert_eq!(fourth, second);
    last_command.wait_until_gone();
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    // The command ends by itself: the program resigns, and is no longer a candidate.
    command.signal(Signal::SIGUSR1);
    let done = take(&mut programs, &fourth).done();
    done.assert_code(7);
    let led = done.err.lines().filter(|line| line.starts_with("kvlock: k: leading, term"));
    assert_eq!((led.count(), done.err.lines().count()), (2, 3), "{done:?}");
    let (fifth, _command) = next(&stage, &observer, 4);
    assert_eq!(fifth, third);
    assert_eq!(stage.control.run("LOCK.INFO k").field("waiters"), &Value::Integer(0));
    // The last program ends, and there is no leader.
    let program = take(&mut programs, &fifth);
    program.signal(Signal::SIGTERM);
    program.done().assert_code(143);
    wait::until("the office is vacant", SOON, || match observer.out() {
        out if out.ends_with("vacant  released\n") => Ok(()),
        out => Err(out),
    });
    let terms: Vec<u64> = leaders(&observer).into_iter().map(|(term, _)| term).collect();
    assert!(terms.len() == 5 && terms.is_sorted_by(|a, b| a < b), "{terms:?}");
}

#[test]
fn an_observer_prints_text_or_json() {
    let mut stage = Stage::set();
    let observers = [stage.start(&["observe", "k"]), stage.start(&["observe", "--json", "k"])];
    let lines = |count: usize| {
        let all = |observer: &Started| {
            wait::until("it has printed the lines", SOON, || {
                let lines: Vec<String> = observer.out().lines().map(str::to_owned).collect();
                if lines.len() == count { Ok(lines) } else { Err(format!("{lines:?}")) }
            })
        };
        let [text, lines] = observers.each_ref().map(all);
        let last: Json = serde_json::from_str(lines.last().unwrap()).unwrap();
        (text.last().unwrap().clone(), last)
    };
    let vacant = |left: Option<&str>| json!({"name": "k", "state": "vacant", "term": null, "owner": null, "value": null, "left": left});
    assert_eq!(lines(1), ("vacant".to_owned(), vacant(None)));
    let granted = stage.control.run("LOCK.ACQUIRE k ann 600000 VALUE a\x1b[2Jb");
    let token = granted[0].integer();
    let (text, object) = lines(2);
    assert_eq!(text, format!("leads  {token}  ann  a\\u{{1b}}[2Jb"));
    let leads = json!({
        "name": "k", "state": "leads", "term": token, "owner": "ann", "value": "a\u{1b}[2Jb", "left": null,
    });
    assert_eq!(object, leads);
    stage.control.run("LOCK.FORCERELEASE k");
    assert_eq!(lines(3), ("vacant  forced".to_owned(), vacant(Some("forced"))));
    for observer in observers {
        observer.signal(Signal::SIGTERM);
        observer.done().assert_signal(Signal::SIGTERM);
    }
    stage.start(&["observe", ""]).done().assert_code(2);
    stage.start(&["elect", "k", &"x".repeat(1025), "--", "true"]).done().assert_code(2);
}

#[test]
fn a_candidate_that_never_led_reports_no_lost_lock() {
    let mut stage = Stage::set();
    stage.take_lock();
    let candidate = stage.elect("a", "echo >ran");
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    candidate.signal(Signal::SIGTERM);
    let done = candidate.done();
    done.assert_code(143);
    assert_eq!(done.err, "");
    observe::wait_for_waiters(&mut stage.control, "k", 0);
    assert!(!stage.path("ran").exists());
}

#[test]
fn a_signalled_program_does_not_campaign_again() {
    let mut stage = Stage::set();
    // The command ignores SIGTERM: the test's, which the program passes on, and the program's after the loss.
    let program = stage.elect("a", "trap '' TERM; ready; while :; do idle; done");
    let command = stage.process("a");
    program.signal(Signal::SIGTERM);
    program.wait_until_taken(Signal::SIGTERM);
    stage.start(&["release", "--force", "k"]).done().assert_code(0);
    program.done().assert_code(143);
    assert!(!command.is_alive() && stage.is_free());
    assert_eq!(stage.control.run("LOCK.INFO k").field("waiters"), &Value::Integer(0));
}

#[test]
fn a_leader_ends_in_time_when_the_server_hangs() {
    let stage = Stage::set();
    let program = stage.elect("a", WORK);
    let command = stage.process("a");
    stage.server.signal(Signal::SIGSTOP);
    let asked = Instant::now();
    program.signal(Signal::SIGTERM);
    // The server does not answer the release.
    let done = program.done();
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}: {done:?}", asked.elapsed());
    assert!(done.code() == 143 || done.code() == 7, "{done:?}");
    assert!(!command.is_alive());
    stage.server.signal(Signal::SIGCONT);
}

#[test]
fn a_candidate_waits_for_a_server_that_comes_back() {
    let mut stage = Stage::set();
    let program = stage.elect("a", WORK);
    let command = stage.process("a");
    std::fs::remove_file(stage.path("a")).unwrap();
    stage.server.kill9();
    command.wait_until_gone();
    stage.server.restart();
    stage.control = stage.server.connect();
    let _command = stage.process("a");
    assert_eq!(stage.control.run("LOCK.INFO k").field("value").text(), "a");
    program.signal(Signal::SIGTERM);
    program.done().assert_code(143);
}

#[test]
fn an_observer_ends_when_its_output_is_closed() {
    let stage = Stage::set();
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" observe k | head -n 1; echo ended", env!("CARGO_BIN_EXE_kvlock")]);
    shell.env("KVLOCK_URL", stage.server.url());
    let done = Started::new(shell).done();
    assert_eq!((done.out.as_str(), done.err.as_str()), ("vacant\nended\n", ""));
}

/// The kernel does not deliver a signal without a handler to process 1 of a container.
#[test]
fn an_observer_handles_the_signal_that_ends_it() {
    let stage = Stage::set();
    let observer = stage.start(&["observe", "k"]);
    observer.wait_until_blocked(Signal::SIGTERM);
    observer.signal(Signal::SIGTERM);
    observer.done().assert_signal(Signal::SIGTERM);
}

#[test]
fn an_observer_whose_output_is_full_ends_by_a_signal() {
    let mut stage = Stage::set();
    let mut command = stage.kvlock(&["observe", "k"]);
    // Nothing reads the pipe.
    let (_reader, writer) = std::io::pipe().unwrap();
    let mut observer = command.stdout(writer).spawn().unwrap();
    drop(command);
    let value = "v".repeat(1000);
    wait::until("the pipe is full", SOON, || {
        stage.control.call(cmd!["LOCK.ACQUIRE", "k", "ann", 600_000, "VALUE", &value]);
        stage.control.run("LOCK.FORCERELEASE k");
        let syscall = std::fs::read_dir(format!("/proc/{}/task", observer.id())).unwrap();
        let mut tasks = syscall.map(|task| task.unwrap().path().join("wchan"));
        let blocked = tasks
            .any(|wchan| std::fs::read_to_string(wchan).is_ok_and(|it| it.contains("pipe_write")));
        if blocked { Ok(()) } else { Err("it is not".to_owned()) }
    });
    kill(Pid::from_raw(observer.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let status = wait::until("it has ended", SOON, || {
        observer.try_wait().unwrap().ok_or_else(|| "it runs".to_owned())
    });
    assert_eq!(status.signal(), Some(Signal::SIGTERM as i32));
}

/// A candidate that cannot lead at this server now reports that once, and leads when it can.
#[test]
fn a_candidate_reports_why_it_cannot_campaign() {
    let primary = Server::start();
    let mut stage = Stage::of(Server::options().replica_of(&primary).start());
    observe::wait_for_replica_link(&mut stage.control);
    let program = stage.elect("a", WORK);
    wait::until("it says why it does not lead", SOON, || match program.err() {
        err if err.contains("read only replica") => Ok(()),
        err => Err(err),
    });
    assert!(!stage.control.run("REPLICAOF NO ONE").is_error());
    let command = stage.process("a");
    command.signal(Signal::SIGUSR1);
    let done = program.done();
    done.assert_code(7);
    let waits = done.err.lines().filter(|line| line.contains("waits until it can stand"));
    assert_eq!(waits.count(), 1, "{done:?}");
}

/// A server that runs a long script answers `BUSY` to almost every other command.
#[test]
fn a_script_that_takes_longer_than_the_lease_ends_the_term_and_not_the_candidate() {
    let mut stage = Stage::of(Server::options().config("busy-reply-threshold", 50).start());
    let program = stage.elect("a", WORK);
    let command = stage.process("a");
    std::fs::remove_file(stage.path("a")).unwrap();
    let script = BusyScript::run(&mut stage);
    command.wait_until_gone();
    // Both begin while the script runs. `run` waits until the script has ended, and `info` fails.
    let waiting = stage.start(&["run", "--wait", "25s", "other", "sh", "-c", "exit 5"]);
    stage.start(&["info", "k"]).done().assert_code(125);
    script.kill(&mut stage);
    waiting.done().assert_code(5);
    let command = stage.process("a");
    command.signal(Signal::SIGUSR1);
    program.done().assert_code(7);
}

/// A script that runs until it is killed.
struct BusyScript(Connection);

impl BusyScript {
    fn run(stage: &mut Stage) -> Self {
        let mut connection = stage.server.connect();
        connection.send(cmd!["EVAL", "while true do end", 0]);
        wait::until("the server is busy", SOON, || match stage.control.run("PING") {
            reply if reply.is_error() && reply.code() == "BUSY" => Ok(()),
            reply => Err(reply.to_string()),
        });
        Self(connection)
    }

    fn kill(mut self, stage: &mut Stage) {
        assert!(!stage.control.run("SCRIPT KILL").is_error());
        assert!(self.0.receive(SOON).unwrap().is_error());
    }
}

#[test]
fn a_candidate_reaps_processes_of_earlier_commands() {
    let mut stage = Stage::set();
    let program = stage.elect("a", "setsid sh -c 'echo $$ >orphan; exec sleep 300' & ready; idle");
    let _command = stage.process("a");
    let orphan = stage.process("orphan");
    // The next waiter leads, and the program is a candidate again.
    let mut next = stage.next_in_line();
    stage.start(&["release", "--force", "k"]).done().assert_code(0);
    super::granted(&mut next);
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    orphan.signal(Signal::SIGKILL);
    wait::until("it is reaped", SOON, || match orphan.stat() {
        None => Ok(()),
        stat => Err(format!("{stat:?}")),
    });
    drop(program);
}
