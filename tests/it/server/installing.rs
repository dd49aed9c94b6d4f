//! The installation that `docs/installing.md` describes.

use harness::kind::workspace;
use harness::{Kind, Server, Value, module_file, on_each_server};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Executes the line of the page that changes the configuration of a server, with the paths of this test.
fn configure(server: &Server) {
    let page = fs::read_to_string(workspace().join("docs/installing.md")).unwrap();
    let line = page.lines().find(|line| line.contains(">>/etc/redis/redis.conf")).unwrap();
    let file = server.dir().join("server.conf");
    let shown = |path: &Path| path.display().to_string();
    let line = line.replace("/etc/redis/redis.conf", &shown(&file));
    let line = line.replace("/usr/lib/kvlock/kvlock.so", &shown(&module_file::path()));
    assert!(Command::new("sh").args(["-ec", &line]).status().unwrap().success(), "{line}");
    let options = fs::read_to_string(&file).unwrap() + "kvlock.max-waiters 20000\n";
    fs::write(file, options).unwrap();
}

/// Sentinel sends `CONFIG REWRITE` at each failover. It writes `loadmodule` into the main configuration file, so
/// the module must not be loaded from another place too.
fn a_server_starts_again_after_config_rewrite(kind: Kind) {
    let server = Server::options().kind(&kind).without_module().start();
    configure(&server);
    server.restart();
    let mut client = server.connect();
    for command in ["CONFIG SET kvlock.max-sessions 500", "CONFIG REWRITE"] {
        assert_eq!(client.run(command), Value::Status("OK".to_owned()), "{command}");
    }
    server.restart();
    let mut client = server.connect();
    for (option, value) in [("kvlock.max-waiters", "20000"), ("kvlock.max-sessions", "500")] {
        assert_eq!(client.run(&format!("CONFIG GET {option}"))[1].text(), value, "{option}");
    }
    assert_eq!(client.run("LOCK.ACQUIRE k alice 10000")[1], Value::Integer(1));
}

on_each_server!(a_server_starts_again_after_config_rewrite);
