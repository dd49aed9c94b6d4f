//! A primary behind Sentinels, and its successor.

use super::process::Started;
use harness::sentinel::Watched;
use harness::{Value, observe, wait};
use std::process::Command;

fn start(url: &str, arguments: &[&str]) -> Started {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvlock"));
    command.args(arguments).env("KVLOCK_URL", url);
    Started::new(command)
}

#[test]
fn a_command_goes_on_through_a_failover() {
    let watched = Watched::start(1);
    let folder = tempfile::TempDir::with_prefix("kvlock-cli-").unwrap();
    let (up, down) = (folder.path().join("up"), folder.path().join("down"));
    for path in [&up, &down] {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }
    let script = "echo held >$0; read _ <$1";
    let url = watched.url();
    let [up_arg, down_arg] = [&up, &down].map(|path| path.to_str().unwrap());
    let running = start(&url, &["run", "k", "--", "sh", "-c", script, up_arg, down_arg]);
    assert_eq!(std::fs::read_to_string(&up).unwrap(), "held\n");
    let (first, second) = (&watched.servers()[0], &watched.servers()[1]);
    observe::wait_for_replica(&mut first.connect(), &mut second.connect());

    let primary = watched.fail_over();
    let info = start(&url, &["info", "k"]).done();
    assert!(info.out.contains("state    held\n"), "{info:?}");
    std::fs::write(&down, "end\n").unwrap();
    running.done().assert_code(0);
    let mut eye = primary.connect();
    wait::until("it is released there", super::SOON, || match eye.run("EXISTS k") {
        Value::Integer(0) => Ok(()),
        held => Err(held.to_string()),
    });
}
