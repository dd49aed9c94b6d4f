//! The harness sees what is wrong: that it does what is right, every other test shows.

use harness::transcript::{Transcript, play};
use harness::{Kind, Options, Server, Value, cmd, module_file, observe, on_each_server, wait};
use std::path::Path;
use std::time::{Duration, Instant};
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
fn a_server_that_cannot_start_says_why() {
    let attempt = std::thread::spawn(|| plain().config("no-such-option", "yes").start());
    let panic = attempt.join().unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("no-such-option"), "{text}");
}

#[test]
fn a_server_that_was_not_brought_names_the_script() {
    let panic =
        std::thread::spawn(|| plain().kind(&Kind::named("redis-1")).start()).join().unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("scripts/servers redis-1"), "{text}");
}

#[test]
fn a_module_of_other_sources_is_not_tested() {
    let folder = TempDir::with_prefix("kvlock-old-").unwrap();
    let file = folder.path().join("kvlock.so");
    std::fs::copy(module_file::path(), &file).unwrap();
    let build = || module_file::built(folder.path(), "kvlock.so", "scripts/build");
    assert_eq!(build(), file);
    let mut bytes = std::fs::read(&file).unwrap();
    // The same file, but for what it says of itself.
    let says = observe::info_field(&mut Server::start().connect(), "kvlock_sources").unwrap();
    let at = bytes.windows(says.len()).position(|bytes| bytes == says.as_bytes()).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let panic = std::panic::catch_unwind(build).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("run `scripts/build`"), "{text}");
}

#[test]
fn a_server_of_another_process_is_not_taken_for_ours() {
    let first = plain().start();
    let second = std::thread::spawn({
        let port = first.port();
        move || plain().port(port).start()
    });
    let panic = second.join().unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("Address already in use"));
    first.assert_alive();
}

fn each_server_is_the_one_it_says(kind: Kind) {
    let server = plain().kind(&kind).start();
    let connection = &mut server.connect_resp(3);
    let field = if kind.name().starts_with("valkey") { "valkey_version" } else { "redis_version" };
    let version = observe::info_field(connection, field).unwrap();
    let wanted = kind.name().split('-').nth(1).unwrap();
    assert!(version.starts_with(&format!("{wanted}.")), "{kind} is {version}");
    assert_eq!(process_exists(server.pid()), server.is_running());
    assert!(matches!(connection.run("HELLO 3"), Value::Map(_)));
}

on_each_server!(each_server_is_the_one_it_says);

#[test]
fn a_reply_in_time_is_told_from_none_and_from_a_closed_connection() {
    let server = plain().start();
    let (mut a, mut b) = (server.connect(), server.connect_resp(3));
    let id = a.client_id();
    a.send(cmd!["BLPOP", "l", 0]);
    observe::wait_until_blocked(&mut b, id);
    assert!(a.receive(Duration::from_millis(1)).is_err() && !a.has_unread() && !a.is_closed());
    b.run("RPUSH l \"\\x00\\xff\"");
    wait::until("the reply is there", Duration::from_secs(5), || {
        a.has_unread().then_some(()).ok_or_else(String::new)
    });
    assert_eq!(a.receive(Duration::from_secs(5)).unwrap()[1], Value::bulk(b"\x00\xff"));
    assert_eq!(b.run("GET none"), Value::Nil);
    b.call(cmd!["CLIENT", "KILL", "ID", id]);
    wait::until("the close is there", Duration::from_secs(5), || {
        a.is_closed().then_some(()).ok_or_else(String::new)
    });
    a.send(cmd!["PING"]);
    assert!(a.receive(Duration::from_secs(5)).is_err());
}

#[test]
fn waiting_in_vain_shows_what_was_seen_last() {
    let mut looks = 0;
    let start = Instant::now();
    let panic = std::thread::spawn(move || {
        wait::until("pigs fly", Duration::from_millis(20), || -> Result<(), String> {
            looks += 1;
            Err(format!("pig {looks} walks"))
        });
    });
    let panic = panic.join().unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("pigs fly") && text.contains("walks"), "{text}");
    assert!(start.elapsed() >= Duration::from_millis(20));
}

const RIGHT: &str = "a> RPUSH l x y\n(integer) {n}\nb> BLPOP m 0\n(blocked)\n\
                     a> RPUSH m 1\n(integer) {_ < n}\nb< 1) \"m\"\n   2) \"1\"\nd> BLPOP m 0\n(blocked)\nc> CLIENT KILL ID {id d}\n\
                     (integer) 1\nd> (wait-closed)\ne> BLPOP m 0\n(blocked)\ne> (reset)\na> (until) LLEN m\n(integer) 0\n\
                     f> SUBSCRIBE ch:{k}\n1) \"subscribe\"\n2) \"ch:{k}\"\n3) (integer) 1\na> PUBLISH ch:{k} hi\n(integer) 1\n\
                     f< 1) \"message\"\n   2) \"ch:{k}\"\n   3) \"hi\"\na> HSET h f v\n(integer) 1\na> HGETALL h\n1) \"f\"\n2) \"v\"\n\
                     [resp3]\n1# \"f\" => \"v\"\na> SELECT 99\n(error) ERR DB index is out of range\n";

#[test]
fn a_right_transcript_fits() {
    for protocol in [2, 3] {
        let transcript = Transcript::parse("right", RIGHT).unwrap();
        let mismatches = play(&plain().start(), &transcript, protocol, false);
        assert!(mismatches.is_empty(), "{}", mismatches[0]);
    }
}

#[test]
fn a_wrong_transcript_is_shown_with_its_line_and_both_sides() {
    for (text, line, seen) in [
        ("# c\na> RPUSH l x\n(integer) 2\n", "t:2 ", "+ (integer) 1"),
        ("a> SET k v\n(blocked)\n", "t:1 ", "+ OK"),
        ("a> BLPOP l 0\n(nil)\n", "t:1 ", "+ (no reply in time)"),
        ("a> BLPOP l 0\n(blocked)\na< (nil)\n", "t:3 ", "+ (no reply in time)"),
        ("a> BLPOP l 0\n(blocked)\n", "t ", "+ (a is still blocked)"),
        (
            "a> SUBSCRIBE x\n1) \"subscribe\"\n2) \"x\"\n3) (integer) 1\nb> PUBLISH x 1\n(integer) 1\n",
            "t ",
            "+ (a has unread)",
        ),
        (
            "a> SHUTDOWN NOSAVE\n(the server closed the connection)\n",
            "t ",
            "+ (the server is dead or stuck)",
        ),
        ("a> RPUSH l x y\n(integer) 2\na> LRANGE l 0 -1\n1) \"x\"\n", "t:3 ", "+ 2) \"y\""),
    ] {
        let transcript = Transcript::parse("t", text).unwrap();
        let mismatches = play(&plain().start(), &transcript, 2, false);
        let shown =
            mismatches.first().unwrap_or_else(|| panic!("taken for right: {text}")).to_string();
        assert!(shown.starts_with(line) && shown.contains(seen), "{text} is shown as {shown}");
    }
}
