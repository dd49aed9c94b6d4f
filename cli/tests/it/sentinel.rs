//! The program and a failover by Sentinels.

use super::process::Started;
use harness::site::Site;
use harness::{Value, observe, wait};
use std::process::Command;

fn start(url: &str, arguments: &[&str]) -> Started {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvlock"));
    command.args(arguments).env("KVLOCK_URL", url);
    Started::new(command)
}

#[test]
fn a_command_keeps_its_lock_through_a_failover() {
    let site = Site::of(2);
    let folder = tempfile::TempDir::with_prefix("kvlock-cli-").unwrap();
    let (up, down) = (folder.path().join("up"), folder.path().join("down"));
    for path in [&up, &down] {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }
    let script = "echo held >$0; read _ <$1";
    let url = site.url();
    let [up_arg, down_arg] = [&up, &down].map(|path| path.to_str().unwrap());
    let running = start(&url, &["run", "k", "--", "sh", "-c", script, up_arg, down_arg]);
    assert_eq!(std::fs::read_to_string(&up).unwrap(), "held\n");
    observe::wait_for_replica(&mut site.server(0).connect(), &mut site.server(1).connect());

    let primary = site.server(site.fail_over());
    let info = start(&url, &["info", "k"]).done();
    assert!(info.out.contains("state    held\n"), "{info:?}");
    std::fs::write(&down, "end\n").unwrap();
    running.done().assert_code(0);
    let mut eye = primary.connect();
    wait::until_is("it is released there", super::SOON, Value::Integer(0), || eye.run("EXISTS k"));
}
