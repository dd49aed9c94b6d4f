//! The program and a cluster.

use super::SOON;
use super::process::Started;
use harness::cluster::Cluster;
use harness::{Value, cmd, observe, wait};
use std::process::Command;

fn start(url: &str, arguments: &[&str]) -> Started {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvlock"));
    command.args(arguments).env("KVLOCK_URL", url);
    Started::new(command)
}

#[test]
fn a_command_keeps_its_lock_while_the_slot_moves() {
    let cluster = Cluster::start(3, 0);
    let url = cluster.url();
    let (home, away) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    // A key in one of the lowest slots, which move first.
    let key = (0..).map(|n| format!("k{n}")).find(|key| cluster.slot_of(key) < 100).unwrap();
    let folder = tempfile::TempDir::with_prefix("kvlock-cli-").unwrap();
    let (up, down) = (folder.path().join("up"), folder.path().join("down"));
    for path in [&up, &down] {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }
    let script = "echo held >$0; read _ <$1";
    let [up_arg, down_arg] = [&up, &down].map(|path| path.to_str().unwrap());
    let running = start(&url, &["run", &key, "--", "sh", "-c", script, up_arg, down_arg]);
    assert_eq!(std::fs::read_to_string(&up).unwrap(), "held\n");
    let next = start(&url, &["run", &key, "true"]);
    observe::wait_for_waiters(&mut home.connect(), &key, 1);

    cluster.reshard(home, away, 100);
    observe::wait_for_waiters(&mut away.connect(), &key, 1);
    let info = start(&url, &["info", &key]).done();
    assert!(info.out.contains("state    held\n") && info.out.contains("waiters  1\n"), "{info:?}");
    let list = start(&url, &["list"]).done();
    assert!(list.out.lines().count() == 2 && list.out.contains(&key), "{list:?}");
    std::fs::write(&down, "end\n").unwrap();
    running.done().assert_code(0);
    next.done().assert_code(0);
    let mut there = away.connect();
    wait::until_is("it is released there", SOON, Value::Integer(0), || {
        there.call(cmd!["EXISTS", key])
    });

    there.call(cmd!["LOCK.ACQUIRE", key, "another", 600_000]);
    let released = start(&url, &["release", "--force", &key]).done();
    assert_eq!(released.out, format!("{key} released\n"));
}

#[test]
fn a_server_without_a_cluster_is_reported() {
    let alone = harness::Server::start();
    let url = format!("redis-cluster://:secret@127.0.0.1:{}", alone.port());
    let told = start(&url, &["info", "k"]).done();
    // The server has no password: the login fails.
    assert_ne!(told.code(), 0, "{told:?}");
    assert!(!told.err.contains("secret"), "{told:?}");
    let url = format!("redis-cluster://127.0.0.1:{}", alone.port());
    let told = start(&url, &["info", "k"]).done();
    told.assert_code(2);
    assert!(told.err.contains("no node of a cluster"), "{told:?}");
}
