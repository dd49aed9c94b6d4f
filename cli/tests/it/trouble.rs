//! Failures, their messages and exit codes. No message contains a password.

use super::process::{Done, children_of};
use super::{Stage, Started};
use harness::Server;
use harness::wait;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

const SECRET: &str = "correct-horse";

/// Each subcommand that connects to the server.
const EACH: [&[&str]; 9] = [
    &["run", "k", "true"],
    &["once", "k", "true"],
    &["info", "k"],
    &["list"],
    &["metrics"],
    &["top"],
    &["release", "--force", "k"],
    &["elect", "k", "v", "true"],
    &["observe", "k"],
];

fn ends(url: &str, arguments: &[&str]) -> Done {
    let done = started(url, arguments).done();
    assert!(!done.err.contains(SECRET) && !done.out.contains(SECRET), "{done:?}");
    assert!(done.err.starts_with("kvlock: ") && done.err.lines().count() == 1, "{done:?}");
    done
}

/// Starts the program with these arguments, for the server at `url`.
fn started(url: &str, arguments: &[&str]) -> Started {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvlock"));
    command.args(arguments).env("KVLOCK_URL", url);
    Started::new(command)
}

fn with_password(server: &Server) -> String {
    format!("redis://:{SECRET}@127.0.0.1:{}/", server.port())
}

#[test]
fn no_server() {
    let server = Server::start();
    server.kill9();
    for arguments in EACH {
        let done = ends(&with_password(&server), arguments);
        done.assert_code(125);
        let place = format!("kvlock: 127.0.0.1:{}: no connection", server.port());
        assert!(done.err.starts_with(&place), "{done:?}");
    }
}

#[test]
fn no_module() {
    let server = Server::options().without_module().start();
    for arguments in EACH {
        let done = ends(&server.url(), arguments);
        done.assert_code(125);
        assert!(done.err.contains("load kvlock.so"), "{done:?}");
    }
}

#[test]
fn a_wrong_password() {
    let server = Server::options().config("requirepass", "another").start();
    for url in [server.url(), with_password(&server)] {
        for arguments in EACH {
            let done = ends(&url, arguments);
            done.assert_code(125);
            assert!(done.err.contains("refuses the login"), "{done:?}");
        }
    }
}

#[test]
fn the_right_password() {
    let server = Server::options().config("requirepass", SECRET).start();
    started(&with_password(&server), &["run", "k", "true"]).done().assert_code(0);
}

#[test]
fn a_command_that_the_acl_forbids() {
    let mut stage = Stage::set();
    assert!(!stage.control.run("ACL SETUSER default -lock.forcerelease").is_error());
    let done = ends(&stage.server.url(), &["release", "--force", "k"]);
    done.assert_code(125);
    assert!(done.err.contains("denies"), "{done:?}");
}

#[test]
fn a_key_that_is_not_a_lock() {
    let mut stage = Stage::set();
    stage.control.run("SET k v");
    for arguments in [EACH[0], EACH[2], EACH[6]] {
        let done = ends(&stage.server.url(), arguments);
        done.assert_code(125);
        assert_eq!(done.err, "kvlock: k: the key holds something of another type\n");
    }
}

#[test]
fn a_server_of_another_protocol() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    // The thread ends with the test binary.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _asked = stream.read(&mut [0; 1024]);
            let _told = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    for arguments in EACH {
        ends(&url, arguments).assert_code(125);
    }
}

#[test]
fn a_server_that_never_answers_does_not_prolong_the_wait() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", mute.local_addr().unwrap());
    let run = |options: &[&str]| started(&url, &[&["run"], options, &["k", "true"]].concat());
    let mut patient = [run(&[]), run(&["--wait", "9s"])];
    for hasty in [run(&["--wait", "1s"]), run(&["--nonblock"])] {
        let done = hasty.done();
        done.assert_code(125);
        assert!(done.err.ends_with(": the server did not answer in time\n"), "{done:?}");
    }
    // The programs with more time are still running.
    assert!(patient.iter_mut().all(|run| run.child.try_wait().unwrap().is_none()));
    for run in patient {
        run.done().assert_code(125);
    }
}

#[test]
fn a_name_that_is_too_long_is_not_repeated() {
    let stage = Stage::set();
    let key = "k".repeat(100_000);
    for arguments in [&["run", &key, "true"][..], &["info", &key], &["release", "--force", &key]] {
        let done = ends(&stage.server.url(), arguments);
        done.assert_code(2);
        assert!(done.err.contains("kkk…: ") && done.err.len() < 300, "{done:?}");
    }
}

/// Runs the program with a limit on its open files.
fn with_open_files(stage: &Stage, files: u32, arguments: &[&str]) -> Done {
    let program = stage.kvlock(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -n {files} && exec \"$@\""), "sh"]);
    shell.arg(program.get_program()).args(program.get_args());
    shell.env("KVLOCK_URL", stage.server.url());
    Started::new(shell).done()
}

#[test]
fn a_failed_start_of_a_process_leaves_no_lock_behind() {
    let mut stage = Stage::set();
    // Orphans of the program become children of this process.
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let mut refused = 0;
    // Each round allows one more open file.
    for files in 8..24 {
        let done = with_open_files(&stage, files, &["run", "k", "true"]);
        refused += usize::from(done.err.contains("cannot start a process"));
        assert!(stage.is_free(), "{done:?}");
    }
    assert!(refused > 0);
    let me = std::process::id().try_into().unwrap();
    // A starter process that has not executed the command is named `exe`.
    let left: Vec<_> = children_of(me).filter(|(_, stat)| stat.name == "exe").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_wrong_address() {
    for url in [
        format!("redis://:{SECRET}@127.0.0.1:port/"),
        format!("http://:{SECRET}@127.0.0.1/"),
        format!("redis://:{SECRET}@127.0.0.1/database"),
        SECRET.to_owned(),
        String::new(),
    ] {
        for arguments in EACH {
            ends(&url, arguments).assert_code(2);
        }
    }
}

#[test]
fn a_wrong_command_line() {
    let stage = Stage::set();
    for arguments in [
        &[][..],
        &["run"],
        &["run", "k"],
        &["run", "k", "--"],
        &["run", "--wait", "soon", "k", "true"],
        &["run", "--wait", "1s", "--nonblock", "k", "true"],
        &["run", "--lease", "10ms", "k", "true"],
        &["run", "--lease", "48h", "k", "true"],
        &["run", "--conflict-exit-code", "256", "k", "true"],
        &["run", "", "true"],
        &["info"],
        &["info", ""],
        &["info", "--waiters", "0", "k"],
        &["list", "--count", "1001"],
        &["release", "k"],
        &["release", "--force", ""],
        &["man", "nothing"],
        &["completions", "command.com"],
    ] {
        let done = stage.start(arguments).done();
        assert_eq!(done.code(), 2, "{arguments:?}: {done:?}");
    }
}

#[test]
fn the_help_does_not_show_the_address() {
    let stage = Stage::set();
    for arguments in [&["--help"][..], &["run", "--help"], &["man"], &["man", "run"]] {
        let mut command = stage.kvlock(arguments);
        command.env("KVLOCK_URL", format!("redis://:{SECRET}@127.0.0.1/"));
        let done = Started::new(command).done();
        done.assert_code(0);
        assert!(!done.out.contains(SECRET), "{done:?}");
    }
}

#[test]
fn a_wait_survives_a_restart_of_the_server() {
    let mut stage = Stage::of(Server::options().append_only("always").start());
    stage.take_lock();
    let run = stage.run(&[], "exit 7");
    harness::observe::wait_for_waiters(&mut stage.control, "k", 1);
    stage.server.restart();
    stage.control = stage.server.connect();
    wait::until("it waits again", super::SOON, || {
        let info = stage.control.run("LOCK.INFO k");
        if info.field("waiters").integer() == 1 { Ok(()) } else { Err(info.to_string()) }
    });
    stage.control.run("LOCK.RELEASE k another");
    run.done().assert_code(7);
}

/// Another machine, on which the command can run, may get the lock at once.
#[test]
fn a_command_that_is_not_run_does_not_keep_the_lock_for_hold_at_least() {
    let mut stage = Stage::set();
    let mut refused = 0;
    for files in 8..24 {
        let options = ["run", "--hold-at-least", "10m", "k", "true"];
        let done = with_open_files(&stage, files, &options);
        refused += usize::from(done.err.contains("cannot start a process"));
        assert_eq!(stage.is_free(), done.code() != 0, "{done:?}");
        stage.control.run("DEL k");
    }
    assert!(refused > 0);
}
