//! The harness detects errors. The other tests show that it accepts correct behaviour.

use harness::transcript::{Transcript, play};
use harness::{Kind, Options, Server, Value, module_file, observe, on_each_server};
use std::path::Path;
use tempfile::TempDir;

fn plain() -> Options {
    Server::options().without_module()
}

fn process_exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_server_dies_when_its_test_panics_and_keeps_its_folder() {
    let (send, receive) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let server = plain().start();
        send.send((server.pid(), server.dir().to_owned())).unwrap();
        panic!("this panic is part of the test");
    });
    assert!(test.join().is_err());
    let (pid, dir) = receive.recv().unwrap();
    assert!(!process_exists(pid) && dir.join("server.log").exists());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_module_of_other_sources_is_not_tested() {
    let folder = TempDir::with_prefix("kvlock-old-").unwrap();
    let file = folder.path().join("kvlock.so");
    std::fs::copy(module_file::path(), &file).unwrap();
    let build = || module_file::built(folder.path(), "kvlock.so", "scripts/build");
    assert_eq!(build(), file);
    let mut bytes = std::fs::read(&file).unwrap();
    // The same file, except for the fingerprint of its sources.
    let says = observe::info_field(&mut Server::start().connect(), "kvlock_sources").unwrap();
    let at = bytes.windows(says.len()).position(|bytes| bytes == says.as_bytes()).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let panic = std::panic::catch_unwind(build).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("run `scripts/build`"), "{text}");
}

fn each_server_has_the_expected_version(kind: Kind) {
    let server = plain().kind(&kind).start();
    let connection = &mut server.connect_resp(3);
    let field = if kind.name().starts_with("valkey") { "valkey_version" } else { "redis_version" };
    let version = observe::info_field(connection, field).unwrap();
    let wanted = kind.name().split('-').nth(1).unwrap();
    assert!(version.starts_with(&format!("{wanted}.")), "{kind} is {version}");
    assert_eq!(process_exists(server.pid()), server.is_running());
    assert!(matches!(connection.run("HELLO 3"), Value::Map(_)));
}

on_each_server!(each_server_has_the_expected_version);

#[test]
fn a_wrong_transcript_is_shown_with_its_line_and_both_sides() {
    for (text, line, seen) in [
        ("# c\na> RPUSH l x -> 2", "t:2 ", "+ 1"),
        ("a> SET k v\n(blocked)", "t:1 ", "+ OK"),
        ("a> BLPOP l 0 -> nil", "t:1 ", "+ (no reply in time)"),
        ("a> BLPOP l 0 -> (blocked)\na< nil", "t:2 ", "+ (no reply in time)"),
        ("a> BLPOP l 0 -> (blocked)", "t ", "+ (a is still blocked)"),
        ("a> SUBSCRIBE x -> _\nb> PUBLISH x 1 -> 1", "t ", "+ (a has unread)"),
        ("a> SHUTDOWN NOSAVE -> (the server closed the connection)", "t ", "+ (the server is dead"),
        ("a> RPUSH l x y -> 2\na> LRANGE l 0 -1\n1) \"x\"\n2) \"z\"", "t:2 ", "+ 2) \"y\""),
    ] {
        let transcript = Transcript::parse("t", text).unwrap();
        let shown = play(&plain().start(), &transcript, 2).expect_err(text).to_string();
        assert!(shown.starts_with(line) && shown.contains(seen), "{text} is shown as {shown}");
    }
}
