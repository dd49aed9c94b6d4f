//! What stands in the way is said, without secrets.

use super::{Stage, Started, process::Done};
use harness::Server;
use harness::wait;
use std::process::Command;

const SECRET: &str = "correct-horse";

/// Each subcommand that talks to the server.
const EACH: [&[&str]; 4] =
    [&["run", "k", "true"], &["info", "k"], &["list"], &["release", "--force", "k"]];

fn ends(url: &str, arguments: &[&str]) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvlock"));
    command.args(arguments).env("KVLOCK_URL", url);
    let done = Started::new(command).done();
    assert!(!done.err.contains(SECRET) && !done.out.contains(SECRET), "{done:?}");
    assert!(done.err.starts_with("kvlock: ") && done.err.lines().count() == 1, "{done:?}");
    done
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvlock"));
    command.args(["run", "k", "true"]).env("KVLOCK_URL", with_password(&server));
    Started::new(command).done().assert_code(0);
}

#[test]
fn no_right_to_a_command() {
    let mut stage = Stage::set();
    assert!(!stage.control.run("ACL SETUSER default -lock.forcerelease").is_error());
    let done = ends(&stage.server.url(), &["release", "--force", "k"]);
    done.assert_code(125);
    assert!(done.err.contains("denies"), "{done:?}");
}

#[test]
fn something_that_is_no_lock() {
    let mut stage = Stage::set();
    stage.control.run("SET k v");
    for arguments in [EACH[0], EACH[1], EACH[3]] {
        let done = ends(&stage.server.url(), arguments);
        done.assert_code(125);
        assert_eq!(done.err, "kvlock: k: the key holds something that is not a lock\n");
    }
}

#[test]
fn an_address_that_is_none() {
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
fn a_command_line_that_makes_no_sense() {
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
fn a_server_that_comes_back_while_we_wait_is_no_trouble() {
    let mut stage = Stage::of(Server::options().append_only("always").start());
    stage.taken();
    let run = stage.run(&[], "exit 7");
    harness::observe::wait_for_waiters(&mut stage.control, "k", 1);
    stage.server.restart();
    stage.control = stage.server.connect();
    wait::until("it waits again", super::SOON, || {
        let info = stage.control.run("LOCK.INFO k");
        if info.field("waiters").integer() == 1 { Ok(()) } else { Err(info.to_string()) }
    });
    stage.control.run("LOCK.RELEASE k somebody");
    run.done().assert_code(7);
}
